"""The cluster in the eyes of one of its brokers."""

from __future__ import annotations

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
        """The partition's leader, if it has one that is alive."""
        found = self.partitions.get((topic, partition))
        return found.leader if found is not None and found.leader in self.brokers else None


def view_of(answer: Any) -> View:
    """What an answer to Metadata says."""
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
