"""Runs: adjacent records of a share partition in the same state."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator

from moldau.broker.coordination.share.batches import RecordState
from moldau.broker.sharing.delivery import Acquired, Change

NEVER = 1 << 62


class Run:
    """Adjacent records in the same state."""

    __slots__ = ("change", "deliveries", "first", "last", "locked_until", "member", "state", "to")

    def __init__(self, first: int, last: int, state: RecordState, deliveries: int) -> None:
        self.first = first
        self.last = last
        self.state = state
        self.deliveries = deliveries
        self.member = ""
        self.locked_until = NEVER
        # The change that holds it, and the state that it is to have then.
        self.change: Change | None = None
        self.to = state

    def is_like(self, other: Run) -> bool:
        return (
            self.state is other.state
            and self.deliveries == other.deliveries
            and self.member == other.member
            and self.locked_until == other.locked_until
            and self.change is other.change
            and self.to is other.to
        )

    def part(self, first: int, last: int) -> Run:
        part = Run(first, last, self.state, self.deliveries)
        part.member, part.locked_until = self.member, self.locked_until
        part.change, part.to = self.change, self.to
        return part

    def settle(self, state: RecordState) -> None:
        self.state = self.to = state
        self.change = None
        self.member = ""
        self.locked_until = NEVER


class Runs:
    """Runs in the order of their offsets, without gaps."""

    __slots__ = ("items",)

    def __init__(self) -> None:
        self.items: list[Run] = []

    def __iter__(self) -> Iterator[Run]:
        return iter(self.items)

    def __bool__(self) -> bool:
        return bool(self.items)

    def append(self, run: Run) -> None:
        self.items.append(run)

    def overlapping(self, first: int, last: int) -> Iterator[Run]:
        """Go through the runs with any of these offsets."""
        items = self.items
        at = max(bisect_right(items, first, key=_first) - 1, 0)
        while at < len(items) and items[at].first <= last:
            if items[at].last >= first:
                yield items[at]
            at += 1

    def cut(self, first: int, last: int) -> list[Run]:
        """Return the runs of exactly these offsets, splitting those that reach beyond."""
        if first > last:
            return []
        self._split(first)
        self._split(last + 1)
        return list(self.overlapping(first, last))

    def _split(self, at: int) -> None:
        """Have a run begin at this offset, if there is one that it belongs to."""
        index = bisect_right(self.items, at, key=_first) - 1
        if index >= 0 and self.items[index].first < at <= self.items[index].last:
            run = self.items[index]
            self.items.insert(index + 1, run.part(at, run.last))
            run.last = at - 1

    def divide(self, change: Change) -> Change:
        """Take what does not die with a change out of it, as another."""
        rest = change.divide()
        for each in rest.ranges:
            for run in self.cut(*each):
                if run.change is change:
                    run.change = rest
        return rest

    def join(self, first: int, last: int) -> None:
        """Join those at and around these offsets that are alike."""
        items = self.items
        begin = max(bisect_right(items, first, key=_first) - 2, 0)
        end = min(bisect_right(items, last, key=_first) + 1, len(items))
        joined: list[Run] = []
        for run in items[begin:end]:
            if joined and joined[-1].is_like(run):
                joined[-1].last = run.last
            else:
                joined.append(run)
        items[begin:end] = joined

    def drop_before(self, offset: int) -> None:
        """Forget all offsets before this one."""
        self._split(offset)
        del self.items[: bisect_right(self.items, offset - 1, key=_first)]


def add_acquired(acquired: list[Acquired], run: Run, size: int) -> None:
    """Add a run to what was acquired, to the last range if they fit together."""
    if acquired:
        before = acquired[-1]
        fits = before.last + 1 == run.first and before.deliveries == run.deliveries
        if fits and run.last - before.first < size:
            acquired[-1] = before._replace(last=run.last)
            return
    acquired.append(Acquired(run.first, run.last, run.deliveries))


def _first(run: Run) -> int:
    return run.first
