"""Scripts about transactions: messages that come late, coordinators that are over, two phases."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from moldau.cluster.state.internal_topics import CONSUMER_OFFSETS
from moldau.wire.apis import Api
from tests.simulation.checks.history import Violation
from tests.simulation.core.world import Node
from tests.simulation.directed.stage import Stage
from tests.simulation.load.transactional import (
    TIMEOUT_MS,
    Fenced,
    GiveUp,
    Transactional,
)

# Time enough for whoever reads to be shown what must not be seen.
_SHOWN_S = 1.5


async def _begun(stage: Stage, dialect: int) -> tuple[Transactional, Node, int, Node]:
    """A producer, its coordinator, and a partition that another broker leads."""
    producer = stage.transactional("directed", dialect)
    await producer.initialize()
    assert producer.coordinator is not None
    coordinator = stage.world.nodes[producer.coordinator]
    return producer, coordinator, *stage.led_elsewhere(coordinator)


async def late_write(stage: Stage) -> None:
    """A write of the first dialect arrives when its transaction has been aborted: it would begin
    one that nobody ends."""
    producer, _, partition, _ = await _begun(stage, 1)
    producer.is_impatient = True
    attempt = producer.begin()
    late = stage.hold_request(Api.PRODUCE)
    with suppress(GiveUp):
        await producer.produce(attempt, partition, [b"late write"])
    await producer.end(attempt, commits=False)
    await stage.until(lambda: stage.decisions.are_carried_out, "it is aborted")
    late.let_go()
    await stage.pause(1.0)


async def late_answer(stage: Stage) -> None:
    """A coordinator says that a transaction is open, and the leader hears it after its end."""
    producer, coordinator, partition, leader = await _begun(stage, 1)
    attempt = producer.begin()
    answer = stage.hold_answer(Api.ADD_PARTITIONS_TO_TXN, source=leader, target=coordinator)
    writing = stage.aside(producer.produce(attempt, partition, [b"verified"]), GiveUp)
    await stage.until(lambda: answer.is_there, "the coordinator was asked")
    await stage.pause(0.2)
    await producer.end(attempt, commits=False)
    await stage.until(lambda: stage.decisions.are_carried_out, "it is aborted")
    answer.let_go()
    await stage.until(lambda: writing.is_done, "the write is answered")


async def _late_marker(stage: Stage, between: int) -> None:
    producer, coordinator, partition, leader = await _begun(stage, 2)
    attempt = producer.begin()
    await producer.produce(attempt, partition, [b"first"])
    marker = stage.mislay_request(Api.WRITE_TXN_MARKERS, source=coordinator, target=leader)
    await producer.end(attempt, commits=True)
    for number in range(between):
        attempt = producer.begin()
        await producer.produce(attempt, partition, [f"between {number}".encode()])
        await producer.end(attempt, commits=True)
    attempt = producer.begin()
    await producer.produce(attempt, partition, [b"last"])
    marker.let_go()
    await stage.pause(_SHOWN_S)
    await producer.end(attempt, commits=False)


async def late_marker(stage: Stage) -> None:
    """A marker comes a second time, when the next transaction is open in its epoch (KIP-1228)."""
    await _late_marker(stage, 0)


async def outdated_marker(stage: Stage) -> None:
    """A marker comes a second time, when a later epoch is at work."""
    await _late_marker(stage, 1)


async def old_coordinator(stage: Stage) -> None:
    """A marker of a former coordinator comes when the next transaction of the first dialect is open
    in the same epoch."""
    producer, coordinator, partition, leader = await _begun(stage, 1)
    attempt = producer.begin()
    await producer.produce(attempt, partition, [b"first"])
    marker = stage.hold_request(
        Api.WRITE_TXN_MARKERS,
        source=coordinator,
        target=leader,
        then=lambda: stage.freeze(coordinator),
    )
    await producer.end(attempt, commits=True)
    attempt = producer.begin()
    await producer.produce(attempt, partition, [b"second"])
    marker.let_go()
    await stage.pause(_SHOWN_S)
    await producer.end(attempt, commits=False)
    stage.thaw(coordinator)


async def silent_producer(stage: Stage) -> None:
    """A producer dies in the midst of a transaction."""
    producer, _, partition, _ = await _begun(stage, 2)
    await producer.produce(producer.begin(), partition, [b"never ended"])


async def interrupted_markers(stage: Stage) -> None:
    """A coordinator dies when it has decided, before any marker is written."""
    producer, coordinator, partition, leader = await _begun(stage, 2)
    attempt = producer.begin()
    await producer.produce(attempt, partition, [b"decided"])
    marker = stage.hold_request(
        Api.WRITE_TXN_MARKERS,
        source=coordinator,
        target=leader,
        then=lambda: stage.kill(coordinator),
    )
    await producer.end(attempt, commits=True)
    await stage.until(lambda: marker.is_there, "a marker was sent")
    await stage.pause(0.5)
    coordinator.start()


async def moved_offsets(stage: Stage) -> None:
    """Another broker comes to coordinate a group while a transaction has offsets of it."""
    copier = stage.copier("copier", 2)
    await copier.initialize()
    attempt = copier.begin()
    await copier.produce(attempt, 0, [b"copied"])
    await copier.commit_offset(3)
    assert copier.group_coordinator is not None
    coordinator = stage.world.nodes[copier.group_coordinator]
    stage.kill(coordinator)
    offsets = CONSUMER_OFFSETS.name
    partitions = range(len(stage.metadata.topics[offsets].partitions))
    await stage.until(
        lambda: all(stage.leader(each, offsets) is not coordinator for each in partitions),
        "others coordinate all groups",
    )
    coordinator.start()
    await copier.end(attempt, commits=True)
    found = await copier.fetch_committed()
    if found != 3:
        raise Violation(f"offset 3 was committed by a transaction, and the group is at {found}")


async def prepared(stage: Stage) -> None:
    """A process dies with a transaction prepared (KIP-939). Another one takes it over and commits
    it; the first wakes up in between, and wants to write more and to abort it."""
    first = stage.transactional("first", 2)
    first.two_phase = {"enable2_pc": True}
    await first.initialize()
    attempt = first.begin()
    await first.produce(attempt, 0, [b"prepared"])
    await asyncio.sleep(2 * TIMEOUT_MS / 1000)
    second = stage.transactional("second", 2)
    second.two_phase = {"enable2_pc": True, "keep_prepared_txn": True}
    await second.initialize()
    try:
        # Where the transaction is open, the leader asks no coordinator about a write.
        await first.produce(first.begin(), 0, [b"late"])
    except (GiveUp, Fenced):
        pass
    else:
        raise Violation("a prepared transaction grew after it had been taken over")
    try:
        await first.end(attempt, commits=False)
    except Fenced:
        pass
    else:
        raise Violation("a prepared transaction was aborted by whom it had been taken from")
    try:
        await second.produce(second.begin(), 1, [b"more"])
    except (GiveUp, Fenced):
        pass
    else:
        raise Violation("a prepared transaction was written to by whoever took it over")
    await second.end(attempt, commits=True)
