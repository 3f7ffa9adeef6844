"""The stage: where a task puts its rows into a transaction, and leaves it open.

The driver ends it, once all tasks of the batch are done. A task never does, as another attempt at
the same partition may be the one that counts.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING
from uuid import uuid4

from moldau.peer.batch_sender import BatchSender, Section
from moldau.peer.cluster import Cluster
from moldau.peer.coordinators import PreparedTransaction, can_end_elsewhere
from moldau.peer.errors import PeerError, Refused, UnknownTopic
from moldau.spark.errors import OptionError, WriteFailed
from moldau.spark.sink.committing import AlreadyDecided, Committer
from moldau.spark.sink.options import EXACTLY_ONCE, SinkOptions
from moldau.spark.sink.staged import BatchName, Staged
from moldau.spark.sink.staging_settings import StagingSettings
from moldau.spark.sink.transactional_ids import TransactionalIds
from moldau.topic_partition import TopicPartition
from moldau.wire.errors import Error

if TYPE_CHECKING:
    import pyarrow as pa

# Tried in turn, where transactions time out and the user named no time: Kafka's own limit is the
# first of them, and some brokers have a lower one.
_TIMEOUTS_MS = (900_000, 300_000, 60_000)
# Rows without a key that go to the same partition before the next one's turn.
_ROWS_IN_A_ROW = 1000
# Queries that a process remembers. One that it has forgotten gets other transactional ids.
_MOST_QUERIES = 256
_NO_TWO_PHASES = (Error.UNSUPPORTED_VERSION, Error.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
_FORBIDDEN = (
    Error.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    Error.TOPIC_AUTHORIZATION_FAILED,
    Error.CLUSTER_AUTHORIZATION_FAILED,
)


@dataclass(slots=True)
class _Claimed:
    """A query that is claimed, as this process uses it.

    `decided` is the last batch that was, as of the claim, `is_own` if by the same run.
    """

    ids: TransactionalIds
    decided: int
    is_own: bool
    batch: int = -1


class Stage:
    """The transactions of one process, one after another. Two tasks never share one.

    Transactional ids are used again for the next batch of the same run, which begins only when
    those of the last have ended. So there are as many ids as processes, times the tasks that each
    has in a batch, and one more for each time that a broker did not answer.
    """

    def __init__(self, settings: StagingSettings) -> None:
        self.settings = settings
        self._cluster = Cluster(settings.bootstrap, settings.peer)
        self.committer = Committer(self._cluster)
        self._name = f"{os.getpid():x}-{uuid4().hex[:12]}"
        self._has_two_phases: bool | None = None
        self._can: bool | None = None
        self._queries: dict[tuple[str, str], _Claimed] = {}
        self._claims = count()
        # Numbers of ids for letters, whatever their scope.
        self._given_up: set[int] = set()

    def close(self) -> None:
        self._cluster.close()

    def can(self) -> bool:
        """Return whether the brokers have what it takes."""
        if self._can is None:
            self._can = self._cluster.insist(lambda: can_end_elsewhere(self._cluster.some_broker()))
        return self._can

    def open(self, batch: BatchName) -> OpenStage | None:
        """Return a new transaction for a task; None if the batch is decided."""
        claimed = self._claimed(batch)
        if batch.number <= claimed.decided:
            if claimed.is_own:
                raise AlreadyDecided(batch.query, batch.run, batch.number)
            return None
        if batch.number < claimed.batch:
            # A late attempt must not reset the ids that the next batch has in use.
            raise AlreadyDecided(batch.query, batch.run, batch.number)
        if batch.number > claimed.batch:
            claimed.batch = batch.number
            claimed.ids.start_over()
        ids = claimed.ids
        transaction = self._begin_two_phases(ids) or self._begin(ids)
        ids.move_on()
        self.committer.check(batch.query, batch.run, batch.number)
        return OpenStage(self._cluster, self.settings, transaction)

    def _claimed(self, batch: BatchName) -> _Claimed:
        key = (batch.query, batch.run)
        found = self._queries.get(key)
        if found is None:
            last = self.committer.claim(*key, is_single=batch.is_single).last
            # In the same run no batch is decided twice, so this need not be asked again.
            decided = -1 if last is None else last.batch
            is_own = last is not None and last.run == batch.run
            ids = TransactionalIds(*key, f"{self._name}.{next(self._claims)}")
            found = _Claimed(ids, decided, is_own)
            while len(self._queries) >= _MOST_QUERIES:
                del self._queries[next(iter(self._queries))]
            self._queries[key] = found
        return found

    def open_letters(self, scope: str) -> OpenStage:
        """Return a new transaction for letters, which the task ends itself.

        It may time out: a task that dies leaves none behind for ever.
        """
        ids = TransactionalIds(scope, "letters", self._name, self._given_up)
        return OpenStage(self._cluster, self.settings, self._begin(ids))

    def staged(self, batch: BatchName, opened: OpenStage) -> Staged:
        return Staged(batch, opened.transaction, bool(self._has_two_phases))

    def discard(self, opened: OpenStage) -> None:
        """Abort the transaction of a task that failed, if the broker can be reached."""
        with suppress(PeerError):
            self._cluster.close()
            self.committer.abort([opened.transaction])

    def _begin_two_phases(self, ids: TransactionalIds) -> PreparedTransaction | None:
        if self._has_two_phases is False:
            return None
        try:
            begun = self.committer.coordinators.begin(ids, 0, is_two_phase=True)
        except Refused as problem:
            if problem.code not in _NO_TWO_PHASES:
                raise
            self._has_two_phases = False
            return None
        self._has_two_phases = True
        return begun

    def _begin(self, ids: TransactionalIds) -> PreparedTransaction:
        coordinators = self.committer.coordinators
        chosen = self.settings.timeout_ms
        for timeout_ms in _TIMEOUTS_MS if chosen is None else (chosen,):
            try:
                return coordinators.begin(ids, timeout_ms)
            except Refused as problem:
                if problem.code != Error.INVALID_TRANSACTION_TIMEOUT:
                    raise
                last = problem
        raise last


class OpenStage:
    """One transaction, and the rows that go into it."""

    def __init__(
        self, cluster: Cluster, settings: StagingSettings, transaction: PreparedTransaction
    ) -> None:
        self.transaction = transaction
        self._cluster = cluster
        self._settings = settings
        self._sender = BatchSender(cluster, transaction, settings.codec)
        self._counts: dict[str, int] = {}
        self._next = random.randrange(1 << 16)

    def put(self, topic: str | None, rows: pa.RecordBatch) -> None:
        """Send rows to a topic, or to those that they name.

        Those of the call before have arrived when this returns.
        """
        rounds: list[dict[TopicPartition, Section]] = []
        depth: dict[TopicPartition, int] = {}
        for name, some in _by_topic(topic, rows):
            for partition, section in self._sections(name, some):
                key = (name, partition)
                at = depth.get(key, 0)
                depth[key] = at + 1
                if at == len(rounds):
                    rounds.append({})
                rounds[at][key] = section
        for each in rounds:
            self._sender.send(each)

    def flush(self) -> None:
        """Wait until everything has arrived."""
        self._sender.flush()

    def _sections(self, topic: str, rows: pa.RecordBatch) -> Iterator[tuple[int, Section]]:
        from moldau.arrow.encode import Column, Rows, partitions_by_key, sections

        columns = dict(zip(rows.schema.names, rows.columns, strict=True))
        encoded = Rows.of(
            rows.num_rows, columns.get("key"), columns["value"], columns.get("headers")
        )
        partitions = self._partitions(topic)
        homes = partitions_by_key(encoded.keys, partitions, self._next, _ROWS_IN_A_ROW)
        self._next += 1 + rows.num_rows // _ROWS_IN_A_ROW
        if "partition" in columns:
            import numpy as np

            chosen = Column.numbers(columns["partition"])
            wrong = chosen[(chosen < -1) | (chosen >= partitions)]
            if len(wrong):
                raise WriteFailed(
                    f"a row has partition {int(wrong[0])}, but topic {topic!r} has "
                    f"{partitions} partitions"
                )
            homes = np.where(chosen >= 0, chosen, homes)
        now_ms = int(time.time() * 1000)
        for partition, records, many in sections(encoded, homes, self._settings.batch_bytes):
            yield partition, Section(records, many, now_ms)

    def _partitions(self, topic: str) -> int:
        if topic not in self._counts:
            # The answers to what is under way come first on the same connections.
            self._sender.flush()
            try:
                self._counts |= self._cluster.insist(lambda: self._sender.know_leaders([topic]))
            except UnknownTopic as problem:
                raise WriteFailed(f"topic {topic!r} cannot be written: {problem}") from None
        return self._counts[topic]


_stages: dict[tuple[int, StagingSettings], Stage] = {}


def take_stage(settings: StagingSettings) -> Stage:
    """Return the stage that this process has kept, or a new one."""
    # A forked process must not talk on its parent's sockets, nor use its ids.
    return _stages.pop((os.getpid(), settings), None) or Stage(settings)


def keep_stage(stage: Stage) -> None:
    """Keep a stage for the next task. One that failed is closed instead."""
    _stages[os.getpid(), stage.settings] = stage


@contextmanager
def refusals_in_words() -> Iterator[None]:
    """Turn what a broker refuses into WriteFailed."""
    try:
        yield
    except PeerError as problem:
        raise WriteFailed(f"rows were not written: {problem}{_hint(problem)}") from None


def stage_rows(
    options: SinkOptions, batch: BatchName, batches: Iterable[pa.RecordBatch]
) -> tuple[int, Staged | None] | None:
    """Stage all rows; return how many and in which transaction, or None if the brokers cannot.

    There is no transaction if the batch is decided already.
    """
    if options.staging is None:
        return None
    stage = take_stage(options.staging)
    try:
        with refusals_in_words():
            staged = _stage_rows(stage, options, batch, batches)
    except BaseException:
        stage.close()
        raise
    keep_stage(stage)
    return staged


def _stage_rows(
    stage: Stage, options: SinkOptions, batch: BatchName, batches: Iterable[pa.RecordBatch]
) -> tuple[int, Staged | None] | None:
    if not stage.can():
        if options.exactly_once or options.app_id is not None:
            raise OptionError(
                f"{EXACTLY_ONCE}: the brokers do not support this; it needs Moldau, or Kafka 4.0 "
                "or newer with the feature transaction.version at level 2"
            )
        return None
    opened = stage.open(batch)
    if opened is None:
        for _ in batches:
            pass
        return 0, None
    total = 0
    try:
        for rows in batches:
            opened.put(options.topic, rows.rename_columns(list(options.columns)))
            total += rows.num_rows
        opened.flush()
    except BaseException:
        stage.discard(opened)
        raise
    return total, stage.staged(batch, opened)


def _hint(problem: PeerError) -> str:
    if not isinstance(problem, Refused) or problem.code not in _FORBIDDEN:
        return ""
    return (
        "; exactly once needs the rights to write and two-phase commit with transactional ids "
        "that begin with 'moldau-sink/', and to create, read and write topic '__moldau_commits'. "
        f"To write at least once, set {EXACTLY_ONCE} to false"
    )


def _by_topic(topic: str | None, rows: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
    if topic is not None:
        yield topic, rows
        return
    import pyarrow.compute as pc

    column = rows.column(rows.schema.get_field_index("topic"))
    if column.null_count:
        raise WriteFailed("a row has no topic; set the option 'topic' or fill the column")
    for each in column.unique():
        yield str(each.as_py()), rows.filter(pc.equal(column, each))
