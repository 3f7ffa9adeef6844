"""Elections: all decisions about leaders and in-sync replicas that the leader does not make itself.

Functions over values; each answers the changes that bring the state in order, none where it is. So
they can be asked again after a conflict, and asking twice changes nothing twice.

- A leader is one of the in-sync replicas, which hold everything that was acknowledged.
- A leader epoch only goes up, by one with each change of leader, to none included.
- The dead are taken out of the in-sync replicas while somebody leads. Whoever leaves while fewer
  than the minimum stay is an eligible leader replica from then on (KIP-966): the high watermark
  stands still until enough are in sync again, so he has everything that is committed. Where nobody
  in sync is alive, one of those leads.
- Where nobody leads the dead stay in sync: whoever of them comes back first still holds everything,
  and brokers that know nothing of eligible replicas see that too.
- A broker that comes back after it lost something is neither in sync nor eligible. Where nobody
  else is, the last leader leads, with what it has left; if it is not known, the last that was.
- A broker that lost what it had of a partition does not lead it before it is put back, unless an
  unclean election is allowed; and then the others come first.
- A broker that is about to stop leads only what nobody else can.

`minimum` is always the topic's min.insync.replicas; 0 if a broker is there that knows nothing of
eligible replicas. Then there are none. Where nobody leads, those who are away count as in sync
instead, and the last one does so whatever end of its log it lost, as it was before.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from enum import IntEnum
from typing import NamedTuple

import msgspec

from moldau.cluster.state.changes import PartitionsChanged
from moldau.cluster.state.state import ClusterState
from moldau.cluster.state.topics import NO_LEADER, PartitionState, Topic, minimum_isr

Brokers = Collection[int]
Decide = Callable[[int, PartitionState], PartitionState | None]
Minimum = Callable[[Topic], int]


class Loss(IntEnum):
    """The losses of a replica since it was last part of the cluster."""

    NONE = 0
    # Data that was not forced to disk may be gone, as after a power failure.
    TAIL = 1
    # It was there and is not, or less of it is there than was.
    ALL = 2


class Held(NamedTuple):
    """A returning broker's log of a partition: where it ends, and where it ended before."""

    loss: Loss
    end: int = 0
    # Known only of a log that ends sooner than it did.
    had: int = -1
    # Whether the broker that held it knew the rules of eligible replicas. One that did not may have
    # lost data without giving up its place among them.
    kept_elr: bool = True


Holdings = Callable[[Topic, int], Held]


def no_minimum(topic: Topic) -> int:
    return 0


def knows_elr(state: ClusterState) -> bool:
    """Return whether all brokers keep to the rules by which there are eligible leader replicas."""
    return all(info.keeps_elr for info in state.brokers.values())


def eligible(state: ClusterState) -> frozenset[int]:
    """Return the brokers that may be given more to do: alive, and not about to stop."""
    return frozenset(id for id, info in state.brokers.items() if not info.stopping)


def departed(
    state: ClusterState,
    broker: int,
    holdings: Holdings,
    alive: Brokers | None = None,
    minimum: Minimum = no_minimum,
) -> list[PartitionsChanged]:
    """Decide what follows from the end of an earlier life of `broker`, before it joins again.

    It leads nothing any more. It is no longer in sync where somebody `alive` is (without that, any
    other that is registered), nor where it lost something.
    """
    others = frozenset(state.brokers if alive is None else alive) - {broker}

    def decide_for(topic: Topic) -> Decide:
        least = minimum(topic)

        def decide(index: int, partition: PartitionState) -> PartitionState | None:
            if broker not in partition.replicas:
                return None
            held, before = holdings(topic, index), partition
            if held.loss or not held.kept_elr:
                before = msgspec.structs.replace(before, elr=without(before.elr, broker))
            if not least:
                before = _without_elr(before, others)
            isr = before.isr
            if broker in isr and (held.loss or not others.isdisjoint(isr)):
                isr = without(isr, broker)
                if not least and held.loss is Loss.TAIL:
                    isr = isr or (broker,)
            leader = NO_LEADER if before.leader == broker else before.leader
            after = led(before, leader, isr, least) or before
            counted = partition.isr + (partition.elr if held.kept_elr else ())
            after = _after_loss(after, broker, held, is_last=broker in counted)
            return None if after == partition else after

        return decide

    return _changes(state.topics.values(), decide_for)


def _without_elr(partition: PartitionState, live: Brokers) -> PartitionState:
    """Return the partition as brokers see it that know of no eligible replicas.

    Who is away and was eligible, while nobody leads, is as good as in sync.
    """
    isr, elr = partition.isr, partition.elr
    if elr and partition.leader not in live:
        away = [member for member in elr if member not in live]
        isr = tuple(member for member in partition.replicas if member in isr or member in away)
    return msgspec.structs.replace(partition, isr=isr, elr=()) if elr else partition


def _after_loss(
    partition: PartitionState, broker: int, held: Held, *, is_last: bool
) -> PartitionState:
    """`is_last` says that it was in sync or eligible, and so the last one if nobody else is."""
    known, lost = partition.last_known_elr, dict(partition.lost)
    is_led = partition.leader != NO_LEADER
    elr = without(partition.elr, broker) if held.loss else partition.elr
    has_others = bool(partition.isr or elr or known)
    if held.loss is Loss.ALL:
        known = without(known, broker)
        lost[broker] = -1 if is_led else max(held.had, lost.get(broker, -1))
    elif not is_led and held.end >= lost.get(broker, held.end + 1) >= 0:
        # Somebody has put back what was missing. Nobody else can lead if this one was the last.
        del lost[broker]
        known = known if has_others else (broker,)
    elif held.loss and is_last and not (has_others or lost):
        # Written by a broker that names no last leader.
        known = (broker,)
    return msgspec.structs.replace(
        partition, elr=elr, last_known_elr=known, lost=tuple(sorted(lost.items()))
    )


def elect(
    partition: PartitionState,
    live: Brokers,
    unclean: Callable[[], bool],
    stopping: Brokers = (),
    minimum: int = 0,
) -> PartitionState | None:
    """Give a partition a living leader, and put the dead out of its in-sync replicas; None if it is
    in order.

    `unclean` says whether a replica may lead that is not in sync. Those of the living that are
    `stopping` are the last to be elected.
    """
    # Nearly always nothing is to be done, so that is found out first.
    if (
        partition.leader in live
        and (minimum or not partition.elr)
        and all(member in live for member in partition.isr)
    ):
        return None
    if minimum:
        return _elect(partition, live, unclean, stopping, minimum)
    before = _without_elr(partition, live)
    after = _elect(before, live, unclean, stopping, 0) or before
    return None if after == partition else after


def _elect(
    partition: PartitionState,
    live: Brokers,
    unclean: Callable[[], bool],
    stopping: Brokers,
    minimum: int,
) -> PartitionState | None:
    isr = tuple(member for member in partition.isr if member in live)
    if partition.leader in isr:
        return led(partition, partition.leader, isr, minimum)
    leader = _first_staying(partition.replicas, isr, stopping)
    if leader != NO_LEADER:
        return led(partition, leader, isr, minimum)
    ready = [member for member in partition.elr if member in live]
    leader = _first_staying(partition.replicas, ready, stopping)
    if leader != NO_LEADER:
        return led(partition, leader, (leader,), minimum)
    # No other replica has more: all that were in sync or eligible came back with less.
    if not partition.isr and not partition.elr:
        leader = first_of(partition.last_known_elr, live)
    if leader == NO_LEADER and unclean():
        leader = _last_resort(partition, live)
    if leader == NO_LEADER:
        return led(partition, leader, partition.isr, minimum)
    # Without a minimum: an eligible replica may have more than this one, but no longer counts.
    return led(partition, leader, (leader,))


def _first_staying(order: Iterable[int], members: Brokers, stopping: Brokers) -> int:
    staying = [member for member in members if member not in stopping]
    return first_of(order, staying or members)


def _last_resort(partition: PartitionState, live: Brokers) -> int:
    """Return who leads though not in sync. Replicas that are only being made know the least, and
    those that lost everything know nothing."""
    settled = [member for member in partition.replicas if member not in partition.adding]
    lost = dict(partition.lost)
    order = [member for member in (*settled, *partition.adding) if member not in lost]
    return first_of([*partition.last_known_elr, *order, *lost], live)


def to_preferred(
    partition: PartitionState, live: Brokers, minimum: int = 0
) -> PartitionState | None:
    """Return the partition led by its first replica; None where it is, or where that
    cannot lead."""
    first = partition.replicas[0]
    if partition.leader == first or first not in live or first not in partition.isr:
        return None
    return led(partition, first, partition.isr, minimum)


def handed_over(
    state: ClusterState, broker: int, live: Brokers, minimum: Minimum = no_minimum
) -> list[PartitionsChanged]:
    """Decide what a stopping broker hands over to in-sync replicas that stay `live`.

    It leaves the in-sync replicas too, so that no write waits for it. What only it has, it keeps.
    """
    others = frozenset(live) - {broker}

    def decide_for(topic: Topic) -> Decide:
        least = minimum(topic)

        def decide(_: int, partition: PartitionState) -> PartitionState | None:
            if broker not in partition.isr:
                return None
            isr = without(partition.isr, broker)
            leader = partition.leader
            if leader == broker:
                heirs = [member for member in isr if member in others]
                leader = first_of(partition.replicas, heirs)
            if leader not in others:
                return None
            return led(partition, leader, isr, least)

        return decide

    return _changes(state.topics.values(), decide_for)


def led(
    partition: PartitionState, leader: int, isr: tuple[int, ...], minimum: int = 0
) -> PartitionState | None:
    """Return the partition with this leader and these in-sync replicas; None if that changes
    nothing."""
    if leader == partition.leader and isr == partition.isr:
        return None
    return in_sync_with(partition, leader, isr, minimum)


def in_sync_with(
    partition: PartitionState, leader: int, isr: tuple[int, ...], minimum: int
) -> PartitionState:
    """Return the same, also if that changes nothing; who is eligible follows.

    With enough in sync the high watermark may move again, and those who are not in sync are left
    behind. It moves only where there is a leader.
    """
    elr = partition.elr
    if len(isr) < minimum_isr(minimum, partition.replicas, partition.adding):
        elr = (*elr, *partition.isr)
    elif leader != NO_LEADER:
        elr = ()
    known, lost = partition.last_known_elr, partition.lost
    if leader != NO_LEADER:
        known = ()
    elif partition.leader != NO_LEADER:
        known = (partition.leader,)
    if leader != NO_LEADER or partition.leader != NO_LEADER:
        # They may copy from the leader, and then are as long as they were, with less than it has.
        lost = tuple((member, -1) for member, _ in lost)
    return msgspec.structs.replace(
        partition,
        isr=isr,
        leader=leader,
        leader_epoch=partition.leader_epoch + (leader != partition.leader),
        elr=tuple(member for member in partition.replicas if member in elr and member not in isr),
        last_known_elr=known,
        lost=tuple(each for each in lost if each[0] not in isr),
    )


def first_of(order: Iterable[int], members: Brokers) -> int:
    """Return the first in `order` that is one of `members`; NO_LEADER if none is."""
    return next((member for member in order if member in members), NO_LEADER)


def without(members: Iterable[int], broker: int) -> tuple[int, ...]:
    return tuple(member for member in members if member != broker)


def _changes(
    topics: Iterable[Topic], decide_for: Callable[[Topic], Decide]
) -> list[PartitionsChanged]:
    def changes() -> Iterator[PartitionsChanged]:
        for topic in topics:
            decide = decide_for(topic)
            changed = {
                index: decided
                for index, partition in enumerate(topic.partitions)
                if (decided := decide(index, partition)) is not None
            }
            if changed:
                yield PartitionsChanged(topic.name, changed)

    return list(changes())
