"""Retention of offsets and groups: what becomes of them with time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from moldau.broker.server import Broker as Server
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


WEEK_MS = 7 * 24 * 3600 * 1000


def expire(broker: Broker, ahead_ms: int) -> None:
    """Has the coordinator look for what expired as if that much time had passed."""

    async def work(server: Server) -> None:
        real = server.node.now_ms
        server.node.now_ms = lambda: real() + ahead_ms  # type: ignore[method-assign]
        try:
            await server.groups.expire_offsets()
        finally:
            server.node.now_ms = real  # type: ignore[method-assign]

    server = broker._server
    assert server is not None
    broker._call(work(server))


def test_offsets_expire_a_retention_after_the_last_member_left(
    broker: Broker, groups: Groups
) -> None:
    member = groups.stable("g").member_id
    groups.commit("g", {("t", 0): 5}, member=member, generation=1)
    groups.commit("simple", {("t", 0): 6})
    expire(broker, 2 * WEEK_MS)
    assert groups.committed("g", "t", 0) == [5]
    assert groups.committed("simple", "t", 0) == [-1]
    assert groups.describe("simple").group_state == "Dead"
    groups.leave("g", member)
    expire(broker, WEEK_MS - 60_000)
    assert groups.committed("g", "t", 0) == [5]
    expire(broker, WEEK_MS)
    assert groups.committed("g", "t", 0) == [-1]
    assert groups.describe("g").group_state == "Dead"
    broker.stop()
    broker.start()
    with Asker(broker) as asker:
        again = Groups(asker)
        until(lambda: asker.ask(Api.LIST_GROUPS).error_code == 0)
        assert again.committed("g", "t", 0) == [-1]
        assert asker.ask(Api.LIST_GROUPS).groups == ()


def test_an_offset_with_a_retention_of_its_own_expires_by_that(
    broker: Broker, groups: Groups
) -> None:
    groups.commit("g", {("t", 0): 5}, 2, retention_time=1_000)
    groups.commit("g", {("t", 1): 6}, 2)
    expire(broker, 2_000)
    assert groups.committed("g", "t", 0, 1) == [-1, 6]


def test_a_share_group_without_members_stays_until_it_is_deleted(
    broker: Broker, groups: Groups
) -> None:
    ask = groups.asker.ask
    beat: dict[str, Any] = {"group_id": "g", "member_id": "m", "subscribed_topic_names": ["t"]}
    for epoch in (0, -1):
        assert not ask(Api.SHARE_GROUP_HEARTBEAT, **beat, member_epoch=epoch).error_code
    start = {"topic_name": "t", "partitions": [{"partition_index": 0, "start_offset": 0}]}

    def alter() -> int:
        answer = ask(Api.ALTER_SHARE_GROUP_OFFSETS, group_id="g", topics=[start])
        return int(answer.error_code or answer.responses[0].partitions[0].error_code)

    assert alter() == Error.NONE
    expire(broker, 2 * WEEK_MS)
    assert [each.group_id for each in ask(Api.LIST_GROUPS).groups] == ["g"]
    described = ask(Api.SHARE_GROUP_DESCRIBE, group_ids=["g"]).groups[0]
    assert (described.error_code, described.group_state) == (Error.NONE, "Empty")
    assert alter() == Error.NONE, "the group's epochs have begun anew"
    assert not ask(Api.DELETE_GROUPS, groups_names=["g"]).results[0].error_code
    assert ask(Api.LIST_GROUPS).groups == ()


def test_nothing_is_left_of_a_group_that_nobody_ever_joined(broker: Broker, groups: Groups) -> None:
    for number in range(50):
        name = f"tried-{number}"
        assert groups.join(name, session_ms=150).error_code == Error.MEMBER_ID_REQUIRED
    until(lambda: groups.asker.ask(Api.LIST_GROUPS).groups == ())


def test_offsets_and_members_outlive_the_compaction_of_their_topic() -> None:
    settings: dict[str, int | float] = {
        "offsets.topic.segment.bytes": 20_000,
        "log.cleaner.backoff.ms": 50,
        "log.cleaner.min.cleanable.ratio": 0.1,
    }

    def size(server: Server) -> int:
        return offsets_partition(server).log.segments.size

    with Broker(settings) as broker:
        broker.create_topic("t", partitions=2)
        with Asker(broker) as asker:
            groups = Groups(asker)
            groups.find("g")
            member = groups.stable("g").member_id
            for offset in range(1_000):
                groups.commit("g", {("t", offset % 2): offset}, member=member, generation=1)
        until(lambda: inside(broker, size) < 40_000, "the compaction")
        broker.stop()
        broker.start()
        with Asker(broker) as asker:
            groups = Groups(asker)
            until(lambda: groups.describe("g").error_code == 0)
            assert groups.heartbeat("g", member, 1) == 0
            assert groups.committed("g", "t", 0, 1) == [998, 999]
