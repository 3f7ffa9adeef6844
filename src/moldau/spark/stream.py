"""The stream reader: lives on the driver for as long as the query does."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from moldau.peer.cluster import EARLIEST, Cluster, TopicPartition
from moldau.peer.errors import PeerError
from moldau.peer.retries import attempts
from moldau.spark.bounds import Bound, names, resolve
from moldau.spark.errors import log, lost_range, report_loss
from moldau.spark.plan import look_up
from moldau.spark.progress import Progress, limited
from moldau.spark.ranges import OffsetRange, split
from moldau.spark.source_options import SourceOptions

if TYPE_CHECKING:
    import pyarrow as pa

# A leader that has just taken over may not know at once how far its predecessor had come.
CATCH_UP_WITHIN_S = 5.0
COMMIT_WITHIN_S = 5.0


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """One query's reader. Only `read` runs on executors; everything else keeps state here.

    Spark calls `latestOffset` when everything before its `start` is processed and in the commit
    log, so that is when progress goes to the group; Spark's own `commit` comes a batch later.

    Of the first batch Spark writes down only where it ends, and a query that dies in it asks for
    `initialOffset` again. Where that is the end of a log, the answer is another one then, so the
    first batch has nothing of such a partition: its end is where the query began.
    """

    def __init__(self, options: SourceOptions) -> None:
        self._start = options.stream_start()
        self._options = options
        self._read = options.read
        self._cluster: Cluster | None = None
        self._latest = Progress()
        self._target: Progress | None = None
        # Where the query begins because the log ended there, until the first batch is planned.
        self._begun_at_end: dict[TopicPartition, int] = {}
        self._last_trigger: float | None = None
        self._committed: Mapping[TopicPartition, int] = {}
        self._commit_problem = ""

    def __getstate__(self) -> dict[str, Any]:
        # What goes to the executors is for `read`, which has connections of its own.
        return self.__dict__ | {"_cluster": None}

    def initialOffset(self) -> dict[str, Any]:
        subscribed = look_up(self._connected, self._options.subscription)
        at_end: set[TopicPartition] = set()
        offsets = resolve(
            self._connected,
            self._start,
            subscribed.partitions,
            self._read.fetch.read_committed,
            at_end=at_end,
        )
        self._begun_at_end = {key: offsets[key] for key in at_end}
        return Progress(offsets, _known(subscribed.ids)).to_json()

    def getDefaultReadLimit(self) -> ReadLimit:
        # Spark's limits cannot be joined in Python; what minOffsetsPerTrigger asks is done here.
        if self._options.max_offsets_per_trigger is not None:
            return ReadMaxRows(self._options.max_offsets_per_trigger)
        if self._options.min_offsets_per_trigger is not None:
            return ReadMinRows(self._options.min_offsets_per_trigger)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = self._ends()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        begun = Progress.of_json(start)
        self._commit(begun)
        self._latest = self._target or self._ends_from(begun)
        ends = dict(self._latest.offsets)
        for key, offset in begun.offsets.items():
            if key in ends and not begun.is_recreated(key[0], self._latest):
                ends[key] = max(ends[key], offset)
                if self._begun_at_end.get(key) == offset:
                    ends[key] = offset
        self._begun_at_end = {}
        from_offsets = self._starts(begun, Progress(ends, self._latest.ids))
        if not isinstance(limit, ReadAllAvailable):
            if self._is_too_early(from_offsets, ends):
                return start
            if isinstance(limit, ReadMaxRows):
                ends = limited(from_offsets, ends, limit.max_rows)
        return Progress(ends, self._latest.ids).to_json()

    def reportLatestOffset(self) -> dict[str, Any] | None:
        return self._latest.to_json() or None

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        begun, ended = Progress.of_json(start), Progress.of_json(end)
        gone = sorted(set(begun.offsets) - set(ended.offsets))
        if gone:
            # A first batch that is run again ends where it did, and may not know partitions that
            # are new since; the next one reads them.
            there = look_up(self._connected, self._options.subscription).partitions
            gone = [key for key in gone if key not in there]
        if gone:
            report_loss(f"{names(gone)} are gone, deleted perhaps with records unread", self._fails)
        starts = self._starts(begun, ended, report=True)
        ranges = [
            OffsetRange(topic, ended.ids.get(topic), index, starts[topic, index], offset)
            for (topic, index), offset in ended.offsets.items()
            if offset > starts[topic, index]
        ]
        options = self._options
        return split(ranges, options.min_partitions, options.max_records_per_partition)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        from moldau.spark.reading import read_range
        from moldau.spark.worker import settle

        settle()
        assert isinstance(partition, OffsetRange)
        return read_range(partition, self._read)

    def commit(self, end: dict[str, Any]) -> None:
        self._commit(Progress.of_json(end))

    def stop(self) -> None:
        if self._cluster is not None:
            self._cluster.close()

    @property
    def _fails(self) -> bool:
        return self._read.fail_on_data_loss

    @property
    def _connected(self) -> Cluster:
        if self._cluster is None:
            self._cluster = Cluster(self._read.bootstrap, self._read.peer)
        return self._cluster

    def _ends(self) -> Progress:
        """How far everything that is subscribed to can be read now."""
        subscribed = look_up(self._connected, self._options.subscription)
        latest = Bound("ending", "latest")
        committed = self._read.fetch.read_committed
        ends = resolve(self._connected, latest, subscribed.partitions, committed)
        return Progress(ends, _known(subscribed.ids))

    def _ends_from(self, begun: Progress) -> Progress:
        """The same, but for partitions that end before where we are already."""
        tries = attempts(self._read.peer, CATCH_UP_WITHIN_S)
        while True:
            ends = self._ends()
            short = {
                key: offset
                for key, offset in begun.offsets.items()
                if ends.offsets.get(key, offset) < offset and not begun.is_recreated(key[0], ends)
            }
            if not short:
                return ends
            if not tries.pause():
                break
        for (topic, index), offset in short.items():
            end = ends.offsets[topic, index]
            why = f"although they were read before: the log ends at {end} now"
            report_loss(lost_range(topic, index, end, offset, why), self._fails)
        return ends

    def _starts(
        self, begun: Progress, ended: Progress, report: bool = False
    ) -> dict[TopicPartition, int]:
        """Where a batch begins: where the last one ended, and new partitions at their start."""
        starts: dict[TopicPartition, int] = {}
        fresh: list[TopicPartition] = []
        recreated: list[str] = []
        for key in ended.offsets:
            if begun.is_recreated(key[0], ended):
                recreated.append(key[0])
                fresh.append(key)
            elif key in begun.offsets:
                starts[key] = begun.offsets[key]
            else:
                fresh.append(key)
        if report:
            for topic in dict.fromkeys(recreated):
                what = f"topic {topic!r} was deleted and created again (id {begun.ids[topic]}, now "
                what += f"{ended.ids[topic]}); what the old one held beyond "
                what += f"{_shown(begun, topic)} is lost"
                report_loss(what, self._fails)
        if fresh:
            listed = self._connected.list_offsets(dict.fromkeys(fresh, EARLIEST))
            for key in fresh:
                starts[key] = min(listed[key].offset, ended.offsets[key])
                if report and starts[key] > 0:
                    why = "before this new partition was first read"
                    report_loss(lost_range(*key, 0, starts[key], why), self._fails)
        return starts

    def _is_too_early(
        self, starts: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]
    ) -> bool:
        """Whether `minOffsetsPerTrigger` says to wait; never longer than `maxTriggerDelay`."""
        least = self._options.min_offsets_per_trigger
        if least is None or self._target is not None:
            return False
        now = time.monotonic()
        available = sum(end - starts[key] for key, end in ends.items())
        delay = self._options.max_trigger_delay_s
        is_due = self._last_trigger is None or now - self._last_trigger >= delay
        if available < least and not is_due:
            return True
        self._last_trigger = now
        return False

    def _commit(self, done: Progress) -> None:
        group = self._options.commit_group
        if not group or done.offsets == self._committed:
            return
        try:
            self._connected.commit_offsets(group, done.offsets, within_s=COMMIT_WITHIN_S)
        except PeerError as problem:
            # Others look at a group's offsets; the query itself does not need them.
            if str(problem) != self._commit_problem:
                self._commit_problem = str(problem)
                log.warning("progress is not committed to the group %r: %s", group, problem)
            return
        self._committed, self._commit_problem = done.offsets, ""


def _known(ids: Mapping[str, Any]) -> dict[str, Any]:
    return {topic: topic_id for topic, topic_id in ids.items() if topic_id is not None}


def _shown(progress: Progress, topic: str) -> str:
    read = (
        f"{index}: {offset}" for (name, index), offset in progress.offsets.items() if name == topic
    )
    return "{" + ", ".join(read) + "}"
