"""The lag of a stream: what its topics have and no batch has read. Without Spark."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from moldau.spark.source.progress import Progress
from moldau.topic_partition import TopicPartition


@dataclass(frozen=True, slots=True)
class Lag:
    """The records that a source has yet to read: of the partition with the least, of the one with
    the most, on average, and of all. `description` names its topics."""

    description: str
    least: int
    most: int
    average: float
    total: int

    def to_metrics(self) -> dict[str, str]:
        """Return the same under the names that Spark's own Kafka source has for it."""
        return {
            "minOffsetsBehindLatest": str(self.least),
            "maxOffsetsBehindLatest": str(self.most),
            "avgOffsetsBehindLatest": str(self.average),
        }


def behind(end: Any, latest: Any) -> dict[TopicPartition, int] | None:
    """Return the records after `end` by partition; None where an offset is none of ours."""
    read, there = _progress(end), _progress(latest)
    if read is None or there is None:
        return None
    return {key: max(offset - read.offsets.get(key, 0), 0) for key, offset in there.offsets.items()}


def lag_of(end: Any, latest: Any) -> Lag | None:
    """Return how far a source is behind, from the offsets in one of Spark's reports."""
    found = behind(end, latest)
    if not found:
        return None
    topics: dict[str, int] = {}
    for topic, _ in found:
        topics[topic] = topics.get(topic, 0) + 1
    named = ", ".join(
        f"{topic} ({count} partition{'s' if count != 1 else ''})"
        for topic, count in sorted(topics.items())
    )
    counts = found.values()
    total = sum(counts)
    return Lag(f"Moldau: {named}", min(counts), max(counts), total / len(found), total)


def _progress(content: Any) -> Progress | None:
    if isinstance(content, str):
        try:
            content = json.loads(content)
        except ValueError:
            return None
    if not isinstance(content, Mapping) or not all(
        isinstance(partitions, Mapping) for partitions in content.values()
    ):
        return None
    try:
        return Progress.of_json(content)
    except ValueError:
        return None
