"""Elections and moves of partitions that somebody asked for, as decisions on the state.

Like those on topics they may be made again after a conflict, and remember what they tried.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum
from typing import NamedTuple

import msgspec

from moldau.cluster.decisions.elections import Minimum, elect, eligible, no_minimum, to_preferred
from moldau.cluster.decisions.placement import Replicas
from moldau.cluster.decisions.reassignment import begun, cancelled, is_moving
from moldau.cluster.errors import ClusterError
from moldau.cluster.state.changes import AnyChange, PartitionsChanged
from moldau.cluster.state.state import ClusterState
from moldau.cluster.state.topics import NO_LEADER, PartitionState, Topic
from moldau.topic_partition import TopicPartition
from moldau.wire.errors import Error

Outcomes = dict[TopicPartition, ClusterError | None]


class ElectionType(IntEnum):
    """By Kafka's numbers."""

    PREFERRED = 0
    UNCLEAN = 1


class Decided(NamedTuple):
    """The changes to commit, and what then to answer for each partition: None for done."""

    changes: list[AnyChange]
    outcomes: Outcomes


class Move(msgspec.Struct, frozen=True):
    """A partition and the replicas that it should have; None cancels the move under way."""

    topic: str
    index: int
    target: Replicas | None


class LeaderElection:
    """Elects leaders as an operator asks: the preferred one, or any where there is none.

    Without `wanted` all partitions are meant, and those with the right leader are not mentioned.
    """

    def __init__(
        self,
        kind: ElectionType,
        wanted: Sequence[TopicPartition] | None,
        minimum: Minimum = no_minimum,
    ) -> None:
        self._kind = kind
        self._wanted = wanted
        self._minimum = minimum
        self._tried: dict[TopicPartition, PartitionState] = {}

    def decide(self, state: ClusterState) -> Decided:
        wanted = self._wanted
        if wanted is None:
            wanted = [
                (topic.name, index)
                for topic in state.topics.values()
                for index in range(len(topic.partitions))
            ]
        outcomes: Outcomes = {}
        changed: defaultdict[str, dict[int, PartitionState]] = defaultdict(dict)
        for key in wanted:
            topic, partition = _find(state, key, _no_such)
            if isinstance(partition, ClusterError):
                outcomes[key] = partition
                continue
            assert topic is not None
            if not self._is_needed(partition):
                if self._was_ours(key, partition):
                    outcomes[key] = None
                elif self._wanted is not None:
                    outcomes[key] = ClusterError(
                        Error.ELECTION_NOT_NEEDED, "Leader election not needed for topic partition."
                    )
                continue
            after = self._elect(topic, partition, state)
            if after is None:
                outcomes[key] = self._nobody()
                continue
            outcomes[key] = None
            self._tried[key] = changed[key[0]][key[1]] = after
        return Decided([PartitionsChanged(*change) for change in changed.items()], outcomes)

    def _is_needed(self, partition: PartitionState) -> bool:
        if self._kind is ElectionType.PREFERRED:
            return partition.leader != partition.replicas[0]
        return partition.leader == NO_LEADER

    def _was_ours(self, key: TopicPartition, partition: PartitionState) -> bool:
        tried = self._tried.get(key)
        return tried is not None and tried.leader == partition.leader

    def _elect(
        self, topic: Topic, partition: PartitionState, state: ClusterState
    ) -> PartitionState | None:
        if self._kind is ElectionType.PREFERRED:
            return to_preferred(partition, eligible(state), self._minimum(topic))
        live = state.brokers.keys()
        after = elect(partition, live, lambda: True, live - eligible(state), self._minimum(topic))
        return None if after is None or after.leader == NO_LEADER else after

    def _nobody(self) -> ClusterError:
        if self._kind is ElectionType.PREFERRED:
            return ClusterError(
                Error.PREFERRED_LEADER_NOT_AVAILABLE, "The preferred leader was not available."
            )
        return ClusterError(
            Error.ELIGIBLE_LEADERS_NOT_AVAILABLE,
            "Eligible topic partition leaders are not available.",
        )


class Reassignment:
    """Begins to move partitions to other brokers, or takes such moves back."""

    def __init__(
        self, moves: Sequence[Move], may_resize: bool, is_unclean: Callable[[Topic], bool]
    ) -> None:
        self._moves = moves
        self._may_resize = may_resize
        self._is_unclean = is_unclean
        self._cancelled: set[TopicPartition] = set()

    def decide(self, state: ClusterState) -> Decided:
        outcomes: Outcomes = {}
        changed: defaultdict[str, dict[int, PartitionState]] = defaultdict(dict)
        for move in self._moves:
            key = (move.topic, move.index)
            topic, partition = _find(state, key, _unable_to_find)
            if isinstance(partition, ClusterError):
                outcomes[key] = partition
                continue
            assert topic is not None
            try:
                after = self._moved(move, topic, partition, state)
            except ClusterError as error:
                outcomes[key] = error
                continue
            outcomes[key] = None
            if after != partition:
                changed[move.topic][move.index] = after
        return Decided([PartitionsChanged(*change) for change in changed.items()], outcomes)

    def _moved(
        self, move: Move, topic: Topic, partition: PartitionState, state: ClusterState
    ) -> PartitionState:
        key = (move.topic, move.index)
        if move.target is not None:
            return begun(partition, move.target, state.brokers, may_resize=self._may_resize)
        if key in self._cancelled and not is_moving(partition):
            return partition
        back = cancelled(
            partition,
            f"{move.topic}:{move.index}",
            state.brokers.keys(),
            unclean=self._is_unclean(topic),
        )
        self._cancelled.add(key)
        return back


def moving_partitions(
    state: ClusterState, wanted: Mapping[str, Sequence[int]] | None
) -> dict[str, dict[int, PartitionState]]:
    """Return the partitions on the move, all or those of the ones asked for; other topics are left
    out."""
    moving = {}
    for name in state.topics if wanted is None else wanted:
        topic = state.topics.get(name)
        if topic is None:
            continue
        count = len(topic.partitions)
        indexes = range(count) if wanted is None else wanted[name]
        found = {
            index: topic.partitions[index]
            for index in indexes
            if 0 <= index < count and is_moving(topic.partitions[index])
        }
        if found:
            moving[name] = found
    return moving


def _find(
    state: ClusterState, key: TopicPartition, missing: Callable[[TopicPartition, bool], str]
) -> tuple[Topic | None, PartitionState | ClusterError]:
    topic = state.topics.get(key[0])
    partition = state.partition(*key)
    if partition is None:
        message = missing(key, topic is not None)
        return topic, ClusterError(Error.UNKNOWN_TOPIC_OR_PARTITION, message)
    return topic, partition


def _no_such(key: TopicPartition, has_topic: bool) -> str:
    return f"No such partition as {key[0]}-{key[1]}" if has_topic else f"No such topic as {key[0]}"


def _unable_to_find(key: TopicPartition, has_topic: bool) -> str:
    if has_topic:
        return f"Unable to find partition {key[0]}:{key[1]}."
    return f"Unable to find a topic named {key[0]}."
