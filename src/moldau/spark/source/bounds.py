"""Bounds: where reading starts and ends, by the options and as offsets."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from moldau.peer.cluster import EARLIEST, LATEST, Cluster
from moldau.spark.errors import OptionError
from moldau.spark.options import Options
from moldau.topic_partition import TopicPartition

Kind = Literal["earliest", "latest", "offsets", "timestamp", "timestamps"]
Side = Literal["starting", "ending"]


@dataclass(frozen=True, slots=True)
class Bound:
    """One end of what is read, as the options give it."""

    side: Side
    kind: Kind
    timestamp_ms: int = 0
    per_partition: Mapping[TopicPartition, int] | None = None
    latest_without_match: bool = False

    @classmethod
    def parse(cls, options: Options, side: Side, default: Literal["earliest", "latest"]) -> Bound:
        """Spark's order of preference: one timestamp, timestamps by partition, offsets."""
        strategy = options.choice(STRATEGY, ("error", "latest"), "error")
        lenient = side == "ending" or strategy == "latest"
        at_time, by_time = f"{side}Timestamp", f"{side}OffsetsByTimestamp"
        if at_time in options:
            milliseconds = options.number(at_time)
            assert milliseconds is not None
            return cls(side, "timestamp", milliseconds, latest_without_match=lenient)
        if by_time in options:
            wanted = parse_partition_numbers(options.text(by_time), by_time)
            return cls(side, "timestamps", per_partition=wanted, latest_without_match=lenient)
        text = options.text(f"{side}Offsets", default)
        if text.lower() == "earliest":
            return cls(side, "earliest")
        if text.lower() == "latest":
            return cls(side, "latest")
        return cls(side, "offsets", per_partition=parse_partition_numbers(text, f"{side}Offsets"))

    def never(self, mark: int) -> None:
        """For batch queries, which cannot start at the end nor end at the start."""
        word = "latest" if mark == LATEST else "earliest"
        if self.kind == word or mark in (self.per_partition or {}).values():
            raise OptionError(f"{self.side}Offsets cannot be {word} in a batch query")


STRATEGY = "startingOffsetsByTimestampStrategy"


def resolve(
    cluster: Cluster,
    bound: Bound,
    partitions: Iterable[TopicPartition],
    read_committed: bool,
    *,
    at_end: set[TopicPartition] | None = None,
) -> dict[TopicPartition, int]:
    """Return the offset of the bound in every partition.

    `at_end` gets the partitions where it is the end of the log, which is another one later on.
    """
    wanted = list(partitions)
    moving = set() if at_end is None else at_end
    if bound.per_partition is not None:
        _same_partitions(bound, wanted)
    if bound.kind == "offsets":
        assert bound.per_partition is not None
        marks = {key: mark for key, mark in bound.per_partition.items() if mark < 0}
        found = _listed(cluster, marks, read_committed)
        moving.update(key for key, mark in marks.items() if mark == LATEST)
        return {key: found.get(key, bound.per_partition[key]) for key in wanted}
    if bound.kind in ("earliest", "latest"):
        mark = EARLIEST if bound.kind == "earliest" else LATEST
        moving.update(wanted if mark == LATEST else ())
        return _listed(cluster, dict.fromkeys(wanted, mark), read_committed)
    times = bound.per_partition or dict.fromkeys(wanted, bound.timestamp_ms)
    found = _listed(cluster, times, read_committed)
    unmatched = [key for key in wanted if found[key] < 0]
    if unmatched and not bound.latest_without_match:
        topic, partition = unmatched[0]
        raise OptionError(
            f"{topic}-{partition} has no record at or after timestamp {times[unmatched[0]]} "
            f"({len(unmatched)} partitions in all); to start such partitions at the end, set "
            f"{STRATEGY} to latest"
        )
    moving.update(unmatched)
    return found | _listed(cluster, dict.fromkeys(unmatched, LATEST), read_committed)


def _listed(
    cluster: Cluster, wanted: Mapping[TopicPartition, int], read_committed: bool
) -> dict[TopicPartition, int]:
    listed = cluster.list_offsets(wanted, read_committed=read_committed)
    return {key: answer.offset for key, answer in listed.items()}


def _same_partitions(bound: Bound, wanted: list[TopicPartition]) -> None:
    given = set(bound.per_partition or ())
    if given != set(wanted):
        missing = sorted(set(wanted) - given)
        extra = sorted(given - set(wanted))
        raise OptionError(
            f"the {bound.side} offsets must name every partition that is read (-2 means earliest, "
            f"-1 latest): missing: {names(missing)}; not read: {names(extra)}"
        )


def names(partitions: Iterable[TopicPartition]) -> str:
    return ", ".join(f"{topic}-{partition}" for topic, partition in partitions) or "none"


def parse_partition_numbers(text: str, option: str) -> dict[TopicPartition, int]:
    """`{"topic": {"0": 23, "1": -2}}`."""
    content = _parsed(text, option, '{"topic": {"0": 23}}')
    numbers: dict[TopicPartition, int] = {}
    for topic, partitions in content.items():
        if not isinstance(partitions, dict):
            raise OptionError(f'{option} is {text!r}, but must be like {{"topic": {{"0": 23}}}}')
        for partition, number in partitions.items():
            if not partition.isdecimal() or type(number) is not int:
                raise OptionError(f"{option}: {topic!r} has {partition!r}: {number!r}")
            numbers[topic, int(partition)] = number
    return numbers


def parse_assignment(text: str) -> list[TopicPartition]:
    """`{"topic": [0, 1]}`."""
    assigned: list[TopicPartition] = []
    for topic, partitions in _parsed(text, "assign", '{"topic": [0, 1]}').items():
        if not isinstance(partitions, list) or not all(type(item) is int for item in partitions):
            raise OptionError(f'assign is {text!r}, but must be like {{"topic": [0, 1]}}')
        assigned += [(topic, partition) for partition in partitions]
    return assigned


def _parsed(text: str, option: str, example: str) -> dict[str, Any]:
    try:
        content = json.loads(text)
    except ValueError:
        content = None
    if not isinstance(content, dict) or not content:
        raise OptionError(f"{option} is {text!r}, but must be JSON like {example}")
    return content
