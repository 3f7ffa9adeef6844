"""The offset of a stream: how far each partition is read, as Spark keeps it in the checkpoint.

    {"topic": {"0": 23, "1": 7}, "@id 0c2f… topic": {}}

This is the form of Spark's own Kafka source, plus the ids of the topics, by which a topic that was
deleted and created again is noticed. That source reads an id as a topic without partitions, so it
can go on from our checkpoints. No topic's name can begin with `@`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from moldau.topic_partition import TopicPartition

ID = "@id "
# How the ids were written at first, which Spark's own source does not read.
OLD_IDS = "@ids"


def is_topic(name: str) -> bool:
    """Return whether a name in the JSON of a progress is one of a topic."""
    return not name.startswith("@")


@dataclass(frozen=True, slots=True)
class Progress:
    """The next offset to read in each partition, and the ids of the topics where known."""

    offsets: Mapping[TopicPartition, int] = field(default_factory=dict)
    ids: Mapping[str, UUID] = field(default_factory=dict)

    @classmethod
    def of_json(cls, content: Mapping[str, Any]) -> Progress:
        offsets = {
            (topic, int(partition)): int(offset)
            for topic, partitions in content.items()
            if is_topic(topic)
            for partition, offset in partitions.items()
        }
        ids = {topic: UUID(text) for topic, text in content.get(OLD_IDS, {}).items()}
        for name in content:
            if name.startswith(ID):
                text, _, topic = name.removeprefix(ID).partition(" ")
                ids[topic] = UUID(text)
        return cls(offsets, ids)

    def to_json(self) -> dict[str, Any]:
        content: dict[str, Any] = {}
        for (topic, partition), offset in sorted(self.offsets.items()):
            content.setdefault(topic, {})[str(partition)] = offset
        topics = [topic for topic in content if topic in self.ids]
        return content | {f"{ID}{self.ids[topic]} {topic}": {} for topic in topics}

    def is_recreated(self, topic: str, now: Progress) -> bool:
        """Return whether the topic is another one `now`; False where an id is not known."""
        was, current = self.ids.get(topic), now.ids.get(topic)
        return None not in (was, current) and was != current


def limited(
    start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int], most: int
) -> dict[TopicPartition, int]:
    """`end`, held back so that about `most` offsets lie between: each partition gives its share.

    As in Spark's Kafka source, a partition with something to read is never starved.
    """
    sizes = {key: end[key] - start[key] for key in end if end[key] > start[key]}
    total = sum(sizes.values())
    if total <= most:
        return dict(end)
    held = dict(end)
    for key, size in sizes.items():
        held[key] = start[key] + max(min(size, most * size // total), 1)
    return held
