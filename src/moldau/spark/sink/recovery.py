"""Recovery: ends what drivers that died have left behind."""

from __future__ import annotations

from dataclasses import dataclass, field
from uuid import uuid4

from moldau.peer.cluster import Cluster
from moldau.spark.names import COMMITS
from moldau.spark.sink.commits import Over
from moldau.spark.sink.committing import Committer, TransactionLost, Undone, parts_of


@dataclass(slots=True)
class Recovered:
    """What was done for one query.

    `lost` or `refused` is why its decision could not be carried out, for good or for now.
    """

    query: str
    finished_batch: int | None = None
    aborted: list[str] = field(default_factory=list)
    lost: str | None = None
    refused: str | None = None
    given_up: tuple[str, ...] = ()

    def say(self, problem: Undone) -> None:
        if isinstance(problem, TransactionLost):
            self.lost = str(problem)
        else:
            self.refused = str(problem)


def recover(
    cluster: Cluster, *, older_than_ms: int, query: str | None = None, gives_up: bool = False
) -> list[Recovered]:
    """Commit what was decided, and abort what was staged before `older_than_ms` and not decided.

    What an earlier run staged is aborted whatever its age. Before anything of a query's last run
    is, the query is claimed: a driver that lives after all can decide no more, and says so.
    """
    committer = Committer(cluster)
    if not cluster.metadata([COMMITS]).topics[COMMITS].exists:
        return []
    committer.read("")
    done: dict[str, Recovered] = {}
    for name in list(committer.log.commits.queries):
        if _is_meant(name, query):
            _finish(committer, name, gives_up, done)
    _abort(committer, query, older_than_ms, done)
    _forget(committer, query, older_than_ms)
    return list(done.values())


def _finish(committer: Committer, name: str, gives_up: bool, done: dict[str, Recovered]) -> None:
    decision = committer.log.commits.of(name).unended
    if decision is None:
        return
    outcome = done.setdefault(name, Recovered(name))
    try:
        if gives_up:
            outcome.given_up = committer.give_up(name)
        else:
            committer.finish(name)
        outcome.finished_batch = decision.batch
    except Undone as problem:
        outcome.say(problem)


def _abort(
    committer: Committer, query: str | None, older_than_ms: int, done: dict[str, Recovered]
) -> None:
    open_ids = committer.ongoing()
    old = set(committer.ongoing(None, older_than_ms)) if older_than_ms > 0 else set(open_ids)
    by_query: dict[str, list[str]] = {}
    for id in open_ids:
        name = parts_of(id)[0]
        if _is_meant(name, query):
            by_query.setdefault(name, []).append(id)
    for name, ids in by_query.items():
        found = committer.read(name)
        strays = [id for id in ids if parts_of(id)[1] in found.earlier_runs or id in old]
        if any(parts_of(id)[1] == found.run for id in strays):
            try:
                committer.claim(name, f"recovery-{uuid4().hex}", is_single=found.is_single)
            except Undone as problem:
                done.setdefault(name, Recovered(name)).say(problem)
                continue
            found = committer.log.commits.of(name)
        # A decision that came before the claim is carried out by now. Only what is not must be
        # left alone: ids are used again for the next batch.
        decided = {each.id for each in found.unended.transactions} if found.unended else set()
        still = set(committer.ongoing(name)) if strays else set()
        strays = [id for id in strays if id in still and id not in decided]
        if strays:
            committer.coordinators.abort(strays)
            done.setdefault(name, Recovered(name)).aborted = strays


def _is_meant(name: str, query: str | None) -> bool:
    """Return whether a name in the log is this query's, at one of its targets or as it is."""
    return query in (None, name, name.rpartition("/")[0])


def _forget(committer: Committer, query: str | None, older_than_ms: int) -> None:
    """Drop the claims of single writes that died before they had decided anything."""
    before_ms = committer.log.now_ms() - older_than_ms
    open_queries = {parts_of(id)[0] for id in committer.ongoing()}
    for name, found in list(committer.log.commits.queries.items()):
        if (
            found.is_single
            and _is_meant(name, query)
            and found.unended is None
            and name not in open_queries
            and found.claimed_ms < before_ms
        ):
            # A single query has the name of its run.
            over = Over(name, committer.log.now_ms())
            committer.log.append([over], found.removable())
