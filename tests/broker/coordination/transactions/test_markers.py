"""Markers of a decided transaction: sent until they are written, and by nobody else."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, NamedTuple, cast

import pytest

from moldau.broker.coordination.host import Host
from moldau.broker.coordination.transactions.markers import Marker, Markers, Outcome
from moldau.peer.peers import Peers
from moldau.topic_partition import TopicPartition
from moldau.wire.errors import Error

ONE, OTHER = ("orders", 0), ("orders", 1)
ME = 0


class Led(NamedTuple):
    leader: int


class World:
    """A broker that leads what the test says, and whose markers come out as it says."""

    def __init__(self) -> None:
        self.leaders: dict[TopicPartition, int] = {ONE: ME, OTHER: ME}
        self.brokers = {ME}
        self.outcomes: list[Outcome | Exception] = []
        self.asked: list[tuple[TopicPartition, ...]] = []
        self.is_wanted = True
        self.done = 0
        self.tasks: set[asyncio.Task[None]] = set()

    @property
    def state(self) -> World:
        return self

    def partition(self, topic: str, index: int) -> Led | None:
        leader = self.leaders.get((topic, index))
        return None if leader is None else Led(leader)

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    async def write(self, marker: Marker) -> Outcome:
        self.asked.append(marker.partitions)
        outcome = self.outcomes.pop(0) if self.outcomes else dict.fromkeys((ONE, OTHER), Error.NONE)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def send(self, *partitions: TopicPartition) -> None:
        """Send a marker, and return when nothing is under way any more."""

        def count() -> None:
            self.done += 1

        async def run() -> None:
            markers = Markers(cast(Host, self), ME, cast(Peers, None), self.write)
            markers.send("t", Marker(7, 3, True, 5, 2, partitions), lambda: self.is_wanted, count)
            while self.tasks:
                await asyncio.wait(self.tasks)

        asyncio.run(run())


@pytest.fixture
def world() -> World:
    return World()


def test_it_is_done_once_all_are_written(world: World) -> None:
    world.send(ONE, OTHER)
    assert (world.asked, world.done) == ([(ONE, OTHER)], 1)


def test_a_transaction_without_partitions_is_done_at_once(world: World) -> None:
    world.send()
    assert (world.asked, world.done) == ([], 1)


def test_what_failed_is_tried_again_until_it_is_written(world: World) -> None:
    world.outcomes = [
        {ONE: Error.NONE, OTHER: Error.NOT_ENOUGH_REPLICAS},
        {OTHER: Error.NOT_LEADER_OR_FOLLOWER},
        # Nothing was said about it.
        {},
        ZeroDivisionError(),
        TimeoutError(),
    ]
    world.send(ONE, OTHER)
    assert world.asked == [(ONE, OTHER)] + [(OTHER,)] * 5
    assert world.done == 1


def test_a_partition_that_is_gone_needs_no_marker(world: World) -> None:
    del world.leaders[OTHER]
    world.send(ONE, OTHER)
    assert (world.asked, world.done) == ([(ONE,)], 1)
    del world.leaders[ONE]
    world.send(ONE)
    assert (len(world.asked), world.done) == (1, 2)


@pytest.mark.parametrize(
    "error", [Error.INVALID_PRODUCER_EPOCH, Error.UNSUPPORTED_FOR_MESSAGE_FORMAT]
)
def test_a_partition_that_needs_no_marker_is_not_asked_again(world: World, error: Error) -> None:
    world.outcomes = [{ONE: error}]
    world.send(ONE)
    assert (world.asked, world.done) == ([(ONE,)], 1)


def test_a_later_coordinator_is_left_to_finish(world: World) -> None:
    world.outcomes = [{ONE: Error.TRANSACTION_COORDINATOR_FENCED, OTHER: Error.NONE}]
    world.send(ONE, OTHER)
    assert (len(world.asked), world.done) == (1, 0)


def test_a_coordinator_that_is_one_no_more_completes_nothing(world: World) -> None:
    world.is_wanted = False
    world.send(ONE)
    assert (world.asked, world.done) == ([(ONE,)], 0)
    world.outcomes = [{ONE: Error.NOT_ENOUGH_REPLICAS}]
    world.send(ONE)
    assert (len(world.asked), world.done) == (2, 0)
    del world.leaders[ONE]
    world.send(ONE)
    assert world.done == 0


def test_a_coordinator_that_goes_while_it_pauses_asks_no_more(world: World) -> None:
    checks = [True, False]

    class Going(World):
        @property
        def is_wanted(self) -> bool:
            return checks.pop(0) if checks else False

        @is_wanted.setter
        def is_wanted(self, value: bool) -> None: ...

    going = Going()
    going.outcomes = [{ONE: Error.NOT_ENOUGH_REPLICAS}]
    going.send(ONE)
    assert (going.asked, going.done) == ([(ONE,)], 0)


def test_a_leader_that_is_not_there_is_waited_for() -> None:
    waits: list[int] = []

    class Waiting(World):
        def partition(self, topic: str, index: int) -> Led | None:
            waits.append(index)
            # Another leads from the third look on.
            return Led(3 if len(waits) < 3 else ME)

    waiting = Waiting()
    waiting.send(ONE)
    assert (waiting.asked, waiting.done, len(waits)) == ([(ONE,)], 1, 3)
