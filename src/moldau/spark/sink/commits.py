"""Commits: what the log of claims and decisions says, as values, without I/O or clock.

    record     who writes it                      what it means
    Claim      the first tasks of a run           from here on this run decides for the query
    Decision   the driver, once all is staged     commit these transactions; they are the batch
    Ended      whoever ended the last of them     all of them have ended
    Over       the driver, if its write failed    tasks of this run stage nothing more; a claim by
                                                  nobody follows, so that no decision counts either
    Letters    a task that read bad records       see `letter_ranges`

A run is one life of a query's driver. A decision counts only if the last claim of its query before
it in the log is its own run's, and if no decision for this batch or a later one counts already. So
the order of the log decides between two drivers, whatever either of them believes, and everybody
who reads the log comes to the same result.

The topic is compacted, and compaction must not change that result: a record that replaced another
would move to a later place. So every append has a key of its own, in every attempt. What no longer
matters is deleted by tombstones: a decision with an end once a later one has ended, decisions and
claims that never counted, and all but the last `KEPT_CLAIMS` claims, unless the last decision or a
claim that is kept counts because of one. Once a record is one of these, it stays one. A claim is
deleted only when nothing is left of its run: what a run has staged is known to be a stray by it.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import msgspec

from moldau.peer.coordinators import PreparedTransaction
from moldau.spark.sink.letter_ranges import LetterRanges, Letters, LettersEnded

# Claims of runs that are over. They tell a driver that slept for long that it is no longer the one.
KEPT_CLAIMS = 20
# No task of a write outlives it by this long.
OVER_MS = 24 * 3600 * 1000


class Claim(msgspec.Struct, frozen=True, tag="claim"):
    """A run takes over a query. `is_single` queries have one batch, and nobody asks again.

    With `after` it counts only if that run has the query: nobody takes over from one that failed,
    and leaves alone whoever has done so already. `seen` is the end of the log when the run looked
    who has the query: a claim does not count if that of another run stands between there and it.
    So one that arrives late, when its run is dead, takes nothing from the next. Earlier versions do
    not say what they have seen, and their claims count.
    """

    query: str
    run: str
    at_ms: int
    is_single: bool = False
    after: str | None = None
    seen: int | None = None


class Decision(msgspec.Struct, frozen=True, tag="decision"):
    """The transactions that are a batch. Those that are `is_two_phase` cannot time out."""

    query: str
    run: str
    batch: int
    transactions: tuple[PreparedTransaction, ...]
    is_two_phase: bool
    at_ms: int


class Ended(msgspec.Struct, frozen=True, tag="ended"):
    """A decision is carried out; `lost` is what somebody gave up."""

    query: str
    run: str
    batch: int
    at_ms: int
    lost: tuple[str, ...] = ()


class Over(msgspec.Struct, frozen=True, tag="failed"):
    """The driver of a run has given up, and aborts what it finds staged.

    A task looks for this once it has an identity: what it begins is either found, or never written.
    This is also all that is left of a single write that was `carried_out`, for its late tasks and
    for its driver; `lost` is what somebody gave up. Earlier versions do not say so.
    """

    run: str
    at_ms: int
    carried_out: bool = False
    lost: tuple[str, ...] = ()


Entry = Claim | Decision | Ended | Over | Letters | LettersEnded
_decode = msgspec.json.Decoder(Entry).decode
encode = msgspec.json.Encoder().encode


@dataclass(slots=True)
class Query:
    """What counts for one query. `garbage` are the keys of records that no longer matter."""

    run: str | None = None
    claimed_ms: int = -1
    # The offset of the last claim.
    claimed_at: int = -1
    is_single: bool = False
    claims: list[tuple[bytes, Claim]] = field(default_factory=list)
    last: Decision | None = None
    is_ended: bool = True
    garbage: list[bytes] = field(default_factory=list)
    # The keys of the last decision and of what says that it has ended.
    current: list[bytes] = field(default_factory=list)

    @property
    def earlier_runs(self) -> set[str]:
        """The runs that another one took over from."""
        return {claim.run for _, claim in self.claims if claim.run != self.run}

    @property
    def unended(self) -> Decision | None:
        """The decision that is still to be carried out."""
        return None if self.is_ended else self.last

    def overtook(self, claim: Claim) -> bool:
        """Return whether another run has claimed what this claim's run had not seen."""
        return (
            claim.seen is not None
            and self.run not in (None, claim.run)
            and self.claimed_at >= claim.seen
        )

    def has_decided(self, batch: int) -> bool:
        return self.last is not None and batch <= self.last.batch

    def removable(self) -> list[bytes]:
        """Return the keys of what does not matter once the last decision has ended."""
        if self.is_single:
            return [*self.garbage, *self.current, *(key for key, _ in self.claims)]
        return list(self.garbage)

    def old_claims(self) -> list[bytes]:
        """Return the keys of claims that do not matter once nothing of their runs is open."""
        run = None if self.last is None else self.last.run
        old = self.claims[:-KEPT_CLAIMS]
        if old and self.claims[len(old)][1].after is not None:
            # The one before it is what lets it count.
            old.pop()
        return [key for key, claim in old if claim.run != run]

    def forget(self, key: bytes) -> None:
        """A tombstone: the record is about to be gone."""
        self.garbage = [each for each in self.garbage if each != key]
        self.current = [each for each in self.current if each != key]
        self.claims = [each for each in self.claims if each[0] != key]


class Commits:
    """All queries, after the records of the log were applied in their order."""

    def __init__(self) -> None:
        self.queries: dict[str, Query] = {}
        self.letters = LetterRanges()
        self._over: dict[bytes, Over] = {}
        self._runs_over: Counter[str] = Counter()
        self._query_of: dict[bytes, str] = {}

    def of(self, query: str) -> Query:
        return self.queries.get(query) or Query()

    def is_over(self, run: str) -> bool:
        return self._runs_over[run] > 0

    def carried_out(self, run: str) -> Over | None:
        """Return what is left of a single write whose decision was carried out."""
        overs = (each for each in self._over.values() if each.run == run)
        return next((each for each in overs if each.carried_out), None)

    def outdated(self, now_ms: int) -> list[bytes]:
        """Return the keys of what is said about runs that were over long ago."""
        old = {key: each.run for key, each in self._over.items() if each.at_ms < now_ms - OVER_MS}
        # A single query has the name of its run.
        singles = [self.of(run) for run in set(old.values())]
        claims = [
            key
            for each in singles
            if (each.is_single or each.run is None) and each.unended is None
            for key in each.removable()
        ]
        return [*old, *claims]

    def apply(self, key: bytes, value: bytes | None, offset: int = -1) -> None:
        """Take the next record. Those of other kinds, of a later version, are passed over."""
        if value is None:
            self.letters.forget(key)
            over = self._over.pop(key, None)
            if over is not None:
                self._runs_over[over.run] -= 1
                if not self._runs_over[over.run]:
                    del self._runs_over[over.run]
            name = self._query_of.pop(key, None)
            if name is not None:
                query = self.queries[name]
                query.forget(key)
                if not (query.claims or query.current or query.garbage):
                    del self.queries[name]
            return
        try:
            entry = _decode(value)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return
        if isinstance(entry, Letters | LettersEnded):
            self.letters.apply(key, entry)
            return
        if isinstance(entry, Over):
            self._over[key] = entry
            self._runs_over[entry.run] += 1
            return
        query = self.queries.setdefault(entry.query, Query())
        self._query_of[key] = entry.query
        if isinstance(entry, Claim):
            is_late = entry.is_single and self.is_over(entry.run)
            if is_late or entry.after not in (None, query.run) or query.overtook(entry):
                query.garbage.append(key)
                return
            query.claims.append((key, entry))
            query.is_single, query.claimed_ms = entry.is_single, entry.at_ms
            query.run, query.claimed_at = entry.run, offset
        elif isinstance(entry, Decision):
            if entry.run == query.run and not query.has_decided(entry.batch):
                query.garbage += query.current
                query.last, query.is_ended, query.current = entry, False, [key]
            else:
                query.garbage.append(key)
        elif query.last is not None and (entry.run, entry.batch) == (
            query.last.run,
            query.last.batch,
        ):
            query.is_ended = True
            query.current.append(key)
        else:
            query.garbage.append(key)
