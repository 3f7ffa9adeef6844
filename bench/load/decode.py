"""The reading side of the Spark source without Spark: what its own code costs."""

from __future__ import annotations

import resource
import time
from dataclasses import replace

from bench.tasks import DecodeAlone, ReadAlone
from moldau.arrow.decode import Decoder
from moldau.arrow.pieces import pieces
from moldau.bench.frames import one_batch
from moldau.bench.tasks import RowFlow
from moldau.peer.cluster import Cluster
from moldau.peer.fetch_stream import FetchStream
from moldau.spark.names import WITHOUT_HEADERS
from moldau.spark.source.options import SourceOptions
from moldau.spark.source.plan import look_up
from moldau.spark.source.ranges import OffsetRange
from moldau.spark.source.reading import read_range
from moldau.wire.fetch.response import FetchedPartition

_BATCH_BYTES = 500_000
# What one fetch brings.
_BUFFER_BYTES = 8 << 20
_ANYTHING = FetchedPartition(0)


def _nothing_more(room: memoryview) -> None:
    raise AssertionError(f"{len(room)} bytes more than there are")


def decode_alone(task: DecodeAlone) -> RowFlow:
    sent = one_batch(task.size, _BATCH_BYTES)
    buffer = memoryview(sent * max(1, _BUFFER_BYTES // len(sent)))
    decoder = Decoder(WITHOUT_HEADERS, "bench", 0)

    def decode_once() -> int:
        # From memory, which stands in for the connection: what is taken is overwritten.
        stream = FetchStream(_ANYTHING, len(buffer), buffer, _nothing_more, lambda: None)
        return sum(
            batch.num_rows
            for piece in pieces(stream)
            for batch in decoder.decode(piece, 0, 1 << 62)
        )

    # Compiles, or loads what was compiled, and touches the memory that is used again.
    decode_once()
    rows = 0
    started, cpu = time.monotonic(), time.process_time()
    while rows < task.rows:
        rows += decode_once()
    return RowFlow(rows, time.monotonic() - started, time.process_time() - cpu)


def read_alone(task: ReadAlone) -> RowFlow:
    given = {"kafka.bootstrap.servers": task.bootstrap, "subscribe": task.topic}
    settings = SourceOptions.parse(given).read
    with Cluster(settings.bootstrap, settings.peer) as cluster:
        ids = look_up(cluster, SourceOptions.parse(given).subscription).ids
    whole = OffsetRange(task.topic, ids[task.topic], 0, 0, task.rows)
    # Compiles, or loads what was compiled.
    for _ in read_range(replace(whole, end=1), settings):
        pass
    rows = 0
    started, cpu = time.monotonic(), time.process_time()
    for batch in read_range(whole, settings):
        rows += batch.num_rows
    took, used = time.monotonic() - started, time.process_time() - cpu
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return RowFlow(rows, took, used, memory)
