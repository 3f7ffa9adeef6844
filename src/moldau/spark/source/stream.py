"""The stream reader: lives on the driver as long as the query."""

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

from moldau.peer.cluster import EARLIEST, Cluster
from moldau.peer.errors import PeerError, Refused, UnknownTopic
from moldau.peer.retries import attempts
from moldau.spark.errors import log, lost_range, report_loss
from moldau.spark.source.bounds import Bound, names, resolve
from moldau.spark.source.options import SourceOptions
from moldau.spark.source.plan import Subscribed, look_up
from moldau.spark.source.progress import Progress, limited
from moldau.spark.source.ranges import OffsetRange, split
from moldau.topic_partition import TopicPartition

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

    A partition that is gone, where that is not fatal, stays in the offsets as far as it was read.
    If it was only not to be seen for a while, it goes on there; a new topic of that name has
    another id, and is read from its start.
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
        # Partitions that were read once and are not there now, as far as that has been told.
        self._gone: frozenset[TopicPartition] = frozenset()
        self._committed: Mapping[TopicPartition, int] = {}
        self._commit_problem = ""

    def __getstate__(self) -> dict[str, Any]:
        # The copy for the executors is for `read`, which has its own connections.
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
        self._latest = self._ends_from(begun) if self._target is None else self._target_from(begun)
        self._commit(begun)
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
            there = self._look_up()
            now = Progress(ids=_known(there.ids))
            gone = [
                key
                for key in gone
                if key not in there.partitions or begun.is_recreated(key[0], now)
            ]
        self._report_gone(gone)
        starts = self._starts(begun, ended, report=True)
        ranges = [
            OffsetRange(topic, ended.ids.get(topic), index, starts[topic, index], offset)
            for (topic, index), offset in ended.offsets.items()
            if offset > starts[topic, index]
        ]
        options = self._options
        return split(ranges, options.min_partitions, options.max_records_per_partition)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        from moldau.spark.runtime.worker import settle
        from moldau.spark.source.reading import read_range

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
            self._cluster = Cluster(self._read.bootstrap, self._options.driver)
        return self._cluster

    def _look_up(self) -> Subscribed:
        """Return the partitions of the subscription that exist."""
        return look_up(self._connected, self._options.subscription, may_miss=True)

    def _ends(self) -> Progress:
        """Return how far everything that is subscribed to, and there, can be read now."""
        latest = Bound("ending", "latest")
        committed = self._read.fetch.read_committed
        for is_last in (False, False, True):
            subscribed = self._look_up()
            try:
                ends = resolve(self._connected, latest, subscribed.partitions, committed)
                break
            except Refused as problem:
                # Deleted in between: the next look shows it.
                if is_last or not problem.is_unknown:
                    raise
        return Progress(ends, _known(subscribed.ids))

    def _ends_from(self, begun: Progress) -> Progress:
        """Return the same, but for partitions that end before where we are already, or are gone."""
        tries = attempts(self._options.driver, CATCH_UP_WITHIN_S)
        while True:
            ends = self._ends()
            kept = {
                key: offset
                for key, offset in begun.offsets.items()
                if not begun.is_recreated(key[0], ends)
            }
            gone = frozenset(kept.keys() - ends.offsets.keys())
            short = {
                key: offset
                for key, offset in kept.items()
                if ends.offsets.get(key, offset) < offset
            }
            never = self._never_there(begun, ends)
            if not (short or never or gone - self._gone) or not tries.pause():
                break
        if never is not None:
            raise never
        for (topic, index), offset in short.items():
            end = ends.offsets[topic, index]
            why = f"although they were read before: the log now ends at {end}"
            report_loss(lost_range(topic, index, end, offset, why), self._fails)
        self._report_gone(sorted(gone - self._gone))
        self._gone = gone
        ids = {topic: begun.ids[topic] for topic, _ in gone if topic in begun.ids}
        return Progress({**ends.offsets, **{key: kept[key] for key in gone}}, {**ids, **ends.ids})

    def _target_from(self, begun: Progress) -> Progress:
        """Return what existed when the query began, and what was read before and is gone now."""
        assert self._target is not None
        is_complete = begun.offsets.keys() <= self._target.offsets.keys()
        if not is_complete or self._never_there(begun, self._target):
            self._target = self._ends_from(begun)
        return self._target

    def _never_there(self, begun: Progress, ends: Progress) -> UnknownTopic | None:
        """Return a named topic that does not exist and never did: usually a misspelt one."""
        seen = {topic for topic, _ in (*begun.offsets, *ends.offsets)}
        subscription = self._options.subscription
        for topic in (*subscription.topics, *(topic for topic, _ in subscription.assigned)):
            if topic not in seen:
                return UnknownTopic(topic)
        return None

    def _report_gone(self, gone: Sequence[TopicPartition]) -> None:
        if gone:
            verb = "is" if len(gone) == 1 else "are"
            what = f"{names(gone)} {verb} gone; records may have been deleted unread"
            report_loss(what, self._fails)

    def _starts(
        self, begun: Progress, ended: Progress, report: bool = False
    ) -> dict[TopicPartition, int]:
        """Return where a batch begins: where the last one ended, and new partitions at
        their start."""
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
                what += f"{ended.ids[topic]}); the records of the old topic beyond "
                what += f"{_shown(begun, topic)} are lost"
                report_loss(what, self._fails)
        listed = self._earliest(fresh)
        for key in fresh:
            # A partition that is already gone has nothing to read.
            starts[key] = min(listed.get(key, ended.offsets[key]), ended.offsets[key])
            if report and key in listed and starts[key] > 0:
                why = "before this new partition was first read"
                report_loss(lost_range(*key, 0, starts[key], why), self._fails)
        if report:
            self._report_gone([key for key in fresh if key not in listed])
        return starts

    def _earliest(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        """Return where those of them begin that are there."""
        while partitions:
            try:
                listed = self._connected.list_offsets(dict.fromkeys(partitions, EARLIEST))
                return {key: answer.offset for key, answer in listed.items()}
            except Refused as problem:
                there = [key for key in self._look_up().partitions if key in partitions]
                if not problem.is_unknown or len(there) == len(partitions):
                    raise
                partitions = there
        return {}

    def _is_too_early(
        self, starts: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]
    ) -> bool:
        """Return whether `minOffsetsPerTrigger` says to wait, at most `maxTriggerDelay`."""
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
        offsets = {key: offset for key, offset in done.offsets.items() if key not in self._gone}
        if not group or offsets == self._committed:
            return
        try:
            self._connected.commit_offsets(group, offsets, within_s=COMMIT_WITHIN_S)
        except PeerError as problem:
            # Others look at a group's offsets; the query itself does not need them.
            if str(problem) != self._commit_problem:
                self._commit_problem = str(problem)
                log.warning("could not commit progress to group %r: %s", group, problem)
            return
        self._committed, self._commit_problem = offsets, ""


def _known(ids: Mapping[str, Any]) -> dict[str, Any]:
    return {topic: topic_id for topic, topic_id in ids.items() if topic_id is not None}


def _shown(progress: Progress, topic: str) -> str:
    read = (
        f"{index}: {offset}" for (name, index), offset in progress.offsets.items() if name == topic
    )
    return "{" + ", ".join(read) + "}"
