"""The batch reader: a fixed piece of each partition."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition

from moldau.peer.cluster import Cluster
from moldau.spark.errors import OptionError
from moldau.spark.source.bounds import Bound, names, resolve
from moldau.spark.source.options import SourceOptions
from moldau.spark.source.plan import look_up
from moldau.spark.source.ranges import OffsetRange, split

if TYPE_CHECKING:
    import pyarrow as pa


class BatchReader(DataSourceReader):
    """Plans on the driver, then is sent to the executors to read."""

    def __init__(self, options: SourceOptions) -> None:
        self._bounds = options.batch_bounds()
        self._subscription = options.subscription
        self._min_partitions = options.min_partitions
        self._max_records = options.max_records_per_partition
        self._read = options.read
        self._driver = options.driver

    def partitions(self) -> list[InputPartition]:
        with Cluster(self._read.bootstrap, self._driver) as cluster:
            return list(split(self._ranges(cluster), self._min_partitions, self._max_records))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        from moldau.spark.runtime.worker import settle
        from moldau.spark.source.reading import read_range

        settle()
        # Spark makes a partition of its own where there is none to read.
        if not isinstance(partition, OffsetRange):
            return iter(())
        return read_range(partition, self._read)

    def _ranges(self, cluster: Cluster) -> list[OffsetRange]:
        subscribed = look_up(cluster, self._subscription)
        committed = self._read.fetch.read_committed
        start, end = self._bounds
        starts = resolve(cluster, start, subscribed.partitions, committed)
        ends = resolve(cluster, end, subscribed.partitions, committed)
        readable = ends
        if end.kind == "offsets":
            newest = Bound("ending", "latest")
            readable = resolve(cluster, newest, subscribed.partitions, committed)
        for key in subscribed.partitions:
            name = names([key])
            if ends[key] > readable[key]:
                raise OptionError(
                    f"endingOffsets has {ends[key]} for {name}, which ends at {readable[key]}"
                )
            if starts[key] > ends[key] and start.kind == "offsets":
                raise OptionError(f"{name} would be read from {starts[key]} up to {ends[key]}")
        return [
            OffsetRange(
                topic, subscribed.ids[topic], index, starts[topic, index], ends[topic, index]
            )
            for topic, index in subscribed.partitions
            if ends[topic, index] > starts[topic, index]
        ]
