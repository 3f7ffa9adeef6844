"""A fetched batch, and how much of it has been handed out.

Messages are given out by C iterators, without a counter of ours; an iterator over a list knows how
much is left. Cutting the list ends the iteration, from whatever thread.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator

import confluent_kafka

from moldau.topic_partition import TopicPartition

RawMessage = confluent_kafka.Message


class Batch:
    """Messages in the order of their partitions; those given out come first."""

    __slots__ = ("_rest", "raws")

    def __init__(self, raws: list[RawMessage]) -> None:
        self.raws = raws
        self._rest = iter(raws)

    def __len__(self) -> int:
        """Return how many have not been given out."""
        return operator.length_hint(self._rest)

    def iterator(self) -> Iterator[RawMessage]:
        """Yield the remaining messages; there is one such iterator at a time."""
        return self._rest

    @property
    def last(self) -> RawMessage | None:
        """The message given out last."""
        given = len(self.raws) - len(self)
        return self.raws[given - 1] if given else None

    def left(self) -> list[RawMessage]:
        """Return the messages that have not been handed out."""
        count = len(self)
        return self.raws[-count:] if count else []

    def cut(self, unwanted: Callable[[RawMessage], bool] | None = None) -> list[RawMessage]:
        """Take back what has not been given out, all of it or what is unwanted, and return it."""
        left = self.left()
        taken = left if unwanted is None else [raw for raw in left if unwanted(raw)]
        if taken:
            kept = [] if unwanted is None else [raw for raw in left if not unwanted(raw)]
            self.raws[len(self.raws) - len(left) :] = kept
        return taken


def place_of(raw: RawMessage) -> TopicPartition:
    return raw.topic() or "", raw.partition() or 0


def first_offsets(raws: Iterable[RawMessage]) -> dict[TopicPartition, int]:
    """For each partition, the smallest offset among these messages, which are in order."""
    found: dict[TopicPartition, int] = {}
    for raw in raws:
        offset = raw.offset()
        if offset is not None:
            found.setdefault(place_of(raw), offset)
    return found
