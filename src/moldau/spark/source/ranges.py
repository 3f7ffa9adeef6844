"""Ranges of offsets: what a task reads, and how large ones are split over tasks."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import pairwise
from uuid import UUID

from pyspark.sql.datasource import InputPartition


@dataclass(frozen=True)
class OffsetRange(InputPartition):
    """The offsets from `start` up to `end` of one partition, of the topic with that id."""

    topic: str
    topic_id: UUID | None
    partition: int
    start: int
    end: int

    def __len__(self) -> int:
        return self.end - self.start


def split(
    ranges: Iterable[OffsetRange], min_partitions: int | None, max_records: int | None
) -> list[OffsetRange]:
    """Return one task per range, unless that makes too few tasks or too large ones.

    As in Spark's Kafka source: `max_records` cuts first; then, when there are still fewer than
    `min_partitions`, the larger ranges are cut in proportion to their size, and small ones stay.
    """
    pieces = [item for item in ranges if len(item) > 0]
    if max_records is not None:
        pieces = [part for item in pieces for part in cut(item, math.ceil(len(item) / max_records))]
    if min_partitions is None or len(pieces) >= min_partitions:
        return pieces
    total = sum(map(len, pieces))
    whole = [item for item in pieces if _share(item, total, min_partitions) == 1]
    left = total - sum(map(len, whole))
    tasks = max(min_partitions - len(whole), 1)
    return [
        part
        for item in pieces
        for part in cut(item, 1 if item in whole else _share(item, left, tasks))
    ]


def cut(item: OffsetRange, parts: int) -> list[OffsetRange]:
    """Return the range in `parts` of almost equal size; fewer when it has fewer offsets."""
    parts = min(parts, len(item))
    edges = [item.start + len(item) * number // parts for number in range(parts + 1)]
    return [replace(item, start=start, end=end) for start, end in pairwise(edges)]


def _share(item: OffsetRange, total: int, tasks: int) -> int:
    return max(math.floor(len(item) / total * tasks + 0.5), 1)
