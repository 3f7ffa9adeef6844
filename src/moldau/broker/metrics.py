"""Metrics: what a broker counts while it works.

Plain integers, added to where something happens and read by whoever shows them. Answers are counted
at the end of the turn in which they leave. Writes, of which a pipelining client has a hundred in
one turn, are counted as many at once. Without anybody who shows them there are no metrics, and
nothing is counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from time import monotonic
from typing import Any, Protocol

from moldau.cluster.state.state import ClusterState
from moldau.wire.apis import Api
from moldau.wire.primitives import TopicKey

# The bounds of the buckets double, in microseconds; the last bucket has no bound.
BUCKETS = 28
_MICROSECONDS = 1e6


class Histogram:
    """Durations in buckets: number `n` counts those below 2^n microseconds. Event loop only."""

    __slots__ = ("buckets", "seconds")

    def __init__(self) -> None:
        self.buckets = [0] * BUCKETS
        self.seconds = 0.0

    def add(self, took_s: float, times: int = 1) -> None:
        number = int(took_s * _MICROSECONDS).bit_length()
        self.buckets[number if number < BUCKETS else -1] += times
        self.seconds += took_s * times

    @property
    def count(self) -> int:
        return sum(self.buckets)


class Answer(Protocol):
    """A response, as far as it is counted."""

    request: Any

    def tally(self, metrics: Metrics) -> None:
        """Count what is special about it."""


class Metrics:
    """The counts of one broker, by API and by topic. Event loop only.

    `left` are the answers that have left in the present turn, but for `writes` of these, to Produce
    requests. All topics that do not exist count as one without a name: anybody can ask for
    thousands of them.
    """

    __slots__ = (
        "_state", "bytes_out", "errors", "failures", "fetches", "latency", "left", "replicated_out",
        "writes",
    )  # fmt: skip

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self.left: list[Answer] = []
        self.writes = 0
        self.latency: dict[int, Histogram] = {}
        # By API and error code.
        self.errors: Counter[tuple[int, int]] = Counter()
        # By API and topic.
        self.failures: Counter[tuple[int, str]] = Counter()
        self.fetches: Counter[str] = Counter()
        self.bytes_out: Counter[str] = Counter()
        self.replicated_out: Counter[str] = Counter()

    def end_turn(self, received_at: float) -> None:
        """Count the answers to what had come at this time; they are on their way."""
        took_s = monotonic() - received_at
        if self.writes:
            self._histogram(Api.PRODUCE).add(took_s, self.writes)
            self.writes = 0
        left = self.left
        if left:
            for each in left:
                self._count(each, took_s)
            left.clear()

    def late(self, answer: Answer, took_s: float) -> None:
        """Count an answer that left in another turn than its request came."""
        if self.left and self.left[-1] is answer:
            self.left.pop()
        self._count(answer, took_s)

    def topic(self, key: TopicKey) -> str:
        """Return the name under which a topic is counted that goes by its name or id."""
        state = self._state
        found = state.topics.get(key) if isinstance(key, str) else state.topics_by_id.get(key)
        return "" if found is None else found.name

    def failed(self, api: int, key: TopicKey, code: int) -> None:
        """Count an error about a topic, which a response says at one place of many."""
        self.errors[api, code] += 1
        self.failures[api, self.topic(key)] += 1

    def histograms(self) -> Iterator[tuple[int, Histogram]]:
        """Yield the latency of each API that was ever asked for, in the order of their keys."""
        yield from sorted(self.latency.items())

    def _count(self, answer: Answer, took_s: float) -> None:
        self._histogram(answer.request.api).add(took_s)
        answer.tally(self)

    def _histogram(self, api: int) -> Histogram:
        found = self.latency.get(api)
        if found is None:
            found = self.latency[api] = Histogram()
        return found
