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
from tests.simulation.scenario.scenario import TRANSACTIONAL

# For how long an unused transactional id is kept, where that matters.
KEPT_MS = 2000
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


async def half_marked(stage: Stage) -> None:
    """A write of the first dialect arrives when its partition is marked, and another one of the
    transaction is not yet: it would begin one that nobody ends."""
    producer, coordinator, marked_last, leader = await _begun(stage, 1)
    partition = 1 - marked_last
    producer.is_impatient = True
    attempt = producer.begin()
    await producer.produce(attempt, marked_last, [b"first"])
    late = stage.hold_request(Api.PRODUCE)
    with suppress(GiveUp):
        await producer.produce(attempt, partition, [b"late write"])
    marker = stage.hold_request(Api.WRITE_TXN_MARKERS, source=coordinator, target=leader)
    log = stage.log(stage.leader(partition, TRANSACTIONAL), partition, TRANSACTIONAL)
    before = log.log_end
    await producer.end(attempt, commits=False)
    await stage.until(lambda: log.log_end > before, "one partition is marked")
    assert marker.is_there, "all partitions are marked"
    late.let_go()
    await stage.pause(1.0)
    marker.let_go()


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


async def _mark_alone(stage: Stage) -> tuple[Node, list[Node]]:
    """Have a transaction ended whose marker only the leader of its partition has; return it, and
    its followers."""
    producer, _, partition, leader = await _begun(stage, 2)
    attempt = producer.begin()
    await producer.produce(attempt, partition, [b"decided"])
    # What is committed so far is in the checkpoint then.
    await asyncio.sleep(2.0)
    end = stage.log(leader, partition, TRANSACTIONAL).log_end
    followers = [node for node in stage.replicas(partition, TRANSACTIONAL) if node is not leader]
    held = [stage.hold_request(Api.FETCH, source=node, target=leader) for node in followers]
    await stage.until(lambda: all(each.is_there for each in held), "nobody follows")
    await producer.end(attempt, commits=True)
    await stage.until(
        lambda: stage.log(leader, partition, TRANSACTIONAL).log_end > end, "it is marked"
    )
    await stage.pause(0.1)
    return leader, followers


async def lost_marker(stage: Stage) -> None:
    """A leader dies when it has written a marker that no follower has."""
    leader, _ = await _mark_alone(stage)
    stage.kill(leader)
    await stage.pause(4.0)
    leader.start()


async def restarted_leader(stage: Stage) -> None:
    """A leader has written a marker that no follower has, and stops when they are dead: the marker
    may still be lost with it when it leads again."""
    leader, followers = await _mark_alone(stage)
    for node in followers:
        stage.kill(node)
    await stage.pause(1.0)
    process = leader.process
    assert process is not None
    stage.world.spawn(process, leader.stop())
    await stage.until(lambda: leader.process is not process, f"{leader.name} has stopped")
    leader.start()
    await stage.until(lambda: leader.is_serving, f"{leader.name} is back")
    await stage.pause(1.0)
    for node in followers:
        node.start()


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


async def late_offset(stage: Stage) -> None:
    """An offset of the first dialect arrives once more when its transaction has been aborted: it
    would keep the group waiting for the end of one that nobody ends."""
    copier = stage.copier("copier", 1)
    await copier.initialize()
    attempt = copier.begin()
    late = stage.mislay_request(Api.TXN_OFFSET_COMMIT)
    await copier.commit_offset(3)
    await copier.end(attempt, commits=False)
    await stage.until(lambda: stage.decisions.are_carried_out, "it is aborted")
    late.let_go()
    await stage.pause(1.0)
    found = await copier.fetch_committed()
    if found:
        raise Violation(f"no offset was committed, and the group is at {found}")


async def open_offset(stage: Stage) -> None:
    """Somebody asks how far a group has got while a transaction has a later offset of it."""
    copier, heir = stage.copier("copier", 2), stage.copier("heir", 2)
    await copier.initialize()
    attempt = copier.begin()
    await copier.commit_offset(3)
    asking = stage.aside(heir.fetch_committed())
    await stage.pause(1.0)
    await copier.end(attempt, commits=True)
    await stage.until(lambda: asking.is_done, "somebody knows how far the group has got")
    if asking.result != 3:
        raise Violation(f"the group is at 3 or nobody knows, and was said to be at {asking.result}")


async def old_rival(stage: Stage) -> None:
    """Whoever was fenced by another process with its transactional id wants to go on (KIP-360)
    while the other one has a transaction open."""
    first, second = stage.transactional("first", 2), stage.transactional("second", 2)
    await first.initialize()
    await second.initialize()
    attempt = second.begin()
    await second.produce(attempt, 0, [b"open"])
    try:
        await first.initialize()
    except Fenced:
        pass
    else:
        raise Violation("a producer that was fenced goes on")
    try:
        await second.end(attempt, commits=True)
    except Fenced:
        raise Violation("a producer that was fenced has aborted another's transaction") from None


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


async def expired_id(stage: Stage) -> None:
    """A producer has not used its transactional id for so long that the id is forgotten. Another
    one gets it anew, in the first epoch of another producer id, and the former one wants to go on
    (KIP-360)."""
    first, second = stage.transactional("first", 2), stage.transactional("second", 2)
    await first.initialize()
    await stage.until(lambda: not stage.decisions.latest, "the transactional id is forgotten")
    await second.initialize()
    assert first.identity.producer_id != second.identity.producer_id
    assert first.identity.epoch == second.identity.epoch
    attempt = second.begin()
    await second.produce(attempt, 0, [b"of the second"])
    await second.end(attempt, commits=True)
    try:
        await first.initialize()
    except Fenced:
        return
    raise Violation("a producer goes on whose transactional id belongs to another by now")


async def prepared_for_long(stage: Stage) -> None:
    """A transaction stays prepared for longer than a transactional id is kept that nobody uses."""
    producer = stage.transactional("directed", 2)
    producer.two_phase = {"enable2_pc": True}
    await producer.initialize()
    attempt = producer.begin()
    await producer.produce(attempt, 0, [b"prepared"])
    await asyncio.sleep(2 * KEPT_MS / 1000)
    try:
        await producer.end(attempt, commits=True)
    except Fenced:
        raise Violation("a transactional id was forgotten that has a transaction open") from None
