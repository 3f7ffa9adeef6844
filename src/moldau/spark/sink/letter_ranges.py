"""Letter ranges: the offsets whose dead letters are written, as the commit log says. Without I/O.

A task that found records which do not parse stages their letters, and appends the range of offsets
that it read with the transaction that has the letters. The first such entry of a range counts;
another attempt at the same records sees it, and aborts its own. Whoever comes by commits the
transaction of an entry that counts. If it is lost, the entry is void, and the letters are written
anew: the batch of the task that died is not done.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import msgspec

from moldau.peer.coordinators import PreparedTransaction

# Entries of this many batches are kept; only the last batch of a query can run again.
KEPT_BATCHES = 2
# A single reading is over after this long, and nobody comes back for its entries.
SINGLE_MS = 24 * 3600 * 1000
SINGLE = -1

# The first offset, and the one after the last.
Range = tuple[int, int]


def without(ranges: Iterable[Range], covered: Iterable[Range]) -> tuple[Range, ...]:
    """Return what is left of the ranges."""
    left = list(ranges)
    for start, end in covered:
        left = [
            piece
            for first, last in left
            for piece in ((first, min(last, start)), (max(first, end), last))
            if piece[0] < piece[1]
        ]
    return tuple(left)


class Letters(msgspec.Struct, frozen=True, tag="letters"):
    """The letters for ranges of offsets; `batch` is SINGLE outside a stream."""

    scope: str
    topic: str
    partition: int
    ranges: tuple[Range, ...]
    batch: int
    transaction: PreparedTransaction
    at_ms: int

    def overlaps(self, other: Letters) -> bool:
        return (self.topic, self.partition) == (other.topic, other.partition) and any(
            start < other_end and other_start < end
            for start, end in self.ranges
            for other_start, other_end in other.ranges
        )


class LettersEnded(msgspec.Struct, frozen=True, tag="letters-ended"):
    """The letters are committed, or `is_void`: they never will be."""

    scope: str
    transaction: PreparedTransaction
    at_ms: int
    is_void: bool = False


@dataclass(slots=True)
class Counted:
    """An entry that counts, with the keys of all records about it."""

    letters: Letters
    keys: list[bytes]
    is_ended: bool = False


@dataclass(slots=True)
class Scope:
    """The entries of one source in one query."""

    counted: list[Counted] = field(default_factory=list)
    garbage: list[bytes] = field(default_factory=list)

    def overlapping(self, letters: Letters) -> list[Counted]:
        return [each for each in self.counted if each.letters.overlaps(letters)]

    def removable(self, batch: int, now_ms: int) -> list[bytes]:
        """Return the keys of what no longer matters when `batch` is being written."""
        old = [
            key
            for each in self.counted
            if each.is_ended
            and (
                each.letters.at_ms < now_ms - SINGLE_MS
                if each.letters.batch == SINGLE
                else each.letters.batch <= batch - KEPT_BATCHES
            )
            for key in each.keys
        ]
        return [*self.garbage, *old]


class LetterRanges:
    """All scopes, after the records of the log were applied in their order."""

    def __init__(self) -> None:
        self.scopes: dict[str, Scope] = {}
        self._scope_of: dict[bytes, str] = {}

    def of(self, scope: str) -> Scope:
        return self.scopes.get(scope) or Scope()

    def apply(self, key: bytes, entry: Letters | LettersEnded) -> None:
        scope = self.scopes.setdefault(entry.scope, Scope())
        self._scope_of[key] = entry.scope
        if isinstance(entry, Letters):
            if scope.overlapping(entry):
                scope.garbage.append(key)
            else:
                scope.counted.append(Counted(entry, [key]))
            return
        for each in scope.counted:
            if each.letters.transaction == entry.transaction:
                each.keys.append(key)
                each.is_ended = True
                if entry.is_void:
                    scope.counted.remove(each)
                    scope.garbage += each.keys
                return
        scope.garbage.append(key)

    def forget(self, key: bytes) -> None:
        """A tombstone: the record is about to be gone."""
        name = self._scope_of.pop(key, None)
        if name is None:
            return
        scope = self.scopes[name]
        scope.garbage = [each for each in scope.garbage if each != key]
        for each in scope.counted:
            each.keys = [kept for kept in each.keys if kept != key]
        scope.counted = [each for each in scope.counted if each.keys]
        if not (scope.counted or scope.garbage):
            del self.scopes[name]
