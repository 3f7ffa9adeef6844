"""The offsets of a batch: which records of which topics it holds."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

from moldau.spark.lake.errors import LakeError
from moldau.spark.source.progress import is_topic

# Where a query's first batch begins, Spark does not write down.
UNKNOWN = -1

Range = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Offsets:
    """For each partition of each topic the first offset of a batch and the one after its last.

    `first` may be UNKNOWN. An empty range says how far a partition was read that gave nothing.
    """

    ranges: Mapping[str, Mapping[int, Range]] = field(default_factory=dict)

    def __iter__(self) -> Iterator[tuple[str, int, Range]]:
        for topic, partitions in sorted(self.ranges.items()):
            for partition, bounds in sorted(partitions.items()):
                yield topic, partition, bounds

    @classmethod
    def at(cls, ends: Mapping[str, Mapping[int, int]]) -> Offsets:
        """Nothing but how far each partition was read."""
        return cls({t: {p: (end, end) for p, end in ps.items()} for t, ps in ends.items()})

    @classmethod
    def of_json(cls, content: Mapping[str, Mapping[str, list[int]]]) -> Offsets:
        return cls(
            {t: {int(p): (int(a), int(b)) for p, (a, b) in ps.items()} for t, ps in content.items()}
        )

    def to_json(self) -> dict[str, dict[str, list[int]]]:
        return {t: {str(p): [*bounds] for p, bounds in ps.items()} for t, ps in self.ranges.items()}

    @property
    def has_records(self) -> bool:
        return any(first != end for _, _, (first, end) in self)

    @property
    def ends(self) -> dict[str, dict[int, int]]:
        return {t: {p: end for p, (_, end) in ps.items()} for t, ps in self.ranges.items()}

    def starting_offsets(self) -> str:
        """Return the value of the source's option `startingOffsets` to go on after these."""
        return json.dumps({t: {str(p): e for p, e in ps.items()} for t, ps in self.ends.items()})

    def after(self, earlier: Offsets) -> Offsets:
        """These, with what `earlier` says of partitions that are not among them."""
        known = Offsets.at(earlier.ends).ranges
        topics = known.keys() | self.ranges.keys()
        return Offsets({t: {**known.get(t, {}), **self.ranges.get(t, {})} for t in topics})


def offsets_of_batch(checkpoint: str, batch_id: int, start: Offsets | None = None) -> Offsets:
    """Return what the batch holds, from the query's checkpoint before the batch runs.

    The first batch begins at the ends of `start`, which is where the query was told to begin; so do
    partitions that were not read before. What is not known there is UNKNOWN. Only topics read with
    `format("moldau")` or `format("kafka")` count; those of other sources are left out.
    """
    ended = _ends(checkpoint, batch_id)
    begun = start.ends if start is not None else {}
    if batch_id > 0:
        begun = _merged(begun, _ends(checkpoint, batch_id - 1))
    return Offsets(
        {
            topic: {p: (begun.get(topic, {}).get(p, UNKNOWN), end) for p, end in ends.items()}
            for topic, ends in ended.items()
        }
    )


def _ends(checkpoint: str, batch_id: int) -> dict[str, dict[int, int]]:
    path = _local(checkpoint) / "offsets" / str(batch_id)
    try:
        text = path.read_text("utf-8")
    except FileNotFoundError:
        raise LakeError(
            f"{path} does not exist: batch {batch_id} was not planned by the query of this "
            f"checkpoint, or Spark has removed it (spark.sql.streaming.minBatchesToRetain)"
        ) from None
    try:
        return ends_of_log(text)
    except LakeError as problem:
        raise LakeError(f"{path}: {problem}") from None


def ends_of_log(text: str) -> dict[str, dict[int, int]]:
    """Return the offsets at which a batch ends, from the text of Spark's log: a line for each
    source."""
    version, _, sources = text.partition("\n")
    if version != "v1":
        raise LakeError(f"the format of this file is {version[:20]!r}, but only 'v1' can be read")
    ends: dict[str, dict[int, int]] = {}
    for line in sources.split("\n")[1:]:
        ends = _merged(ends, _topics(line), least=True)
    return ends


def _topics(line: str) -> dict[str, dict[int, int]]:
    """Return a source's offset, when it is one of topics: {"topic": {"0": 23}}."""
    try:
        content = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    if not isinstance(content, dict):
        return {}
    return {
        topic: {int(p): offset for p, offset in partitions.items()}
        for topic, partitions in content.items()
        if is_topic(topic) and _is_progress(partitions)
    }


def _is_progress(partitions: Any) -> bool:
    return isinstance(partitions, dict) and all(
        key.isascii() and key.isdecimal() and type(offset) is int and offset >= 0
        for key, offset in partitions.items()
    )


def _merged(
    one: Mapping[str, Mapping[int, int]],
    other: Mapping[str, Mapping[int, int]],
    *,
    least: bool = False,
) -> dict[str, dict[int, int]]:
    """Both; where they differ it is the other's, or the `least`: what two readers both have."""
    merged = {topic: dict(partitions) for topic, partitions in one.items()}
    for topic, partitions in other.items():
        mine = merged.setdefault(topic, {})
        for partition, offset in partitions.items():
            mine[partition] = min(mine.get(partition, offset), offset) if least else offset
    return merged


def _local(checkpoint: str) -> Path:
    parts = urlparse(checkpoint)
    if parts.scheme == "file":
        return Path(unquote(parts.path))
    if parts.scheme:
        raise LakeError(
            f"{checkpoint}: the offsets of a checkpoint can only be read from a local folder, not "
            f"over {parts.scheme}://; pass the offsets to `write` yourself"
        )
    return Path(checkpoint)
