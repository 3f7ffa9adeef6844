"""The group coordinator: what outlives a restart, a change of leader, and its retention."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from msgspec.structs import replace

from moldau.broker.coordination.groups.classic.messages import Join, Joined, Sync
from moldau.broker.coordination.groups.group import Commit
from moldau.broker.coordination.groups.held import HeldGroup
from moldau.broker.coordination.groups.records import CommittedOffset, offset_key, offset_value
from moldau.broker.server import Broker as Server
from moldau.cluster.state.internal_topics import CONSUMER_OFFSETS
from moldau.cluster.state.topics import PartitionState
from moldau.testing import Broker
from moldau.testing.waiting import until
from moldau.wire.apis import Api
from moldau.wire.errors import Error
from tests.broker.asking import Asker
from tests.broker.coordination.groups.asking import Groups
from tests.broker.coordination.groups.coordinators import offsets_partition
from tests.broker.wire_client import inside


@pytest.fixture
def broker() -> Iterator[Broker]:
    """A broker of this test's own, ready for groups, with the topic `t` of two partitions."""
    with Broker(group_min_session_timeout_ms=100) as broker:
        broker.create_topic("t", partitions=2)
        with Asker(broker) as asker:
            Groups(asker).find("g")
        yield broker


@pytest.fixture
def groups(broker: Broker) -> Iterator[Groups]:
    with Asker(broker) as asker:
        yield Groups(asker)


def give_leadership(server: Server, leader: int) -> None:
    """As the controller would tell the broker."""
    partition = offsets_partition(server)
    partition.become(PartitionState((0,), (0,), leader, partition.leader_epoch + 1))
    server.groups.partition_changed(partition)
    partition.wake()


def test_offsets_and_members_outlive_a_restart_without_a_rebalance(broker: Broker) -> None:
    with Asker(broker) as asker:
        groups = Groups(asker)
        member = groups.stable("g").member_id
        groups.commit("g", {("t", 0): 5}, member=member, generation=1)
        groups.commit("g", {("t", 0): 6, ("t", 1): 7}, member=member, generation=1)
        groups.commit("simple", {("t", 1): 8}, metadata="note")
        groups.commit("gone", {("t", 1): 9})
        asker.ask(Api.DELETE_GROUPS, groups_names=["gone"])
    broker.stop()
    broker.start()
    with Asker(broker) as asker:
        groups = Groups(asker)
        until(lambda: groups.describe("g").error_code == 0)
        assert groups.heartbeat("g", member, 1) == 0
        assert groups.sync("g", member, 1).assignment == b"mine"
        assert groups.committed("g", "t", 0, 1) == [6, 7]
        until(lambda: groups.committed("simple", "t", 0, 1) == [-1, 8])
        until(lambda: groups.describe("gone").error_code == Error.GROUP_ID_NOT_FOUND)
        assert groups.committed("gone", "t", 1) == [-1]


def test_a_member_that_did_not_survive_the_restart_is_missed_after_its_session(
    broker: Broker,
) -> None:
    with Asker(broker) as asker:
        Groups(asker).stable("g", session_ms=2_000)
    broker.stop()
    broker.start()
    with Asker(broker) as asker:
        groups = Groups(asker)
        until(lambda: groups.describe("g").group_state == "Empty")


def test_a_silent_member_is_replaced_after_its_session_timeout(
    broker: Broker, groups: Groups
) -> None:
    groups.stable("g", session_ms=2_000)
    joined = groups.enter("g")
    assert joined.generation_id == 2
    assert [member.member_id for member in joined.members] == [joined.member_id]


def test_a_coordinator_that_still_reads_back_says_so(broker: Broker, groups: Groups) -> None:
    member = groups.stable("g").member_id
    groups.commit("g", {("t", 0): 5}, member=member, generation=1)

    def ask_while_loading(server: Server) -> list[Any]:
        give_leadership(server, 0)
        coordinator = server.groups
        return [
            coordinator.find("g"),
            coordinator.heartbeat("g", member, None, 1),
            coordinator.join("g", Join(member, "consumer", (("range", b""),), 300, 300)).result(),
            coordinator.sync("g", Sync(member, 1)).result().error,
            coordinator.commit("g", Commit(member, None, 1, (), 9), {}),
            coordinator.delete_group("g").result(),
            coordinator.list_groups(),
        ]

    loading = Error.COORDINATOR_LOAD_IN_PROGRESS
    found = inside(broker, ask_while_loading)
    assert found == [loading, Error.NONE, Joined(loading, member)] + [loading] * 4
    until(lambda: groups.describe("g").error_code == 0)
    assert groups.heartbeat("g", member, 1) == 0
    assert groups.committed("g", "t", 0) == [5]


def test_a_broker_that_no_longer_leads_sends_everyone_away(broker: Broker, groups: Groups) -> None:
    member = groups.stable("g").member_id
    with Asker(broker) as other:
        parked = threading.Thread(target=lambda: answers.append(Groups(other).join("g", version=0)))
        answers: list[Any] = []
        parked.start()
        until(lambda: groups.describe("g").group_state == "PreparingRebalance")
        inside(broker, lambda server: give_leadership(server, 7))
        parked.join(60)
    assert answers[0].error_code == Error.NOT_COORDINATOR
    assert groups.heartbeat("g", member, 1) == Error.NOT_COORDINATOR
    assert groups.commit("g", {("t", 0): 5}) == {("t", 0): Error.NOT_COORDINATOR}
    assert groups.describe("g").error_code == Error.NOT_COORDINATOR
    assert groups.asker.ask(Api.LIST_GROUPS).groups == ()
    inside(broker, lambda server: give_leadership(server, 0))
    until(lambda: groups.describe("g").group_state == "Stable")
    assert groups.heartbeat("g", member, 1) == 0


def test_members_that_wait_for_their_assignment_ask_again_when_the_broker_leads_anew(
    broker: Broker,
) -> None:
    """The write of the assignment waits too; the shard that reads it back may find it."""

    def lead_anew(server: Server) -> tuple[Joined, list[Error]]:
        coordinator = server.groups
        request = Join("", "consumer", (("range", b""),), 10_000, 10_000, requires_member_id=False)
        joining = [coordinator.join("g", request) for _ in range(2)]
        first = joining[0].result()
        joining[0] = coordinator.join("g", replace(request, member_id=first.member_id))
        members = [each.result() for each in joining]
        set_in_sync(server, (0, 1))
        syncs = [
            Sync(each.member_id, each.generation, assignments={each.member_id: b"mine"})
            for each in members
        ]
        waiting = [coordinator.sync("g", sync) for sync in syncs]
        assert not any(each.done() for each in waiting)
        give_leadership(server, 0)
        leader = next(each for each in members if each.leader == each.member_id)
        return leader, [each.result().error for each in waiting]

    leader, errors = inside(broker, lead_anew)
    assert errors == [Error.NOT_COORDINATOR] * 2
    with Asker(broker) as asker:
        groups = Groups(asker)
        until(lambda: groups.describe("g").group_state == "Stable")
        assert groups.sync("g", leader.member_id, leader.generation).assignment == b"mine"


def set_in_sync(server: Server, isr: tuple[int, ...]) -> None:
    partition = offsets_partition(server)
    partition.become(PartitionState((0, 1), isr, 0, partition.leader_epoch))
    partition.wake()


def fetch_stable(groups: Groups) -> tuple[int, int]:
    wanted = [{"name": "t", "partition_indexes": [0]}]
    answer = groups.asker.ask(Api.OFFSET_FETCH, 7, group_id="g", topics=wanted, require_stable=True)
    (found,) = answer.topics[0].partitions
    return int(found.error_code), int(found.committed_offset)


def test_a_commit_counts_and_is_answered_once_every_replica_has_it(
    broker: Broker, groups: Groups
) -> None:
    groups.commit("g", {("t", 0): 5})
    inside(broker, lambda server: set_in_sync(server, (0, 1)))
    with Asker(broker) as other:
        answers: list[Any] = []
        waiting = threading.Thread(
            target=lambda: answers.append(Groups(other).commit("g", {("t", 0): 6}))
        )
        waiting.start()
        until(lambda: fetch_stable(groups)[0] == Error.UNSTABLE_OFFSET_COMMIT)
        assert groups.committed("g", "t", 0) == [5]
        assert answers == []
        inside(broker, lambda server: set_in_sync(server, (0,)))
        waiting.join(60)
    assert answers == [{("t", 0): 0}]
    assert fetch_stable(groups) == (0, 6)


def test_a_broker_alone_commits_at_once_and_writes_nothing_for_no_offsets(
    broker: Broker, groups: Groups
) -> None:
    groups.commit("g", {("t", 0): 5})

    def commit(server: Server) -> list[Any]:
        log = offsets_partition(server).log
        anybody = Commit("", None, -1, (), 9)
        nothing = server.groups.commit("g", anybody, {})
        end = log.log_end
        value = CommittedOffset(6, -1, "", server.node.now_ms())
        one = server.groups.commit("g", anybody, {("t", 0): value})
        return [nothing, one, end, log.log_end]

    nothing, one, end, end_after = inside(broker, commit)
    assert (nothing, one) == (Error.NONE, Error.NONE)
    assert (end, end_after) == (1, 2)
    assert fetch_stable(groups) == (0, 6)


def test_a_commit_that_too_few_replicas_could_take_is_refused() -> None:
    with Broker(offsets_commit_timeout_ms=50) as broker, Asker(broker) as asker:
        broker.create_topic("t", partitions=1)
        groups = Groups(asker)
        groups.find("g")
        inside(broker, lambda server: set_in_sync(server, (0, 1)))
        late = groups.commit("g", {("t", 0): 5})
        assert late == {("t", 0): Error.COORDINATOR_NOT_AVAILABLE}
        assert groups.committed("g", "t", 0) == [-1]
        inside(broker, lambda server: set_in_sync(server, (0,)))
        assert groups.committed("g", "t", 0) == [5]
        inside(broker, lambda server: set_in_sync(server, ()))
        refused = groups.commit("g", {("t", 0): 6})
        assert refused == {("t", 0): Error.COORDINATOR_NOT_AVAILABLE}
        # It is not waited for, either.
        assert fetch_stable(groups) == (0, 5)


def test_commits_wait_for_the_disk_where_there_is_a_flush_policy() -> None:
    with Broker(log_flush_interval_messages=1) as broker, Asker(broker) as asker:
        broker.create_topic("t", partitions=1)
        groups = Groups(asker)
        groups.find("g")
        member = groups.stable("g").member_id
        for offset in range(5):
            errors = groups.commit("g", {("t", 0): offset}, member=member, generation=1)
            assert errors == {("t", 0): 0}
        assert groups.committed("g", "t", 0) == [4]


def held(server: Server, group: str) -> HeldGroup:
    found = server.groups.find(group)
    assert isinstance(found, HeldGroup)
    return found


def test_a_parked_join_does_not_hold_up_a_stop(broker: Broker, groups: Groups) -> None:
    groups.stable("g")
    with Asker(broker) as other:
        answers: list[Any] = []
        parked = threading.Thread(target=lambda: answers.append(Groups(other).join("g", version=0)))
        parked.start()
        until(lambda: groups.describe("g").group_state == "PreparingRebalance")
        broker.stop()
        parked.join(60)
    assert answers[0].error_code == Error.NOT_COORDINATOR


def test_a_damaged_record_costs_only_itself(broker: Broker, groups: Groups) -> None:
    groups.commit("g", {("t", 0): 5})

    def write_nonsense(server: Server) -> None:
        journal = held(server, "g").journal
        nonsense = [(b"\x00\x01\x00", b"x"), (b"\x00\x01\x00\x01g\x00\x01u\x00\x00\x00\x00", b"?")]
        nonsense += [(b"\x00\x63future", b"?"), (b"", b"")]
        journal.write(nonsense, server.node.now_ms(), lambda: None, errors.append)

    errors: list[Error] = []
    inside(broker, write_nonsense)
    assert errors == [Error.NONE]
    groups.commit("g", {("t", 1): 6})
    inside(broker, lambda server: give_leadership(server, 0))
    until(lambda: groups.describe("g").error_code == 0)
    assert groups.committed("g", "t", 0, 1) == [5, 6]


def test_many_commits_are_read_back_without_stalling_the_loop(
    broker: Broker, groups: Groups
) -> None:
    def fill(server: Server) -> None:
        journal = held(server, "g").journal
        for start in range(0, 20_000, 500):
            records = [
                (offset_key("g", "t", index % 2), offset_value(CommittedOffset(index, 0, "", 1)))
                for index in range(start, start + 500)
            ]
            journal.write(records, server.node.now_ms(), lambda: None, lambda error: None)

    groups.commit("g", {("t", 0): 5})
    inside(broker, fill)
    turns = 0

    async def count_turns(server: Server) -> int:
        nonlocal turns
        give_leadership(server, 0)
        while server.groups.find("g") is Error.COORDINATOR_LOAD_IN_PROGRESS:
            turns += 1
            await asyncio.sleep(0)
        return turns

    server = broker._server
    assert server is not None
    assert broker._call(count_turns(server)) > 10
    assert groups.committed("g", "t", 0, 1) == [19_998, 19_999]


def test_groups_begin_anew_when_the_topic_of_their_offsets_is_deleted(
    broker: Broker, groups: Groups
) -> None:
    member = groups.stable("g").member_id
    groups.commit("g", {("t", 0): 5}, member=member, generation=1)
    deleted = groups.asker.ask(
        Api.DELETE_TOPICS, topics=[{"name": CONSUMER_OFFSETS.name, "topic_id": None}], timeout=5_000
    )
    assert deleted.responses[0].error_code == 0
    assert groups.heartbeat("g", member, 1) == Error.NOT_COORDINATOR
    assert groups.find("g").error_code == 0
    assert groups.heartbeat("g", member, 1) == Error.UNKNOWN_MEMBER_ID
    assert groups.committed("g", "t", 0) == [-1]
    assert groups.stable("g").generation_id == 1


def test_a_group_whose_deletion_too_few_replicas_could_take_is_still_there(
    broker: Broker, groups: Groups
) -> None:
    groups.commit("g", {("t", 0): 5})
    inside(broker, lambda server: set_in_sync(server, ()))
    (refused,) = groups.asker.ask(Api.DELETE_GROUPS, groups_names=["g"]).results
    assert refused.error_code == Error.COORDINATOR_NOT_AVAILABLE
    assert groups.committed("g", "t", 0) == [5]
    inside(broker, lambda server: set_in_sync(server, (0,)))
    (deleted,) = groups.asker.ask(Api.DELETE_GROUPS, groups_names=["g"]).results
    assert deleted.error_code == 0
    assert groups.committed("g", "t", 0) == [-1]
