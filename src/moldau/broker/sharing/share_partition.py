"""Share partitions: which records of a partition a share group still has to work off (KIP-932).

Records before `start` are finished. Those from `end` on were never given to anybody. Each of those
between is in one of four states:

    Available      may be given to a member: it is new here, was released, or its lock ran out
    Acquired       a member has it and holds its lock, which runs out at a known time
    Acknowledged   finished: a member has worked it off
    Archived       finished: it was rejected, is out of tries, or is not there (a gap)

    from           what happens                                   to
    Available      a member acquires it: one more delivery        Acquired
    Acquired       its member accepts it                          Acknowledged
    Acquired       its member rejects it, or says it is a gap     Archived
    Acquired       its member renews it                           Acquired, with a later lock
    Acquired       its member releases it, or goes away, or       Available; Archived if it has been
                   the lock runs out                              delivered as often as is allowed
    any            the log begins after it                        gone: `start` moves

What members say, and what ends a record, is written down before it counts: a `Change` holds its
records where they are until the coordinator of the state has it (`queue`, `begin_write`,
`end_write`), or takes it back. Only one write is under way at a time, so that they arrive in order.
That a lock ran out needs no such care: if it is forgotten, the record is Available all the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from moldau.broker.coordination.share.batches import (
    ACKNOWLEDGED,
    ACQUIRED,
    ARCHIVED,
    AVAILABLE,
    FINISHED,
    RecordState,
    StateBatch,
)
from moldau.broker.sharing.delivery import (
    ANOTHERS,
    NOT_ACQUIRED,
    NOTHING_THERE,
    TOO_FAR,
    AcknowledgedRange,
    Acknowledgement,
    Acquired,
    Change,
    Dead,
    Limits,
    Verdict,
    Written,
)
from moldau.broker.sharing.runs import NEVER, Run, Runs, add_acquired


class SharePartition:
    """One partition as one share group sees it. No I/O, no clock: times are given, in milliseconds
    of a clock that only goes forward.

    The runs cover all offsets from `start` to before `end`. `due_at` is when `expire` wants to be
    called next. `redelivered` counts deliveries after the first, `expired` locks that ran out, and
    `dead` records that were given up.
    """

    __slots__ = (
        "_dirty", "_dirty_under_way", "_queued", "_runs", "_start_is_dirty", "_start_under_way",
        "_under_way", "dead", "due_at", "end", "expired", "limits", "redelivered", "start",
    )  # fmt: skip

    def __init__(
        self, start: int, batches: Iterable[StateBatch] = (), limits: Limits | None = None
    ) -> None:
        self.start = self.end = start
        self.limits = limits or Limits()
        self.due_at = NEVER
        self.redelivered = self.expired = self.dead = 0
        self._runs = Runs()
        self._queued: list[Change] = []
        self._under_way: list[Change] | None = None
        # Ranges that changed without a Change: to be written at the next occasion.
        self._dirty: list[tuple[int, int]] = []
        self._dirty_under_way: list[tuple[int, int]] = []
        self._start_is_dirty = self._start_under_way = False
        for batch in sorted(batches):
            first = max(batch.first, self.end)
            if first > batch.last:
                continue
            if first > self.end:
                # Given to somebody by a leader that did not live to write about it.
                self._runs.append(Run(self.end, first - 1, AVAILABLE, 0))
            state = RecordState(batch.state)
            self._runs.append(
                Run(first, batch.last, state if state in FINISHED else AVAILABLE, batch.deliveries)
            )
            self.end = batch.last + 1
        self._join(start, self.end)

    # Giving records out

    @property
    def next_offset(self) -> int:
        """The first record that may be given out: an Available one, or `end`."""
        for run in self._runs:
            if run.state is AVAILABLE:
                return run.first
        return self.end

    @property
    def in_flight(self) -> int:
        """The number of records that count against the limit."""
        return self.end - self.start

    @property
    def may_acquire(self) -> bool:
        """Whether anything may be given out, as far as is known here."""
        return self.in_flight < self.limits.records or self.next_offset < self.end

    def acquire(
        self,
        member: str,
        batches: Sequence[tuple[int, int]],
        most: int,
        now: int,
        *,
        batch_size: int = 1 << 31,
        is_exact: bool = False,
    ) -> list[Acquired]:
        """Give a member what may be given of `batches`: the first and last offsets of the log's
        batches, in order, read from `next_offset` on.

        About `most` records, to the end of a batch; not one more where it `is_exact` (KIP-1206).
        The ranges that are returned end with batches, and have about `batch_size` records each.
        """
        taken: list[tuple[int, int]] = []
        total = fresh = 0
        room = self.limits.records - self.in_flight
        follows = self.next_offset
        for base, last in batches:
            if total >= most:
                break
            # Offsets between batches were compacted away: who is given them says so.
            for first, until in self._available(min(base, follows), min(last, self.end - 1)):
                until = min(until, first + most - total - 1) if is_exact else until
                if first <= until:
                    taken.append((first, until))
                    total += until - first + 1
            first = self.end + fresh
            if first <= last and total < most and fresh < room:
                until = min(last, first + min(most - total, room - fresh) - 1) if is_exact else last
                taken.append((first, until))
                total += until - first + 1
                fresh += until - first + 1
            follows = last + 1
        if not taken:
            return []
        if fresh:
            self._runs.append(Run(self.end, self.end + fresh - 1, AVAILABLE, 0))
            self.end += fresh
        locked_until = now + self.limits.lock_ms
        acquired: list[Acquired] = []
        for first, last in taken:
            for run in self._runs.cut(first, last):
                self.redelivered += (run.last - run.first + 1) if run.deliveries else 0
                run.state = run.to = ACQUIRED
                run.deliveries += 1
                run.member = member
                run.locked_until = locked_until
                add_acquired(acquired, run, batch_size)
        self.due_at = min(self.due_at, locked_until)
        self._join(taken[0][0], taken[-1][1])
        return acquired

    def _available(self, first: int, last: int) -> list[tuple[int, int]]:
        found = self._runs.overlapping(first, last)
        return [(max(r.first, first), min(r.last, last)) for r in found if r.state is AVAILABLE]

    def withhold(self, first: int, last: int) -> None:
        """Archive records that nobody is to see: their transaction was aborted."""
        for run in self._runs.cut(max(first, self.start), min(last, self.end - 1)):
            if run.change is None and run.state not in FINISHED:
                run.settle(ARCHIVED)
                self._dirty.append((run.first, run.last))
        self._start_is_dirty = True
        self._join(first, last)

    # What members say

    def acknowledge(
        self, member: str, ranges: Sequence[AcknowledgedRange], now: int, ticket: Any = None
    ) -> Change | Verdict:
        """Take in what a member says of records that it was given: all of it, or nothing.

        The change is to be queued as soon as it may be written. What is finished, before `start`,
        may be said again; of all other records the member has to have the lock.
        """
        follows = -1
        for each in ranges:
            if each.last >= self.end:
                return TOO_FAR if self._runs else NOTHING_THERE
            if each.first < follows:
                return NOT_ACQUIRED
            follows = each.last + 1
            for run in self._runs.overlapping(each.first, each.last):
                if run.state is ACQUIRED and run.member != member:
                    return ANOTHERS
                if run.state is not ACQUIRED or run.change is not None or run.locked_until <= now:
                    return NOT_ACQUIRED
        change = Change(ticket)
        for each in ranges:
            for begin, until, kind in each.parts():
                self._say(max(begin, self.start), until, kind, change, now)
            self._join(each.first, each.last)
        return change

    def _say(self, first: int, last: int, kind: int, change: Change, now: int) -> None:
        for run in self._runs.cut(first, last):
            if kind == Acknowledgement.RENEW:
                run.locked_until = now + self.limits.lock_ms
            elif kind == Acknowledgement.RELEASE:
                self._hold(run, self._released(run, change), change)
            elif kind == Acknowledgement.ACCEPT:
                self._hold(run, ACKNOWLEDGED, change)
            else:
                self._hold(run, ARCHIVED, change)
                if kind == Acknowledgement.REJECT:
                    change.dead.append(Dead(run.first, run.last, run.deliveries, True))

    def _hold(self, run: Run, to: RecordState, change: Change) -> None:
        run.to = to
        run.change = change
        change.ranges.append((run.first, run.last))

    def _released(self, run: Run, change: Change) -> RecordState:
        """Decide what becomes of a record that nobody has any more."""
        if run.deliveries < self.limits.deliveries:
            return AVAILABLE
        change.dead.append(Dead(run.first, run.last, run.deliveries, False))
        return ARCHIVED

    def leave(self, member: str) -> Change | None:
        """Release all that a member has, which is gone. The change has what is out of tries by
        that, and is to be queued."""
        return self._release([run for run in self._runs if run.member == member])

    def expire(self, now: int) -> Change | None:
        """Release what is locked no longer, as `leave` does."""
        if now < self.due_at:
            return None
        due = [run for run in self._runs if run.locked_until <= now and run.change is None]
        for run in due:
            # It has no holder from here on, even if it cannot be given up yet.
            self.expired += (run.last - run.first + 1) if run.member else 0
            run.member = ""
        change = self._release(due)
        # What a write holds is looked at when the write has failed.
        self.due_at = min(
            (run.locked_until for run in self._runs if run.change is None), default=NEVER
        )
        return change

    def _release(self, runs: Iterable[Run]) -> Change | None:
        change = Change()
        touched = []
        for run in runs:
            if run.state is not ACQUIRED or run.change is not None:
                continue
            touched.append((run.first, run.last))
            if self._released(run, change) is ARCHIVED:
                self._hold(run, ARCHIVED, change)
            else:
                run.settle(AVAILABLE)
                self._dirty.append((run.first, run.last))
        for each in touched:
            self._join(*each)
        return change if change.ranges else None

    def move_start(self, log_start: int) -> None:
        """Forget records that the log does not have any more."""
        if log_start > self.start:
            self._runs.drop_before(log_start)
            self.start = log_start
            self.end = max(self.end, log_start)
            self._start_is_dirty = True
            self._join(log_start, log_start)

    # Writing it down

    def divide(self, change: Change) -> Change:
        """Leave in a change only what dies with it; return the rest, to be written apart."""
        return self._runs.divide(change)

    def queue(self, change: Change) -> None:
        """Have a change written with the next write."""
        self._queued.append(change)

    def take_back(self, change: Change, again_at: int = 0) -> None:
        """Leave everything as it was before a change that cannot be written. What is locked no
        longer is due again at `again_at`."""
        for first, last in change.ranges:
            for run in self._runs.overlapping(first, last):
                if run.change is change:
                    run.change = None
                    run.to = run.state
                    if not run.member:
                        run.locked_until = max(run.locked_until, again_at)
                    self.due_at = min(self.due_at, run.locked_until)
            self._join(first, last)

    @property
    def needs_write(self) -> bool:
        """Whether there is something to write, and no write under way."""
        has_news = bool(self._queued or self._dirty or self._start_is_dirty)
        return has_news and self._under_way is None

    @property
    def is_written(self) -> bool:
        """Whether there is nothing to write, and no write under way."""
        return self._under_way is None and not self.needs_write

    def begin_write(self) -> Written:
        """Return all that is to be written now; `end_write` says what came of it."""
        assert self._under_way is None
        self._under_way, self._queued = self._queued, []
        self._dirty_under_way, self._dirty = self._dirty, []
        self._start_under_way, self._start_is_dirty = self._start_is_dirty, False
        changes = set(self._under_way)
        start, finished = self.start, 0
        batches: list[StateBatch] = []
        for run in self._runs:
            is_changed = run.change in changes
            state = run.to if is_changed else run.state
            if state in FINISHED and start == run.first:
                start = run.last + 1
                continue
            finished += (run.last - run.first + 1) if state in FINISHED else 0
            if is_changed or (run.change is None and state is not ACQUIRED and self._is_dirty(run)):
                batches.append(StateBatch(run.first, run.last, int(state), run.deliveries))
        return Written(start, finished, tuple(batches))

    def _is_dirty(self, run: Run) -> bool:
        return any(first <= run.last and last >= run.first for first, last in self._dirty_under_way)

    def end_write(self, *, succeeded: bool) -> list[Change]:
        """Let what was written count, or take it back; return the changes that it was."""
        changes, self._under_way = self._under_way, None
        assert changes is not None
        if not succeeded:
            self._dirty += self._dirty_under_way
            self._start_is_dirty |= self._start_under_way
        self._dirty_under_way = []
        for change in changes:
            if not succeeded:
                self.take_back(change)
                continue
            self.dead += sum(each.last - each.first + 1 for each in change.dead)
            for first, last in change.ranges:
                for run in self._runs.overlapping(first, last):
                    if run.change is change:
                        run.settle(run.to)
                self._join(first, last)
        return changes

    @property
    def waiting(self) -> list[Change]:
        """All changes that are queued or being written."""
        return [*(self._under_way or ()), *self._queued]

    # What it looks like

    def batches(self) -> list[StateBatch]:
        """Return the states of all records from `start` to `end`."""
        return [StateBatch(r.first, r.last, int(r.state), r.deliveries) for r in self._runs]

    def holder(self, offset: int) -> str:
        """Return the member that has the lock of a record; empty if nobody has."""
        return next((run.member for run in self._runs.overlapping(offset, offset)), "")

    def count(self, state: RecordState) -> int:
        """Count the records from `start` to `end` in a state."""
        return sum(run.last - run.first + 1 for run in self._runs if run.state is state)

    def _join(self, first: int, last: int) -> None:
        """Tidy up around these offsets: join what is alike, and move `start` over what is
        finished."""
        self._runs.join(first, last)
        items = self._runs.items
        if items and items[0].state in FINISHED:
            done = 0
            while done < len(items) and items[done].state in FINISHED:
                done += 1
            self.start = items[done - 1].last + 1
            del items[:done]
