"""Staged transactions: what tasks report, and the driver decides about."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from moldau.peer.coordinators import PreparedTransaction
from moldau.peer.errors import PeerError
from moldau.spark.errors import WriteFailed
from moldau.spark.sink.committing import Committer

# How Spark tells tasks which batch of which query they belong to. The group of a query's jobs is
# its run.
QUERY = "sql.streaming.queryId"
BATCH = "streaming.sql.batchId"
RUN = "spark.jobGroup.id"


# For the target of rows that name their topics themselves; no topic has this name.
_BY_ROW = "*"


def at_target(query: str, topic: str | None) -> str:
    """Return the name of a query in the commit log, where it has one for each target.

    One batch may be written to several topics, one after another, and each has its own decision.
    """
    return f"{query}/{topic or _BY_ROW}"


class BatchName(NamedTuple):
    """A batch of a query, and the run that writes it. Of an `is_single` query there is one."""

    query: str
    run: str
    number: int
    is_single: bool = False


class Staged(NamedTuple):
    """A transaction that waits for the driver."""

    batch: BatchName
    transaction: PreparedTransaction
    is_two_phase: bool


def commit_by(committer: Committer, staged: Sequence[Staged]) -> None:
    """Decide for the batch that was staged, and commit it."""
    (batch,) = {each.batch for each in staged}
    try:
        committer.commit(
            batch.query,
            batch.run,
            batch.number,
            [each.transaction for each in staged],
            is_two_phase=all(each.is_two_phase for each in staged),
        )
    except PeerError as problem:
        raise WriteFailed(
            f"batch {batch.number} of query {batch.query!r} was staged, but not committed: "
            f"{problem}. If its decision was recorded, the next run of the query commits it"
        ) from None
