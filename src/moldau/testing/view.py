"""The view of the cluster that one of its brokers has."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from moldau.topic_partition import TopicPartition


@dataclass(frozen=True, slots=True)
class PartitionView:
    """A partition as one broker describes it; a leader of -1 is none."""

    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class View:
    """The cluster as one broker describes it."""

    brokers: frozenset[int]
    controller: int
    partitions: dict[TopicPartition, PartitionView]

    def leader_of(self, topic: str, partition: int) -> int | None:
        """Return the partition's leader, if it has one that is alive."""
        found = self.partitions.get((topic, partition))
        return found.leader if found is not None and found.leader in self.brokers else None

    def is_led(self, topic: str, partitions: int) -> bool:
        """Return whether a topic has so many partitions that are led.

        RuntimeError if it has another number of them: somebody else has created it.
        """
        count = sum(name == topic for name, _ in self.partitions)
        if count not in (0, partitions):
            raise RuntimeError(
                f"topic {topic} already exists, with {count} partitions, not {partitions}"
            )
        return all(self.leader_of(topic, index) is not None for index in range(partitions))

    def is_in_sync(
        self,
        running: frozenset[int],
        topics: Collection[str] = (),
        brokers: frozenset[int] = frozenset(),
    ) -> bool:
        """Return whether running brokers lead all partitions (of these topics, which must be there,
        or of all) and all replicas (on these brokers, or on all) are in sync."""
        return all(
            partition.leader in running
            and set(partition.isr)
            >= (brokers.intersection(partition.replicas) if brokers else set(partition.replicas))
            for (topic, _), partition in self.partitions.items()
            if not topics or topic in topics
        ) and {topic for topic, _ in self.partitions}.issuperset(topics)


def majority(answers: Sequence[int | None], voters: int) -> int | None:
    """Return what more than half of the voters answered, if they agree."""
    best = max(set(answers), key=answers.count, default=None)
    return best if 2 * answers.count(best) > voters else None


def view_of(answer: Any) -> View:
    """Parse a Metadata response."""
    return View(
        frozenset(int(broker.node_id) for broker in answer.brokers),
        int(answer.controller_id),
        {
            (str(topic.name), int(partition.partition_index)): PartitionView(
                int(partition.leader_id),
                int(partition.leader_epoch),
                tuple(map(int, partition.replica_nodes)),
                tuple(map(int, partition.isr_nodes)),
            )
            for topic in answer.topics
            for partition in topic.partitions
        },
    )
