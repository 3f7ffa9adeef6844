"""The share coordinator: fenced by two epochs, read back from snapshots and updates."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator
from typing import Any
from uuid import UUID

import pytest

from moldau.broker.coordination.share.batches import StateBatch
from moldau.broker.coordination.share.coordinator import Found, Refused, ShareCoordinator
from moldau.broker.coordination.share.state import ShareKey, Update
from moldau.broker.partitions.partition import Partition
from moldau.broker.server import Broker as Server
from moldau.cluster.decisions.assignment import NewTopic
from moldau.cluster.state.internal_topics import SHARE_GROUP_STATE
from moldau.cluster.state.topics import PartitionState
from moldau.testing import Broker
from moldau.testing.waiting import until_async
from moldau.wire.errors import Error

NAME = SHARE_GROUP_STATE.name
UPDATES_PER_SNAPSHOT = 4


class States:
    """The share coordinator of a real broker; roles are given by hand, as the controller would."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.coordinator: ShareCoordinator = server.shares.states
        self.key = ShareKey("g", server.state.topics["jobs"].id, 0)

    @property
    def partition(self) -> Partition:
        return self.server.partitions[NAME, 0]

    async def write(self, start: int, *batches: StateBatch, epoch: int = 1) -> Refused | None:
        update = Update(epoch, start, 0, batches)
        return await self.coordinator.write(self.key, 0, update)

    def give(self, leader: int, isr: tuple[int, ...] = (0,)) -> None:
        partition = self.partition
        epoch = partition.leader_epoch + 1
        partition.become(PartitionState(tuple({0, *isr}), isr, leader, epoch))
        self.coordinator.partition_changed(partition)
        partition.wake()

    async def move(self) -> None:
        """Lead no more, and then again: everything is read back."""
        self.give(1)
        self.give(0)
        await until_async(lambda: not self.coordinator.shards.is_loading, "it is read back")

    async def read(self, epoch: int = 1) -> Found:
        found = await self.coordinator.read(self.key, epoch)
        assert isinstance(found, Found), found
        return found


Story = Callable[[States], Coroutine[Any, Any, None]]
Tell = Callable[[Story], None]


@pytest.fixture
def tell() -> Iterator[Tell]:
    settings = {
        "share.coordinator.state.topic.num.partitions": "1",
        "share.coordinator.snapshot.update.records.per.snapshot": str(UPDATES_PER_SNAPSHOT),
    }
    with Broker(settings=settings) as broker:
        server = broker._server
        assert server is not None

        async def play(story: Story) -> None:
            await server.controller.ensure_topics([NewTopic("jobs", 2, 1)])
            assert await server.shares.states.shards.ensure_topic() is None
            await story(States(server))

        yield lambda story: broker._call(play(story))


def refused(outcome: object) -> Error:
    assert isinstance(outcome, Refused), outcome
    return outcome.error


def test_the_topic_keeps_all_that_its_owner_does_not_delete(tell: Tell) -> None:
    async def story(states: States) -> None:
        configs = states.server.state.topics[NAME].configs
        assert configs["cleanup.policy"] == "delete"
        assert configs["retention.ms"] == configs["retention.bytes"] == "-1"
        assert configs["unclean.leader.election.enable"] == "false"

    tell(story)


def test_a_state_goes_on_from_snapshots_and_updates_after_a_move(tell: Tell) -> None:
    async def story(states: States) -> None:
        coordinator = states.coordinator
        assert await coordinator.initialize(states.key, 0, -1) is None
        assert (await states.read()).start == -1
        # More than fit between two snapshots, so that the log has several.
        for number in range(3 * UPDATES_PER_SNAPSHOT):
            written = await states.write(number, StateBatch(number + 2, number + 4, 2, 1))
            assert written is None
            before = await states.read()
            await states.move()
            assert await states.read() == before
        last = 3 * UPDATES_PER_SNAPSHOT - 1
        assert before.start == last
        assert before.batches == (StateBatch(last, last + 4, 2, 1),)

    tell(story)


def test_a_later_leader_fences_earlier_ones(tell: Tell) -> None:
    async def story(states: States) -> None:
        assert await states.coordinator.initialize(states.key, 0, 0) is None
        await states.read(5)
        assert refused(await states.write(3, epoch=4)) is Error.FENCED_LEADER_EPOCH
        assert refused(await states.coordinator.read(states.key, 4)) is Error.FENCED_LEADER_EPOCH
        await states.move()
        assert refused(await states.write(3, epoch=4)) is Error.FENCED_LEADER_EPOCH
        assert await states.write(3, epoch=5) is None

    tell(story)


def test_a_group_that_begins_anew_fences_what_was_before(tell: Tell) -> None:
    async def story(states: States) -> None:
        coordinator, key = states.coordinator, states.key
        assert await coordinator.initialize(key, 3, 10) is None
        assert (
            await coordinator.write(key, 3, Update(0, 12, 0, (StateBatch(13, 14, 2, 1),))) is None
        )
        assert await coordinator.initialize(key, 7, 5) is None
        stale = Update(0, 20, 0)
        assert refused(await coordinator.write(key, 3, stale)) is Error.FENCED_STATE_EPOCH
        assert refused(await coordinator.initialize(key, 6, 0)) is Error.FENCED_STATE_EPOCH
        await states.move()
        found = await states.read()
        assert (found.state_epoch, found.start, found.batches) == (7, 5, ())

    tell(story)


def test_what_is_not_there_is_refused(tell: Tell) -> None:
    async def story(states: States) -> None:
        coordinator, key = states.coordinator, states.key
        assert refused(await coordinator.read(key, 0)) is Error.INVALID_REQUEST
        assert refused(await states.write(0)) is Error.INVALID_REQUEST
        negative = key._replace(partition=-1)
        assert refused(await coordinator.initialize(negative, 0, 0)) is Error.INVALID_REQUEST
        for unknown in (key._replace(partition=2), key._replace(topic_id=UUID(int=9))):
            outcome = await coordinator.initialize(unknown, 0, 0)
            assert refused(outcome) is Error.UNKNOWN_TOPIC_OR_PARTITION
        assert await coordinator.delete(key) is None
        summary = coordinator.summary(key)
        assert summary == Found(0, 0, -1, -1, ())

    tell(story)


def test_a_deleted_state_is_gone_after_a_move(tell: Tell) -> None:
    async def story(states: States) -> None:
        assert await states.coordinator.initialize(states.key, 0, 0) is None
        assert await states.coordinator.delete(states.key) is None
        await states.move()
        assert refused(await states.coordinator.read(states.key, 0)) is Error.INVALID_REQUEST

    tell(story)


def test_what_no_snapshot_needs_is_deleted_and_nothing_else(tell: Tell) -> None:
    async def story(states: States) -> None:
        coordinator, log = states.coordinator, states.partition.log
        cold = states.key._replace(partition=1)
        assert await coordinator.initialize(cold, 0, 77) is None
        assert await coordinator.initialize(states.key, 0, 0) is None
        for number in range(20):
            assert await states.write(number) is None
        coordinator.prune()
        # The cold state was rewritten only if it is old.
        assert log.log_start == 0
        (held,) = list(coordinator.shards)
        held.by_key[cold].written_ms = 0
        coordinator.prune()
        assert log.log_start > 10
        await states.move()
        assert (await states.read()).start == 19
        summary = coordinator.summary(cold)
        assert isinstance(summary, Found)
        assert summary.start == 77

    tell(story)


def test_a_snapshot_that_replicas_lack_does_not_cost_the_one_before(tell: Tell) -> None:
    """If this broker dies now, the next leader has only what was there before the new snapshot."""

    async def story(states: States) -> None:
        coordinator, log = states.coordinator, states.partition.log
        assert await coordinator.initialize(states.key, 0, 0) is None
        for number in range(UPDATES_PER_SNAPSHOT):
            assert await states.write(number) is None
        states.give(0, (0, 1))
        await until_async(lambda: not coordinator.shards.is_loading, "it is read back")
        (held,) = list(coordinator.shards)
        outcomes: list[Error] = []
        held.update(states.key, Update(1, 50, 0), 0, outcomes.append)
        assert outcomes == []
        assert held.by_key[states.key].start == 50
        assert log.high_watermark < log.log_end
        coordinator.prune()
        assert log.log_start == 0
        states.give(0, (0,))
        await until_async(lambda: not coordinator.shards.is_loading, "it is read back")
        coordinator.prune()
        assert log.log_start > 0

    tell(story)


def test_a_leader_that_slept_does_not_begin_a_state_again_that_has_gone_on(tell: Tell) -> None:
    """It found none, and another leads by now: the group would leave out what it has not read."""

    async def story(states: States) -> None:
        coordinator, key = states.coordinator, states.key
        assert refused(await coordinator.read(key, 1)) is Error.INVALID_REQUEST
        assert await coordinator.initialize(key, 0, -1) is None
        assert (await states.read(2)).start == -1
        assert await states.write(7, StateBatch(9, 10, 2, 1), epoch=2) is None
        assert await coordinator.initialize(key, 0, -1) is None
        for _ in range(2):
            found = await states.read(2)
            assert (found.start, found.batches) == (7, (StateBatch(9, 10, 2, 1),))
            assert refused(await states.write(8, epoch=1)) is Error.FENCED_LEADER_EPOCH
            await states.move()
        # Who sets offsets anew means it.
        assert await coordinator.initialize(key, 0, 3) is None
        assert (await states.read(2)).start == 3

    tell(story)
