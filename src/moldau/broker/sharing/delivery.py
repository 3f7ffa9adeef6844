"""Deliveries: what share partitions and those around them tell each other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import IntEnum
from typing import Any, NamedTuple

from moldau.broker.coordination.share.batches import StateBatch
from moldau.wire.errors import Error


class Acknowledgement(IntEnum):
    """What a member says of a record, by Kafka's numbers."""

    GAP = 0
    ACCEPT = 1
    RELEASE = 2
    REJECT = 3
    RENEW = 4


class Limits(NamedTuple):
    """How far a group may go in one partition."""

    # Records between `start` and `end`, and times that a record is delivered.
    records: int = 2000
    deliveries: int = 5
    lock_ms: int = 30_000


class Acquired(NamedTuple):
    """Records that a member was given, first and last included."""

    first: int
    last: int
    deliveries: int

    def without(self, first: int, last: int) -> list[Acquired]:
        """Return what is left of it without these offsets."""
        if last < self.first or first > self.last:
            return [self]
        parts = []
        if self.first < first:
            parts.append(self._replace(last=first - 1))
        if self.last > last:
            parts.append(self._replace(first=last + 1))
        return parts


class AcknowledgedRange(NamedTuple):
    """What a member says of a range: one kind for all of it, or one for each offset."""

    first: int
    last: int
    kinds: Sequence[int]

    def parts(self) -> Iterator[tuple[int, int, int]]:
        """Divide it into parts of the same kind."""
        first, last, kinds = self
        if len(kinds) == 1:
            yield first, last, kinds[0]
            return
        begin = first
        for offset in range(first, last + 1):
            kind = kinds[offset - first]
            if offset == last or kinds[offset + 1 - first] != kind:
                yield begin, offset, kind
                begin = offset + 1


class Dead(NamedTuple):
    """Records that are given up, and why."""

    first: int
    last: int
    deliveries: int
    is_rejected: bool


class Written(NamedTuple):
    """The content of one write: where the group begins now, and what has changed."""

    start: int
    finished: int
    batches: tuple[StateBatch, ...]


class Verdict(NamedTuple):
    """What came of an acknowledgement: Kafka's error, and its words."""

    error: Error = Error.NONE
    message: str | None = None


TOO_FAR = Verdict(
    Error.INVALID_REQUEST,
    "Batch record not found. The last offset in request is past acquired records.",
)
NOTHING_THERE = Verdict(
    Error.INVALID_RECORD_STATE, "Batch record not found. The base offset is not found in the cache."
)
ANOTHERS = Verdict(Error.INVALID_RECORD_STATE, "Member is not the owner of batch record")
NOT_ACQUIRED = Verdict(
    Error.INVALID_RECORD_STATE, "The offset cannot be acknowledged. The offset is not acquired."
)


class Change:
    """Records that are to change their state once that is written down.

    `ticket` is whoever waits for it. Of the records that are given up, `dead` says why. `is_rest`
    tells what others wait for that are given up beside it; `member` and `said` are known then.
    """

    __slots__ = ("dead", "is_rest", "member", "ranges", "said", "ticket")

    def __init__(self, ticket: Any = None) -> None:
        self.ticket = ticket
        self.is_rest = False
        self.member = ""
        self.said: Sequence[AcknowledgedRange] = ()
        self.dead: list[Dead] = []
        # The first and last offsets of what it holds.
        self.ranges: list[tuple[int, int]] = []

    def divide(self) -> Change:
        """Leave in it only what dies with it; return the rest. Whoever waits hears of both."""
        if self.ticket is not None:
            self.ticket = _Both(self.ticket)
        dying = {(each.first, each.last) for each in self.dead}
        rest = Change(self.ticket)
        rest.is_rest, rest.member, rest.said = True, self.member, self.said
        rest.ranges = [each for each in self.ranges if each not in dying]
        self.ranges = [each for each in self.ranges if each in dying]
        return rest

    def settle(self, error: Error) -> None:
        """Tell whoever waits what came of it."""
        if self.ticket is not None and not self.ticket.done():
            self.ticket.set_result(Verdict(error))


class _Both:
    """Whoever waits for the two parts of a change: told when both are known, of an error if any."""

    __slots__ = ("_known", "_ticket")

    def __init__(self, ticket: Any) -> None:
        self._ticket = ticket
        self._known: Verdict | None = None

    def done(self) -> bool:
        return bool(self._ticket.done())

    def set_result(self, verdict: Verdict) -> None:
        if self._known is None:
            self._known = verdict
        else:
            self._ticket.set_result(self._known if self._known.error else verdict)
