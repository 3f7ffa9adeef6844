"""Everything that was sent, acknowledged and read, and what may be concluded from it.

A message says which producer sent it and that producer's number of it, so that wherever it turns
up it can be told what it is. Promises are checked as the news come in, and once more at the end
against a reading of everything that is there:

- what was acknowledged is there, at the offset that was acknowledged;
- what any reader saw is still there, at the offset where it was seen: nobody saw more than the
  high watermark, behind which nothing ever changes;
- nothing is there twice, and no reader jumps over an offset;
- in a partition the messages of a producer stand in the order in which it sent them.
"""

from __future__ import annotations

import hashlib
import struct
import threading
from collections import defaultdict
from dataclasses import dataclass, field
from typing import NamedTuple

_HEAD = struct.Struct(">IQ")
_MOST_SHOWN = 5


class TopicPartition(NamedTuple):
    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class Label(NamedTuple):
    """Which message it is."""

    producer: int
    number: int

    def __str__(self) -> str:
        return f"message {self.number} of producer {self.producer}"


class Wrong(AssertionError):
    """A promise was broken; the message says which."""


def payload(label: Label, size: int = 100) -> bytes:
    """The bytes of a message: its label, then what only that message has."""
    head = _HEAD.pack(*label)
    digest = hashlib.blake2b(head).digest()
    return head + (digest * (size // len(digest) + 1))[:size]


def label_of(content: bytes | None) -> Label:
    if content is None or len(content) < _HEAD.size:
        raise Wrong(f"a message holds {content!r}")
    label = Label(*_HEAD.unpack_from(content))
    if content != payload(label, len(content) - _HEAD.size):
        raise Wrong(f"the bytes of {label} have changed")
    return label


@dataclass(slots=True)
class _Known:
    """What is known of one partition."""

    at: dict[int, Label] = field(default_factory=dict)
    sent: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    acknowledged: dict[Label, int | None] = field(default_factory=dict)
    seen: dict[int, Label] = field(default_factory=dict)
    where: dict[Label, int] = field(default_factory=dict)


class Ledger:
    """The record of one play; for any number of threads.

    What goes wrong in a client's thread is kept in `problems`, and raised by `check`.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: defaultdict[TopicPartition, _Known] = defaultdict(_Known)
        self.problems: list[str] = []

    def on_acknowledged(self, place: TopicPartition, label: Label, offset: int | None) -> None:
        """Without an offset when librdkafka knows none: it lost the answer, and takes that to a
        later message for an answer to this one as well."""
        with self._lock:
            known = self._known[place]
            known.acknowledged[label] = offset
            if offset is not None:
                self._learn(place, offset, label, "was acknowledged")

    def on_seen(self, place: TopicPartition, offset: int, label: Label) -> None:
        with self._lock:
            self._known[place].seen[offset] = label
            self._learn(place, offset, label, "was seen")

    def on_problem(self, problem: str) -> None:
        with self._lock:
            self.problems.append(problem)

    def acknowledged(self, place: TopicPartition) -> int:
        with self._lock:
            return len(self._known[place].acknowledged)

    def end_of_seen(self, place: TopicPartition) -> int:
        """The offset after the last that any reader saw."""
        with self._lock:
            return max(self._known[place].seen, default=-1) + 1

    def end_of_acknowledged(self, place: TopicPartition) -> int:
        """The offset after the last that was acknowledged."""
        with self._lock:
            offsets = self._known[place].acknowledged.values()
            return max((offset for offset in offsets if offset is not None), default=-1) + 1

    def check(self) -> None:
        """Wrong if anything has gone wrong so far."""
        with self._lock:
            if self.problems:
                raise Wrong("\n".join(self.problems[:_MOST_SHOWN]))

    def check_all(self, place: TopicPartition, found: dict[int, Label]) -> None:
        """Wrong unless `found`, a whole partition as it is at the end, keeps every promise."""
        self.check()
        with self._lock:
            known = self._known[place]
            where = {label: offset for offset, label in found.items()}
            lost = {
                label: offset
                for label, offset in known.acknowledged.items()
                if label not in where or offset not in (None, where[label])
            }
            if lost:
                raise Wrong(f"{place}: acknowledged and lost: {_some(lost)}")
            gone = {
                offset: seen for offset, seen in known.seen.items() if found.get(offset) != seen
            }
            if gone:
                raise Wrong(f"{place}: seen by a reader and gone: {_some(gone)}")
        check_order(place, found)

    def _learn(self, place: TopicPartition, offset: int, label: Label, what: str) -> None:
        known = self._known[place]
        other = known.at.setdefault(offset, label)
        if other != label:
            self.problems.append(f"{place} offset {offset}: {label} {what}, {other} was there")
        before = known.where.setdefault(label, offset)
        if before != offset:
            self.problems.append(f"{place}: {label} {what} at {offset} and was at {before} before")


def check_order(place: TopicPartition, found: dict[int, Label]) -> None:
    """Wrong unless each producer's messages stand in order, once each, without gaps in offsets."""
    newest: dict[int, int] = {}
    expected = min(found, default=0)
    for offset in sorted(found):
        if offset != expected:
            raise Wrong(f"{place}: nothing at the offsets {expected} to {offset - 1}")
        expected += 1
        producer, number = found[offset]
        if number <= newest.get(producer, -1):
            raise Wrong(f"{place} offset {offset}: {found[offset]} stands behind a later one")
        newest[producer] = number


def _some(items: dict[Label, int | None] | dict[int, Label]) -> str:
    shown = ", ".join(f"{key}: {value}" for key, value in list(items.items())[:_MOST_SHOWN])
    return shown if len(items) <= _MOST_SHOWN else f"{shown} and {len(items) - _MOST_SHOWN} more"
