"""Committing: how staged transactions become a batch, once.

A decision is appended to the commit log and read back. If it counts, all of its transactions are
committed, by whoever comes by: the driver that decided, the next run of the query, or `moldau
transactions recover`. To commit one again is harmless. Whatever else was staged is aborted.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Mapping, Sequence
from uuid import uuid4

from moldau.peer.cluster import Cluster
from moldau.peer.coordinators import LOST, Coordinators, PreparedTransaction
from moldau.peer.errors import PeerError, name_of
from moldau.peer.transactions import SINK_PREFIX
from moldau.spark.errors import WriteFailed
from moldau.spark.sink.commit_log import CommitLog
from moldau.spark.sink.commits import Claim, Decision, Ended, Entry, Over, Query
from moldau.wire.errors import Error

log = logging.getLogger("moldau.spark")

# How long to wait for coordinators that cannot be asked what attempts of tasks have left open.
SWEEP_WITHIN_S = 30.0


class Fenced(WriteFailed):
    """Another run of the query took over."""

    def __init__(self, query: str, run: str, by: str | None) -> None:
        super().__init__(
            f"run {run} of query {query!r} can no longer write: run {by} has taken over. Do two "
            "drivers use the same checkpoint or the same txnAppId?"
        )


class AlreadyDecided(WriteFailed):
    """The run has decided about the batch, without what is written now."""

    def __init__(self, query: str, run: str, batch: int) -> None:
        super().__init__(
            f"batch {batch} of query {query!r} accepts no more rows: run {run} has decided it. "
            "Unless this is a late attempt of a task, the batch is written to the same topic "
            "twice. The rows of the second write are not in the topic, and a restart skips the "
            "batch: write the union of the frames, or give each write a different txnAppId"
        )


class Stopped(WriteFailed):
    """The run has failed, or was a single write, which is done."""

    def __init__(self, query: str, run: str) -> None:
        super().__init__(f"run {run} of query {query!r} can no longer write: it is over")


class Undone(WriteFailed):
    """A decision was not carried out, or not in whole."""


class EndRefused(Undone):
    """A coordinator refused to commit transactions that were decided; they are open still."""

    def __init__(self, decision: Decision, refused: Mapping[str, int]) -> None:
        names = _some([f"{id} ({name_of(code)})" for id, code in refused.items()])
        keep = "nothing is lost" if decision.is_two_phase else "nothing is lost until they time out"
        super().__init__(
            f"batch {decision.batch} of query {decision.query!r} is decided, but {len(refused)} of "
            f"its {len(decision.transactions)} transactions could not be committed: {names}; "
            f"{keep}. Once the reason is gone, the next run of the query commits them, or "
            "`moldau transactions recover`; do not abort them"
        )


class TransactionLost(Undone):
    """Transactions that were decided to be committed were aborted instead."""

    def __init__(self, decision: Decision, lost: Sequence[str]) -> None:
        names = _some(lost)
        super().__init__(
            f"batch {decision.batch} of query {decision.query!r} was decided, but "
            f"{len(lost)} of its {len(decision.transactions)} transactions were aborted before "
            f"they could be committed: {names}. They timed out, or somebody aborted them; their "
            "rows are not in the topic and were not sent again. Once they are dealt with, "
            f"`moldau transactions recover --give-up {decision.query}` lets the query go on "
            "after this batch"
        )
        self.lost = tuple(lost)


def transactional_id(query: str, run: str, writer: str) -> str:
    return f"{SINK_PREFIX}{query}/{run}/{writer}"


def parts_of(id: str) -> tuple[str, str]:
    """Return the query and the run of a transactional id; two empty texts if it is not a sink's."""
    parts = id.removeprefix(SINK_PREFIX).rsplit("/", 2)
    return (parts[0], parts[1]) if id.startswith(SINK_PREFIX) and len(parts) == 3 else ("", "")


class Committer:
    """The commit log and the coordinators of a cluster, for one thread."""

    def __init__(self, cluster: Cluster) -> None:
        self.log = CommitLog(cluster)
        self.coordinators = Coordinators(cluster)
        self._has_topic = False

    def read(self, query: str) -> Query:
        """Return what counts for a query, as of now."""
        if not self._has_topic:
            self.log.require()
            self._has_topic = True
        return self.log.read().of(query)

    def claim(self, query: str, run: str, *, is_single: bool = False) -> Query:
        """Take over the query, unless this run has done so, and finish what was decided before.

        Only after this may the run stage anything. Fenced if another run took over from it, Stopped
        if it is over.
        """
        found = self.read(query)
        # Again, if a claim that this one did not see came first: it may be that of a dead run.
        while found.run != run or self.log.commits.is_over(run):
            if self.log.commits.is_over(run):
                raise Stopped(query, run)
            if run in found.earlier_runs:
                raise Fenced(query, run, found.run)
            now_ms = self.log.now_ms()
            claim = Claim(query, run, now_ms, is_single, seen=self.log.position)
            self.log.append([claim], self.log.commits.outdated(now_ms))
            found = self.log.commits.of(query)
        self.finish(query)
        self.finish_singles()
        return self.log.commits.of(query)

    def check(self, query: str, run: str, batch: int) -> None:
        """Raise an error if the batch has gone on without the task that asks, or is over.

        A task asks once it has an identity, and before it writes. Whoever decides or gives up says
        so in the log, and fences all identities that are known then: either it finds this one, or
        the task finds its word. So a task that is killed leaves nothing that nobody knows of.
        """
        found = self.read(query)
        if self.log.commits.is_over(run):
            raise Stopped(query, run)
        if found.run != run:
            raise Fenced(query, run, found.run)
        if found.has_decided(batch):
            raise AlreadyDecided(query, run, batch)

    def commit(
        self,
        query: str,
        run: str,
        batch: int,
        transactions: Sequence[PreparedTransaction],
        *,
        is_two_phase: bool,
    ) -> bool:
        """Decide that these transactions are the batch, and commit them; False if an earlier run
        decided about it.

        Then these are aborted, as they are if another run took over, which is Fenced, and if this
        one decided for other transactions, which is AlreadyDecided: other rows than these.
        """
        mine = Decision(query, run, batch, tuple(transactions), is_two_phase, self.log.now_ms())
        before = self.read(query)
        if before.run == run and not before.has_decided(batch):
            self.log.append([mine])
        found = self.log.commits.of(query)
        # Somebody else may have carried it out, and deleted what is said of a single write.
        is_over = self.log.commits.carried_out(run) is not None
        is_mine = is_over or (before.last is not None and _same(before.last, mine))
        if not is_mine:
            self.abort(transactions)
            if found.run is None:
                raise Stopped(query, run)
            if found.run != run:
                raise Fenced(query, run, found.run)
            if found.last is not None and found.last.run == run:
                raise AlreadyDecided(query, run, batch)
        if is_mine and found.unended is None:
            # They have ended; this returns when their rows can be read.
            self.coordinators.end(transactions, commits=True)
        self.finish(query)
        over = self.log.commits.carried_out(run)
        if over is not None and over.lost:
            raise TransactionLost(mine, over.lost)
        if before.run == run and self.sweep(query, run, before.earlier_runs):
            self._tidy(query)
        return is_mine

    def finish(self, query: str) -> None:
        """Carry out the last decision of the query, if that is not known to be done."""
        found = self.log.commits.of(query)
        decision = found.unended
        if decision is None:
            return
        codes = self.coordinators.end(decision.transactions, commits=True)
        undone = {each.id: code for each, code in codes.items() if not _is_done(code, decision)}
        if undone:
            # Whoever ended them before us may have used their ids again since: it has said so.
            found = self.read(query)
            if found.unended is not decision:
                return
            refused = {id: code for id, code in undone.items() if code not in LOST}
            # First of all: whoever gives up the lost ones would lose these, too.
            if refused:
                raise EndRefused(decision, refused)
            raise TransactionLost(decision, list(undone))
        self._ended(found, decision)
        # Once more, to return when the rows can be read.
        self.coordinators.end(decision.transactions, commits=True)

    def give_up(self, query: str) -> tuple[str, ...]:
        """Finish the last decision, whatever was lost of it; return what was lost."""
        try:
            self.finish(query)
        except TransactionLost as problem:
            found = self.log.commits.of(query)
            if found.unended is not None:
                self._ended(found, found.unended, problem.lost)
            return problem.lost
        return ()

    def finish_singles(self) -> None:
        """Finish decided writes whose drivers will not come back."""
        for query, found in list(self.log.commits.queries.items()):
            if found.is_single and found.unended is not None:
                try:
                    self.finish(query)
                except (Undone, PeerError) as problem:
                    log.error("could not finish the decided write %r: %s", query, problem)

    def sweep(self, query: str, run: str, earlier: Iterable[str]) -> bool:
        """Abort what this run and those before it have staged and not decided; False if that
        failed.

        A task that has not written yet is fenced: what it has sent may arrive after it was killed.
        Runs that this one does not know of are later ones, and are left alone. What was decided
        does not depend on any of this, so nothing fails here.
        """
        try:
            self._sweep(query, run, earlier)
        except PeerError as problem:
            log.warning(
                "could not find or abort the open transactions of query %r: %s. Transactions that "
                "attempts of tasks left open hold read-committed consumers back until the next "
                "commit of the query, or until `moldau transactions recover`",
                query,
                problem,
            )
            return False
        return True

    def _sweep(self, query: str, run: str, earlier: Iterable[str]) -> None:
        decision = self.log.commits.of(query).unended
        decided = {each.id for each in decision.transactions} if decision is not None else set()
        known = {run, *earlier}
        strays = [
            id
            for id in self.ongoing(query, with_begun=True, within_s=SWEEP_WITHIN_S)
            if parts_of(id)[1] in known and id not in decided
        ]
        self.coordinators.abort(strays)

    def fail(self, query: str, run: str, *, is_single: bool) -> None:
        """Give the run up: stop its tasks, and abort what it has staged and not decided."""
        found = self.read(query)
        now_ms = self.log.now_ms()
        entries: list[Entry] = [Over(run, now_ms)]
        if found.run == run:
            # A decision of this run that is on its way does not count either.
            entries.append(Claim(query, f"failed-{uuid4().hex}", now_ms, is_single, after=run))
        self.log.append(entries)
        self.sweep(query, run, ())

    def ongoing(
        self,
        query: str | None = None,
        older_than_ms: int = -1,
        *,
        with_begun: bool = False,
        within_s: float | None = None,
    ) -> list[str]:
        """Return the ids of open transactions of sinks, or of one query's; see `Coordinators`."""
        start = SINK_PREFIX if query is None else f"{SINK_PREFIX}{query}/"
        found = self.coordinators.ongoing(
            _quoted(start) + ".*", older_than_ms, with_begun=with_begun, within_s=within_s
        )
        return [id for id in found if parts_of(id)[1] and query in (None, parts_of(id)[0])]

    def abort(self, transactions: Iterable[PreparedTransaction]) -> None:
        """Abort staged transactions that nobody decided for.

        By their identities: an id that is in use again belongs to somebody else.
        """
        codes = self.coordinators.end(transactions, commits=False)
        for transaction, code in codes.items():
            if code:
                log.info("could not abort transaction %r: %s", transaction.id, name_of(code))
        # Once more, to return when they hold no reader back.
        self.coordinators.end([each for each, code in codes.items() if not code], commits=False)

    def _tidy(self, query: str) -> None:
        found = self.log.commits.of(query)
        if found.unended is not None:
            return
        old = found.old_claims()
        # A decision that was appended again when a single write was over is nobody's.
        if old or (found.run is None and found.garbage):
            # A claim that does not count goes with the one that overtook it, or else it would.
            self.log.append([], [*found.garbage, *old])

    def _ended(self, found: Query, decision: Decision, lost: tuple[str, ...] = ()) -> None:
        entry = Ended(decision.query, decision.run, decision.batch, self.log.now_ms(), lost)
        # Nobody asks for a single write again, but for attempts of its tasks that begin too late.
        over = Over(decision.run, entry.at_ms, carried_out=True, lost=lost)
        self.log.append([over if found.is_single else entry], found.removable())


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")


def _same(one: Decision, other: Decision) -> bool:
    return (one.run, one.batch, one.transactions) == (other.run, other.batch, other.transactions)


def _is_done(code: int, decision: Decision) -> bool:
    """Return whether a transaction is committed, by the answer to its end.

    An id that is no longer known has expired, and no open transaction of two phases does.
    """
    return code == Error.NONE or (
        decision.is_two_phase and code == Error.INVALID_PRODUCER_ID_MAPPING
    )


def _quoted(text: str) -> str:
    """Return a pattern of RE2 that matches the text."""
    return re.sub(r"([^A-Za-z0-9_/-])", r"\\\1", text) if text.isascii() else _hexed(text)


def _hexed(text: str) -> str:
    return "".join(f"\\x{{{ord(each):x}}}" for each in text)
