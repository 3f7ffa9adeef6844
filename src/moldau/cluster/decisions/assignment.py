"""The partitions of a new topic, and a topic's additional ones, as somebody asked for them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from moldau.cluster.decisions.placement import Replicas, broker_order, place
from moldau.cluster.errors import ClusterError
from moldau.cluster.state.topics import NO_LEADER, BrokerInfo, PartitionState, Topic
from moldau.wire.errors import Error

MAX_PARTITIONS_PER_REQUEST = 10_000
USE_DEFAULT = -1

Brokers = Mapping[int, BrokerInfo]
Partitions = tuple[PartitionState, ...]


class NewTopic(msgspec.Struct, frozen=True):
    """A topic that somebody wants. -1 asks for the default; `assignments` replaces both numbers."""

    name: str
    partitions: int = USE_DEFAULT
    replication_factor: int = USE_DEFAULT
    assignments: Sequence[tuple[int, Replicas]] = ()
    configs: Mapping[str, str | None] = msgspec.field(default_factory=dict)


class NewPartitions(msgspec.Struct, frozen=True):
    """A request for more partitions: the new total, and who holds the additional ones."""

    name: str
    total: int
    assignments: Sequence[Replicas] | None = None


def check_room(partitions: int, room: int) -> None:
    """Refuse what would take one request over its limit, before anything is built."""
    if partitions > room:
        raise ClusterError(
            Error.POLICY_VIOLATION,
            "Excessively large number of partitions per request:"
            f" at most {MAX_PARTITIONS_PER_REQUEST} can be created at once.",
        )


def check_brokers_have_room(
    partitions: Partitions, counts: Counter[int], max_broker_partitions: int
) -> None:
    """Refuse what would give a broker more replicas than it may hold; else count them in."""
    added = Counter(broker for partition in partitions for broker in partition.replicas)
    for broker, count in added.items():
        if counts[broker] + count > max_broker_partitions:
            raise ClusterError(
                Error.POLICY_VIOLATION,
                f"Broker {broker} has {counts[broker]} partitions and would get {count} more, "
                f"but max.broker.partitions is {max_broker_partitions}. Delete unused topics, "
                "add brokers, or raise this setting.",
            )
    counts += added


def assigned_partitions(request: NewTopic, brokers: Brokers) -> Partitions:
    """Return the partitions of a topic whose replicas were named by hand."""
    for what, number in (
        ("replication factor", request.replication_factor),
        ("numPartitions", request.partitions),
    ):
        if number != USE_DEFAULT:
            raise ClusterError(
                Error.INVALID_REQUEST,
                f"A manual partition assignment was specified, but {what} was not set to -1.",
            )
    by_index: dict[int, Replicas] = {}
    factor: int | None = None
    for index, replicas in request.assignments:
        if index in by_index:
            raise ClusterError(
                Error.INVALID_REPLICA_ASSIGNMENT,
                f"Found multiple manual partition assignments for partition {index}",
            )
        check_replicas(replicas, brokers, factor)
        factor = len(replicas)
        by_index[index] = replicas
    if any(index not in by_index for index in range(len(by_index))):
        raise ClusterError(
            Error.INVALID_REPLICA_ASSIGNMENT,
            "partitions should be a consecutive 0-based integer sequence",
        )
    return _states((by_index[index] for index in range(len(by_index))), brokers)


def placed_partitions(count: int, factor: int, brokers: Brokers, start: int) -> Partitions:
    """`count` partitions with `factor` replicas, spread evenly; see `placement.place`."""
    order = broker_order(brokers.values())
    if factor > len(order):
        raise ClusterError(
            Error.INVALID_REPLICATION_FACTOR,
            f"Unable to replicate the partition {factor} time(s): The target replication factor"
            f" of {factor} cannot be reached because only {len(order)} broker(s) are registered.",
        )
    return _states(place(order, count, factor, start), brokers)


def check_counts(request: NewTopic) -> None:
    """Refuse numbers that are neither positive nor the -1 that asks for the default."""
    if request.replication_factor < USE_DEFAULT or request.replication_factor == 0:
        raise ClusterError(
            Error.INVALID_REPLICATION_FACTOR,
            "Replication factor must be larger than 0, or -1 to use the default value.",
        )
    if request.partitions < USE_DEFAULT or request.partitions == 0:
        raise ClusterError(
            Error.INVALID_PARTITIONS,
            "Number of partitions was set to an invalid non-positive value.",
        )


def additional_partitions(
    topic: Topic, request: NewPartitions, brokers: Brokers, room: int
) -> Partitions:
    """Return the partitions that `topic` should have and lacks."""
    present = len(topic.partitions)
    if request.total == present:
        raise ClusterError(Error.INVALID_PARTITIONS, f"Topic already has {present} partition(s).")
    if request.total < present:
        raise ClusterError(
            Error.INVALID_PARTITIONS,
            f"The topic {topic.name} currently has {present} partition(s);"
            f" {request.total} would not be an increase.",
        )
    additional = request.total - present
    check_room(additional, room)
    if request.assignments is None:
        start = _position(topic.partitions[0].replicas[0], brokers) + present
        return placed_partitions(additional, topic.replication_factor, brokers, start)
    if len(request.assignments) != additional:
        raise ClusterError(
            Error.INVALID_REPLICA_ASSIGNMENT,
            f"Attempted to add {additional} additional partition(s), but only"
            f" {len(request.assignments)} assignment(s) were specified.",
        )
    for replicas in request.assignments:
        check_replicas(replicas, brokers, topic.replication_factor)
    return _states(request.assignments, brokers)


def _position(broker: int, brokers: Brokers) -> int:
    """Return where a topic's first leader stands, so that its leaders go on round from there."""
    order = [each.id for each in broker_order(brokers.values())]
    return order.index(broker) if broker in order else 0


def _states(assigned: Iterable[Replicas], brokers: Brokers) -> Partitions:
    # Most partitions of a topic look alike, and equal ones can be one object.
    states: dict[Replicas, PartitionState] = {}
    for_all = []
    for replicas in assigned:
        state = states.get(replicas)
        if state is None:
            in_sync = tuple(broker for broker in replicas if broker in brokers)
            leader = in_sync[0] if in_sync else NO_LEADER
            state = states[replicas] = PartitionState(replicas, in_sync, leader)
        for_all.append(state)
    return tuple(for_all)


def check_replicas(replicas: Replicas, brokers: Brokers, factor: int | None) -> None:
    """Refuse replicas named by hand that are none, twice the same, unknown, or not `factor`."""

    def refuse(reason: str) -> ClusterError:
        return ClusterError(
            Error.INVALID_REPLICA_ASSIGNMENT, f"The manual partition assignment includes {reason}"
        )

    if not replicas:
        raise refuse("an empty replica list.")
    previous: int | None = None
    for broker in sorted(replicas):
        if broker not in brokers:
            raise refuse(f"broker {broker}, but no such broker is registered.")
        if broker == previous:
            raise refuse(f"the broker {broker} more than once.")
        previous = broker
    if factor is not None and len(replicas) != factor:
        raise refuse(
            f"a partition with {len(replicas)} replica(s), but this is not consistent with"
            f" previous partitions, which have {factor} replica(s)."
        )
