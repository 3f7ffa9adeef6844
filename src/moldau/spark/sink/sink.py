"""The sink: rows become records, exactly once where the brokers can, and never quietly lost."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING
from uuid import uuid4

from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from moldau.peer.cluster import Cluster
from moldau.peer.coordinators import can_end_elsewhere
from moldau.spark.errors import OptionError, WriteFailed
from moldau.spark.runtime.worker import settle
from moldau.spark.sink.committers import committers_of_process
from moldau.spark.sink.committing import Committer
from moldau.spark.sink.options import APP_ID, SinkOptions
from moldau.spark.sink.outlet import check_settings, send_all
from moldau.spark.sink.stage import stage_rows
from moldau.spark.sink.staged import BATCH, QUERY, RUN, BatchName, Staged, at_target
from moldau.spark.sink.staging_settings import StagingSettings

if TYPE_CHECKING:
    import pyarrow as pa


class Written(WriterCommitMessage):
    """The report of a task to the driver; `staged` waits for the driver's decision."""

    def __init__(self, records: int, staged: Staged | None = None) -> None:
        self.records = records
        self.staged = staged


class BatchWriter(DataSourceArrowWriter):
    """One write of a frame. Tasks and the end of the write get copies of the same writer."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options
        run = uuid4().hex
        app_id, version = options.app_id, options.version
        single = BatchName(run, run, 0, is_single=True)
        self._batch = single
        if app_id is not None:
            self._batch = BatchName(at_target(app_id, options.topic), run, version)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return write_records(self._options, self._batch, iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        commit_staged(self._options.staging, _staged(messages))

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        abort_staged(self._options.staging, self._batch)


class StreamWriter(DataSourceStreamArrowWriter):
    """Built anew for every batch, and once more for its commit: it can keep nothing."""

    def __init__(self, options: SinkOptions) -> None:
        if options.app_id is not None:
            raise OptionError(
                f"{APP_ID} is only for single writes; a stream identifies its own batches"
            )
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return write_records(self._options, batch_of_stream(self._options.topic), iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        commit_staged(self._options.staging, _staged(messages))

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        for staged in _staged(messages)[:1]:
            abort_staged(self._options.staging, staged.batch)


def batch_of_stream(topic: str | None, driver: str = "") -> BatchName:
    """Return the batch that this task belongs to, for a topic.

    A run is one of Spark's. With `driver` it is also a process's: in `foreachBatch`, the group of
    jobs may be one that the user has chosen.
    """
    context = TaskContext.get()
    names = {
        name: None if context is None else context.getLocalProperty(name)
        for name in (QUERY, BATCH, RUN)
    }
    query, number, group = names[QUERY], names[BATCH], names[RUN]
    if query is None or number is None or (group is None and not driver):
        missing = next(name for name, value in names.items() if value is None)
        raise WriteFailed(f"Spark does not say which batch this is: {missing} is not set")
    run = "-".join(filter(None, (group, driver))).replace("/", "_")
    return BatchName(at_target(query, topic), run, int(number))


def write_records(
    options: SinkOptions, batch: BatchName, batches: Iterator[pa.RecordBatch]
) -> Written:
    """Stage a task's rows, or send them where there are no transactions."""
    settle()
    check_settings(options)
    filled = (each for each in batches if each.num_rows)
    first = next(filled, None)
    if first is None:
        return Written(0)
    rows = chain([first], filled)
    staged = stage_rows(options, batch, rows)
    return Written(send_all(options, rows)) if staged is None else Written(*staged)


def commit_staged(settings: StagingSettings | None, staged: Sequence[Staged]) -> None:
    """Decide for the batch that was staged, and commit it."""
    committers_of_process().commit(settings, staged)


def abort_staged(settings: StagingSettings | None, batch: BatchName) -> None:
    """Stop the tasks of a run that failed, and abort what they have staged."""
    if settings is None:
        return
    with Cluster(settings.bootstrap, settings.peer) as cluster:
        if cluster.insist(lambda: can_end_elsewhere(cluster.some_broker())):
            Committer(cluster).fail(batch.query, batch.run, is_single=batch.is_single)


def _staged(messages: Sequence[WriterCommitMessage | None]) -> list[Staged]:
    return [
        each.staged for each in messages if isinstance(each, Written) and each.staged is not None
    ]
