"""Staged letters: the dead letters of one task, in a transaction that it commits at its end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from pyspark import TaskContext

from moldau.peer.coordinators import PreparedTransaction
from moldau.peer.retries import PeerSettings
from moldau.peer.view import parse_bootstrap
from moldau.security.client import ClientSecurity
from moldau.spark.sink.commit_log import CommitLog
from moldau.spark.sink.letter_commits import LetterCommits
from moldau.spark.sink.letter_ranges import SINGLE, Letters, Range
from moldau.spark.sink.stage import (
    OpenStage,
    Stage,
    keep_stage,
    refusals_in_words,
    take_stage,
)
from moldau.spark.sink.staged import BATCH, QUERY
from moldau.spark.sink.staging_settings import StagingSettings

if TYPE_CHECKING:
    import pyarrow as pa

    from moldau.spark.source.ranges import OffsetRange

_NONE = PreparedTransaction("", -1, -1)


class Letter(NamedTuple):
    """A record that did not parse, with its offset."""

    offset: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]


class Reading(NamedTuple):
    """What a task reads: a range of offsets, for a source in a query. SINGLE outside a stream."""

    scope: str
    batch: int
    partition: OffsetRange


def open_letters(
    bootstrap: str, security: ClientSecurity | None, reading: Reading
) -> StagedLetters | None:
    """Return the way out by transactions; None if the brokers cannot."""
    peer = PeerSettings(
        client_id="moldau-dead-letters",
        security=security,
        retry_within_s=120.0,
        first_backoff_s=0.005,
    )
    stage = take_stage(StagingSettings(tuple(parse_bootstrap(bootstrap)), peer))
    with refusals_in_words():
        if stage.can():
            return StagedLetters(stage, reading)
    keep_stage(stage)
    return None


class StagedLetters:
    """The letters for the offsets of one task, for one thread.

    Those that are written already are left out.
    """

    def __init__(self, stage: Stage, reading: Reading) -> None:
        self._stage = stage
        self._reading = reading
        self._opened: OpenStage | None = None
        stage.committer.read(reading.scope)
        self._commits = LetterCommits(stage.committer.log, stage.committer.coordinators)
        self._missing: tuple[Range, ...] = ((reading.partition.start, reading.partition.end),)
        self._missing = self._commits.missing(self._letters(_NONE))

    def send(self, topic: str, letters: Sequence[Letter]) -> None:
        """Stage those letters that nobody has written."""
        new = [
            each
            for each in letters
            if any(start <= each.offset < end for start, end in self._missing)
        ]
        with refusals_in_words():
            if new and self._opened is None:
                self._opened = self._stage.open_letters(self._reading.scope)
            if new and self._opened is not None:
                self._opened.put(topic, _as_rows(new))

    def flush(self) -> None:
        """Commit the letters."""
        with refusals_in_words():
            if self._opened is not None:
                self._opened.flush()
                self._commits.commit(self._letters(self._opened.transaction))
        keep_stage(self._stage)

    def discard(self) -> None:
        """Abort. The stage is not used again: whether the end arrived is not known."""
        if self._opened is not None:
            self._stage.discard(self._opened)
        self._stage.close()

    def _letters(self, transaction: PreparedTransaction) -> Letters:
        scope, batch, partition = self._reading
        # A topic that was created again has other records at the same offsets.
        topic = f"{partition.topic}/{partition.topic_id}"
        now_ms = CommitLog.now_ms()
        return Letters(
            scope, topic, partition.partition, self._missing, batch,
            transaction, now_ms,
        )  # fmt: skip


def reading_of_task(source: str, single: str, partition: OffsetRange) -> Reading:
    """Return what this task reads; `single` names a reading that is no stream's."""
    context = TaskContext.get()
    query = None if context is None else context.getLocalProperty(QUERY)
    number = None if context is None else context.getLocalProperty(BATCH)
    if single or query is None or number is None:
        return Reading(f"{single}/{source}", SINGLE, partition)
    return Reading(f"{query}/{source}", int(number), partition)


def _as_rows(letters: Sequence[Letter]) -> pa.RecordBatch:
    import pyarrow as pa

    header = pa.struct([("key", pa.string()), ("value", pa.binary())])
    headers = [
        [{"key": name, "value": content} for name, content in each.headers] for each in letters
    ]
    columns = {
        "key": pa.array([each.key for each in letters], pa.binary()),
        "value": pa.array([each.value for each in letters], pa.binary()),
        "headers": pa.array(headers, pa.list_(header)),
    }
    return pa.RecordBatch.from_pydict(columns)
