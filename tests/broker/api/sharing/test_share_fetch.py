"""ShareFetch and ShareAcknowledge, over the wire."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import UUID

import pytest

from moldau.broker.coordination.share.state import ShareKey
from moldau.broker.server import Broker as Server
from moldau.broker.sharing.persister import Persister
from moldau.testing.waiting import until
from moldau.wire.apis import Api
from moldau.wire.errors import Error
from tests.broker.api.sharing.member import (
    ACCEPT,
    RELEASE,
    RENEW,
    Member,
    acquired,
    partition_of,
)
from tests.broker.api.sharing.queues import Queue
from tests.broker.wire_client import (
    append_open,
    inside,
    read_records,
)


def test_a_member_is_given_records_and_works_them_off(queue: Queue) -> None:
    queue.put(b"a", b"b", b"c")
    with queue.member() as member:
        answer = member.fetch(wait_ms=10_000)
        assert acquired(answer) == [(0, 2, 1)]
        assert answer.acquisition_lock_timeout.total_seconds() == 30
        values = [record.value for record in read_records(partition_of(answer).records)]
        assert values == [b"a", b"b", b"c"]
        said = member.acknowledge({0: [(0, 1, ACCEPT), (2, 2, RELEASE)]})
        assert partition_of(said).error_code == Error.NONE
        assert queue.start() == 2
        assert member.take() == [(2, 2, 2)]
        answer = member.fetch({0: [(2, 2, ACCEPT)]})
        assert partition_of(answer).acknowledge_error_code == Error.NONE
        assert queue.start() == 3


def test_two_members_never_have_the_same_record(queue: Queue) -> None:
    with queue.member("a") as a, queue.member("b") as b:
        for number in range(6):
            queue.put(b"%d" % number)
        first = a.take(max_records=2)
        second = b.take(max_records=100)
        assert first == [(0, 1, 1)]
        assert second == [(2, 5, 1)]
        refused = b.acknowledge({0: [(0, 0, ACCEPT)]})
        assert partition_of(refused).error_code == Error.INVALID_RECORD_STATE
        assert not partition_of(a.acknowledge({0: [(0, 1, ACCEPT)]})).error_code


def test_not_one_record_more_than_the_limit_if_the_member_says_so(queue: Queue) -> None:
    queue.put(*[b"x"] * 10)
    with queue.member("a") as a, queue.member("b") as b:
        assert a.take(max_records=3, share_acquire_mode=1) == [(0, 2, 1)]
        assert b.take(max_records=3) == [(3, 9, 1)]


def test_a_fetch_waits_for_records(queue: Queue) -> None:
    with queue.member() as member:
        member.take(wait_ms=0)
        member.send_fetch(wait_ms=20_000)
        member.client.expect_nothing()
        queue.put(b"late")
        assert acquired(member.client.receive()) == [(0, 0, 1)]


def test_those_who_wait_are_served_in_turn(queue: Queue) -> None:
    members = [queue.member(f"m{number}") for number in range(3)]
    try:
        for member in members:
            member.take(wait_ms=0)
            member.send_fetch(wait_ms=20_000)
        for member in members:
            member.client.expect_nothing(0.01)
        for number in range(6):
            queue.put(b"%d" % number)
            member = members[number % 3]
            assert acquired(member.client.receive()) == [(number, number, 1)]
            member.send_fetch(wait_ms=20_000)
            # It waits again, behind the others, before there is more.
            member.client.expect_nothing(0.01)
    finally:
        for member in members:
            member.client.close()


def test_nobody_gets_more_than_its_share_of_what_may_be_in_flight(queue: Queue) -> None:
    queue.configure(share_partition_max_record_locks="100")
    with queue.member("a") as a, queue.member("b") as b:
        for member in (a, b):
            member.take(wait_ms=0)
        queue.put(*[b"x"] * 200)
        assert a.take(share_acquire_mode=1) == [(0, 49, 1)]
        assert b.take(share_acquire_mode=1) == [(50, 99, 1)]
        assert a.take(share_acquire_mode=1, wait_ms=50) == []
        said = b.acknowledge({0: [(50, 99, ACCEPT)]})
        assert not partition_of(said).error_code
        # What is finished behind the oldest in flight does not make room.
        assert b.take(share_acquire_mode=1, wait_ms=50) == []
        assert not partition_of(a.acknowledge({0: [(0, 49, ACCEPT)]})).error_code
        assert b.take(share_acquire_mode=1) == [(100, 149, 1)]


def test_what_a_member_had_goes_to_another_when_it_hangs_up(queue: Queue) -> None:
    queue.put(b"a", b"b")
    with queue.member("b") as b:
        with queue.member("a") as a:
            assert a.take() == [(0, 1, 1)]
            b.send_fetch(wait_ms=20_000)
            b.client.expect_nothing()
            a.client.reset()
        assert acquired(b.client.receive()) == [(0, 1, 2)]


def test_the_last_request_of_a_session_releases_what_was_not_acknowledged(queue: Queue) -> None:
    queue.put(b"a", b"b")
    with queue.member("a") as a, queue.member("b") as b:
        assert a.take() == [(0, 1, 1)]
        assert not partition_of(a.acknowledge({0: [(0, 0, ACCEPT)]}, epoch=-1)).error_code
        assert b.take() == [(1, 1, 2)]
        assert a.fetch().error_code == Error.SHARE_SESSION_NOT_FOUND


def test_a_fetch_of_an_earlier_session_takes_nothing(queue: Queue) -> None:
    """Its connection may be half open, so that nobody would see what it takes."""
    queue.put(b"a", b"b")
    with queue.member() as before, queue.member() as after:
        assert before.take() == [(0, 1, 1)]
        before.send_fetch(wait_ms=20_000)
        before.client.expect_nothing()
        assert after.take() == [(0, 1, 2)]
        assert acquired(before.client.receive()) == []
        assert not partition_of(after.acknowledge({0: [(0, 1, ACCEPT)]})).error_code


@pytest.mark.parametrize("api", [Api.SHARE_ACKNOWLEDGE, Api.SHARE_FETCH])
def test_a_fetch_takes_nothing_beside_the_last_request_of_its_session(
    queue: Queue, api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue.put(b"a", b"b")
    held = asyncio.Event()
    is_held: list[bool] = []
    write = Persister.write

    async def slow_write(self: Persister, *what: Any) -> Any:
        is_held.append(True)
        await held.wait()
        return await write(self, *what)

    with queue.member("a") as a, queue.member("b") as b:
        assert a.take() == [(0, 1, 1)]
        a.send_fetch(wait_ms=20_000)
        a.client.expect_nothing()
        monkeypatch.setattr(Persister, "write", slow_write)
        values = a.values({0: [(0, 0, ACCEPT)]}, (), -1)
        limits = {"max_wait": 0, "min_bytes": 1, "max_records": 500, "batch_size": 500}
        a.client.send(api, **values, **(limits if api is Api.SHARE_FETCH else {}))
        until(lambda: bool(is_held), "the last request is taken in")
        queue.put(b"c")
        assert acquired(a.client.receive()) == []
        inside(queue.broker, lambda server: held.set())
        assert not a.client.receive().error_code
        assert b.take() == [(1, 1, 2), (2, 2, 1)]


def test_a_lock_that_runs_out_gives_the_record_to_another(queue: Queue) -> None:
    queue.configure(share_record_lock_duration_ms="100")
    queue.put(b"a")
    with queue.member("a") as a, queue.member("b") as b:
        assert a.take() == [(0, 0, 1)]
        assert b.take() == [(0, 0, 2)]
        refused = a.acknowledge({0: [(0, 0, ACCEPT)]})
        assert partition_of(refused).error_code == Error.INVALID_RECORD_STATE


def test_a_lock_is_renewed_only_by_who_says_that_it_renews(queue: Queue) -> None:
    queue.put(b"a")
    with queue.member() as member:
        assert member.take() == [(0, 0, 1)]
        refused = member.acknowledge({0: [(0, 0, RENEW)]})
        assert partition_of(refused).error_code == Error.INVALID_REQUEST
        renewed = member.acknowledge({0: [(0, 0, RENEW)]}, is_renew_ack=True)
        assert not partition_of(renewed).error_code
        assert renewed.acquisition_lock_timeout.total_seconds() == 30
        queue.configure(share_renew_acknowledge_enable="false")
        refused = member.acknowledge({0: [(0, 0, RENEW)]}, is_renew_ack=True)
        assert partition_of(refused).error_code == Error.INVALID_REQUEST


def test_records_are_given_up_after_so_many_tries(queue: Queue) -> None:
    queue.configure(share_delivery_count_limit="2")
    queue.put(b"a", b"b")
    with queue.member() as member:
        for tries in (1, 2):
            assert member.take() == [(0, 1, tries)]
            assert not partition_of(member.acknowledge({0: [(0, 1, RELEASE)]})).error_code
        assert queue.start() == 2


def test_a_partition_is_kept_while_something_of_it_is_being_written(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever reads it next would begin with what was written before."""
    queue.put(b"a")
    key = ShareKey(queue.group, queue.id, 0)
    held: list[asyncio.Event] = []
    write = Persister.write

    async def slow_write(self: Persister, *what: Any) -> Any:
        held.append(asyncio.Event())
        await held[-1].wait()
        return await write(self, *what)

    with queue.member() as member:
        assert member.take() == [(0, 0, 1)]
        shared = inside(queue.broker, lambda server: server.shares.find(key))
        monkeypatch.setattr(Persister, "write", slow_write)
    until(lambda: bool(held))
    assert inside(queue.broker, lambda server: server.shares.find(key)) is shared
    inside(queue.broker, lambda server: held[0].set())
    until(lambda: inside(queue.broker, lambda server: server.shares.find(key)) is None)
    with queue.member() as member:
        assert member.take() == [(0, 0, 2)]


def test_a_group_may_see_only_what_is_committed(queue: Queue) -> None:
    queue.configure(share_isolation_level="read_committed")
    queue.put(b"a")
    append_open(queue.broker, queue.topic, b"open")
    queue.put(b"behind")
    with queue.member() as member:
        assert member.take() == [(0, 0, 1)]
        assert member.take(wait_ms=50) == []


BAD = {
    "backwards": [(1, 0, ACCEPT)],
    "out of order": [(2, 2, ACCEPT), (0, 0, ACCEPT)],
    "no kind": [(0, 0, [])],
    "too few kinds": [(0, 2, [ACCEPT, ACCEPT])],
    "too many kinds": [(0, 0, [ACCEPT, ACCEPT])],
    "a kind that there is not": [(0, 0, 5)],
    "a negative kind": [(0, 0, -1)],
    "beyond what was given": [(0, 7, ACCEPT)],
}


@pytest.mark.parametrize("ranges", BAD.values(), ids=BAD)
def test_bad_ranges_are_refused_and_change_nothing(
    queue: Queue, ranges: list[tuple[int, int, int]]
) -> None:
    queue.put(b"a", b"b", b"c")
    with queue.member() as member:
        assert member.take() == [(0, 2, 1)]
        refused = member.acknowledge({0: ranges})
        assert partition_of(refused).error_code == Error.INVALID_REQUEST
        overlap = member.acknowledge({0: [(0, 1, ACCEPT), (1, 2, ACCEPT)]})
        assert partition_of(overlap).error_code == Error.INVALID_RECORD_STATE
        assert queue.start() == 0
        assert not partition_of(member.acknowledge({0: [(0, 2, ACCEPT)]})).error_code


def test_requests_that_do_not_fit_their_session_are_refused(queue: Queue) -> None:
    queue.put(b"a")
    with queue.member() as member:
        assert member.fetch(epoch=5).error_code == Error.SHARE_SESSION_NOT_FOUND
        assert member.acknowledge({}, epoch=1).error_code == Error.SHARE_SESSION_NOT_FOUND
        assert member.fetch(epoch=-1).error_code == Error.SHARE_SESSION_NOT_FOUND
        assert member.take() == [(0, 0, 1)]
        assert member.fetch(epoch=7).error_code == Error.INVALID_SHARE_SESSION_EPOCH
        refused = member.acknowledge({0: [(0, 0, ACCEPT)]}, epoch=0)
        assert refused.error_code == Error.INVALID_SHARE_SESSION_EPOCH
        assert not partition_of(member.acknowledge({0: [(0, 0, ACCEPT)]})).error_code
        nobody = member.fetch(member_id="")
        assert nobody.error_code == Error.INVALID_REQUEST


def test_there_are_only_so_many_sessions(queue: Queue) -> None:
    with queue.member() as member:
        for number in range(20):
            assert not member.fetch(epoch=0, member_id=f"m{number}").error_code
        refused = member.fetch(epoch=0, member_id="one more")
        assert refused.error_code == Error.SHARE_SESSION_LIMIT_REACHED
    sessions = lambda server: len(server.shares.sessions)
    until(lambda: inside(queue.broker, sessions) == 0, "the sessions end with their connection")


def test_unknown_partitions_are_said_to_be_so(queue: Queue) -> None:
    with queue.member() as member:
        answer = member.fetch(partitions=(0, 9))
        assert partition_of(answer, 9).error_code == Error.UNKNOWN_TOPIC_OR_PARTITION
        assert not partition_of(answer, 0).error_code
        said = member.acknowledge({9: [(0, 0, ACCEPT)]})
        assert partition_of(said, 9).error_code == Error.UNKNOWN_TOPIC_OR_PARTITION
    with Member(queue.broker, queue.group, UUID(int=5)) as stranger:
        assert partition_of(stranger.fetch()).error_code == Error.UNKNOWN_TOPIC_ID
        said = stranger.acknowledge({0: [(0, 0, ACCEPT)]})
        assert partition_of(said).error_code == Error.UNKNOWN_TOPIC_ID


def test_a_leader_that_is_another_begins_with_what_was_written(queue: Queue) -> None:
    queue.put(b"a", b"b", b"c", b"d")
    with queue.member() as member:
        assert member.take() == [(0, 3, 1)]
        said = member.acknowledge({0: [(1, 1, ACCEPT), (2, 2, RELEASE)]})
        assert not partition_of(said).error_code

        def forget(server: Server) -> None:
            for shared in server.shares:
                shared.end(Error.NOT_LEADER_OR_FOLLOWER)

        inside(queue.broker, forget)
        late = member.acknowledge({0: [(0, 0, ACCEPT)]})
        assert partition_of(late).error_code == Error.UNKNOWN_TOPIC_OR_PARTITION
        member.epoch = 0
        assert member.take() == [(0, 0, 1), (2, 2, 2), (3, 3, 1)]


def test_what_retention_took_is_passed_over(queue: Queue) -> None:
    queue.put(b"a")
    queue.put(b"b")
    wanted = {"partition_index": 0, "offset": 1}
    deleted = queue.client.ask(
        Api.DELETE_RECORDS,
        topics=[{"name": queue.topic, "partitions": [wanted]}],
        timeout=1000,
    )
    assert not deleted.topics[0].partitions[0].error_code
    with queue.member() as member:
        assert member.take() == [(1, 1, 1)]
        until(lambda: queue.start() == 1, "the start follows the log's")
