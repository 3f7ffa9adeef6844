"""Who leads a partition: every decision on leaders and in-sync replicas that is not the leader's.

Functions over values; each answers the changes that bring the state in order, none where it is. So
they can be asked again after a conflict, and asking twice changes nothing twice.

- A leader is always one of the in-sync replicas, which hold everything that was acknowledged.
- A leader epoch only goes up, by one with each change of leader, to none included.
- The dead are taken out of the in-sync replicas while somebody alive remains there. Where nobody
  does they stay: whoever of them comes back first still holds everything.
- A broker that is about to stop leads only what nobody else can.
- A broker that lost its disk is struck out whoever remains. A partition without any in-sync replica
  has no leader, unless an unclean election is allowed: then it is led by what is left of it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator

from moldau.cluster.changes import PartitionsChanged
from moldau.cluster.state import ClusterState
from moldau.cluster.topics import NO_LEADER, PartitionState, Topic

Brokers = Collection[int]
Decide = Callable[[PartitionState], PartitionState | None]


def eligible(state: ClusterState) -> frozenset[int]:
    """The brokers that may be given more to do: alive, and not about to stop."""
    return frozenset(id for id, info in state.brokers.items() if not info.stopping)


def departed(
    state: ClusterState, broker: int, wiped: bool, alive: Brokers | None = None
) -> list[PartitionsChanged]:
    """What follows from the end of an earlier life of `broker`, before it enters again.

    It leads nothing any more. It is no longer in sync where somebody `alive` is (without that, any
    other that is registered): what it had not flushed may be lost. After a lost disk (`wiped`) it
    is in sync nowhere.
    """
    others = frozenset(state.brokers if alive is None else alive) - {broker}

    def decide(partition: PartitionState) -> PartitionState | None:
        isr = partition.isr
        if broker in isr and (wiped or not others.isdisjoint(isr)):
            isr = without(isr, broker)
        leader = NO_LEADER if partition.leader == broker else partition.leader
        return led(partition, leader, isr)

    return _changes(state.topics.values(), lambda topic: decide)


def elected(
    topics: Iterable[Topic],
    live: Brokers,
    unclean: Callable[[Topic], bool],
    stopping: Brokers = (),
) -> list[PartitionsChanged]:
    """A living leader for each partition that has none, and no dead among the in-sync replicas.

    `unclean` says of which topics a replica may lead that is not in sync. Those of the living that
    are `stopping` are the last to be elected.
    """

    def decide_for(topic: Topic) -> Decide:
        return lambda partition: elect(partition, live, lambda: unclean(topic), stopping)

    return _changes(topics, decide_for)


def elect(
    partition: PartitionState,
    live: Brokers,
    unclean: Callable[[], bool],
    stopping: Brokers = (),
) -> PartitionState | None:
    """The same for one partition; None if it is in order."""
    # Nearly always nothing is to be done, so that is found out first.
    if partition.leader in live and all(member in live for member in partition.isr):
        return None
    isr = tuple(member for member in partition.isr if member in live)
    if partition.leader in isr:
        return led(partition, partition.leader, isr)
    staying = [member for member in isr if member not in stopping]
    leader = first_of(partition.replicas, staying or isr)
    if leader != NO_LEADER:
        return led(partition, leader, isr)
    leader = _last_resort(partition, live) if unclean() else NO_LEADER
    return led(partition, leader, partition.isr if leader == NO_LEADER else (leader,))


def _last_resort(partition: PartitionState, live: Brokers) -> int:
    """Who leads though not in sync. Replicas that are only being made know the least."""
    settled = [member for member in partition.replicas if member not in partition.adding]
    return first_of([*settled, *partition.adding], live)


def preferred(topics: Iterable[Topic], live: Brokers) -> list[PartitionsChanged]:
    """Leadership to the first replica of each partition wherever that is alive and in sync."""
    return _changes(topics, lambda topic: lambda partition: to_preferred(partition, live))


def to_preferred(partition: PartitionState, live: Brokers) -> PartitionState | None:
    """The partition led by its first replica; None where it is, or where that cannot lead."""
    first = partition.replicas[0]
    if partition.leader == first or first not in live or first not in partition.isr:
        return None
    return led(partition, first, partition.isr)


def handed_over(state: ClusterState, broker: int, live: Brokers) -> list[PartitionsChanged]:
    """What a broker that is about to stop gives to others that stay `live` and are in sync.

    It leaves the in-sync replicas too, so that no write waits for it. What only it has, it keeps.
    """
    others = frozenset(live) - {broker}

    def decide(partition: PartitionState) -> PartitionState | None:
        if broker not in partition.isr:
            return None
        isr = without(partition.isr, broker)
        leader = partition.leader
        if leader == broker:
            leader = first_of(partition.replicas, [member for member in isr if member in others])
        if leader not in others:
            return None
        return led(partition, leader, isr)

    return _changes(state.topics.values(), lambda topic: decide)


def led(partition: PartitionState, leader: int, isr: tuple[int, ...]) -> PartitionState | None:
    """The partition with this leader and these in-sync replicas; None if that changes nothing."""
    if leader == partition.leader and isr == partition.isr:
        return None
    epoch = partition.leader_epoch + (leader != partition.leader)
    return PartitionState(
        partition.replicas, isr, leader, epoch, partition.adding, partition.removing
    )


def first_of(order: Iterable[int], members: Brokers) -> int:
    """The first in `order` that is one of `members`; NO_LEADER if none is."""
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
                if (decided := decide(partition)) is not None
            }
            if changed:
                yield PartitionsChanged(topic.name, changed)

    return list(changes())
