"""The ceiling of a Python source in Spark: one ready-made Arrow batch over and over.

Rows have the columns of the source under test, and as many rows a batch; nothing is fetched or
decoded, so no source that delivers the same rows can be faster.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from moldau.arrow.decode import TARGET_BYTES, Decoder, scan
from moldau.bench.frames import one_batch
from moldau.spark.names import WITHOUT_HEADERS, spark_schema
from moldau.spark.runtime.worker import settle

NAME = "moldau-ceiling"
_BATCH_BYTES = 500_000


class Share(InputPartition):
    """The number of rows that one task yields."""

    def __init__(self, index: int, rows: int) -> None:
        super().__init__(index)
        self.rows = rows


class CeilingSource(DataSource):
    """Options: `rows` in all, their `size`, and the `partitions` that they are spread over."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> str:
        return spark_schema(WITHOUT_HEADERS)

    def reader(self, schema: StructType) -> DataSourceReader:
        numbers = [int(self.options[name]) for name in ("rows", "size", "partitions")]
        return CeilingReader(*numbers)


class CeilingReader(DataSourceReader):
    def __init__(self, rows: int, size: int, partitions: int) -> None:
        self._rows = rows
        self._size = size
        self._partitions = partitions

    def partitions(self) -> list[InputPartition]:
        edges = [self._rows * n // self._partitions for n in range(self._partitions + 1)]
        return [Share(n, edges[n + 1] - edges[n]) for n in range(self._partitions)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Share)
        # Whatever ours does for the process, this one has as well.
        settle()
        left = partition.rows
        ready = ready_made(self._size)
        while left > 0:
            yield ready.slice(0, min(left, ready.num_rows))
            left -= ready.num_rows


@cache
def ready_made(size: int) -> pa.RecordBatch:
    """Return a batch as the source under test would yield it; kept by the process."""
    sent = one_batch(size, _BATCH_BYTES)
    buffer = memoryview(sent * -(-TARGET_BYTES // len(sent)))
    decoder = Decoder(WITHOUT_HEADERS, "ceiling", 0)
    (ready,) = decoder.decode(scan(buffer), 0, 1 << 62)
    return ready
