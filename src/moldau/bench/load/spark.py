"""A local Spark that takes jobs, so that what is compared runs in one session, warm alike."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import msgspec

from moldau.bench.errors import BenchFailed
from moldau.bench.load import spark_jobs as jobs
from moldau.bench.load.stamped import STALLED_S, STAMP
from moldau.bench.proc import highest_memory, tree_cpu_seconds
from moldau.bench.tasks import RowFlow, SparkServer
from moldau.spark import session
from moldau.spark.runtime.sockets import discard_sockets

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_END_WITHIN_S = 20
_EVENT_GROUPS = 1000
_ASK_EVERY_S = 1.0


def serve(task: SparkServer) -> RowFlow:
    """Answer jobs until standard input ends; then stop Spark, and only return when it is gone."""
    from moldau.bench.load.spark_ceiling import CeilingSource

    folder = Path(task.folder)
    config = {
        "spark.driver.memory": "1g",
        "spark.local.dir": str(folder / "spark"),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.sql.shuffle.partitions": str(task.slots),
    }
    if task.jars:
        config["spark.jars"] = task.jars
    spark = session("bench", master=f"local[{task.slots}]", config=config)
    spark.dataSource.register(CeilingSource)
    bench = SparkBench(spark, folder)
    _say("ready")
    try:
        for line in sys.stdin:
            job = msgspec.json.decode(line, type=jobs.Job)
            _say(msgspec.json.encode(bench.run(job)).decode())
    finally:
        stop(spark)
    return RowFlow(0, 0.0, 0.0)


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def stop(spark: SparkSession) -> None:
    """Java goes when its input closes; its scratch files must be gone before the folder is."""
    gateway: Any = spark.sparkContext._gateway
    spark.stop()
    gateway.proc.stdin.close()
    gateway.proc.wait(_END_WITHIN_S)
    discard_sockets()


class SparkBench:
    """The jobs, in one session."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self._spark = spark
        self._folder = folder

    def run(self, job: jobs.Job) -> msgspec.Struct:
        match job:
            case jobs.Read():
                return self._read(job)
            case jobs.Write():
                return self._write(job)
            case jobs.Follow():
                return self._follow(job)

    def _read(self, job: jobs.Read) -> RowFlow:
        if job.is_ceiling:
            reader = self._spark.read.format("moldau-ceiling").option("rows", job.rows)
            rows = reader.option("size", job.size).option("partitions", job.partitions).load()
        else:
            reader = self._spark.read.format(job.source).option("subscribe", job.topic)
            rows = reader.option("kafka.bootstrap.servers", job.bootstrap).load()
        target = self._folder / f"table-{uuid4().hex}"
        bring = {
            "count": _count,
            "aggregation": _aggregate,
            "delta": _to_delta,
            "iceberg": _to_iceberg,
            "parquet": _to_parquet,
        }[job.into]
        try:
            with highest_memory() if job.watch_memory else nullcontext([0.0]) as highest:
                flow = _timed(job.rows, lambda: bring(rows, target))
        finally:
            shutil.rmtree(target, ignore_errors=True)
        return msgspec.structs.replace(flow, memory_mib=highest[0])

    def _write(self, job: jobs.Write) -> RowFlow:
        rows = self._spark.range(job.rows).selectExpr(
            "cast(id as string) as key", f"cast(repeat('m', {job.size}) as binary) as value"
        )
        writer = rows.write.format("moldau").mode("append").option("topic", job.topic)
        writer = writer.option("exactlyOnce", job.exactly_once)

        def write() -> int:
            writer.option("kafka.bootstrap.servers", job.bootstrap).save()
            return job.rows

        return _timed(job.rows, write)

    def _follow(self, job: jobs.Follow) -> jobs.Followed:
        reader = (
            self._spark.readStream.format(job.connector)
            .option("kafka.bootstrap.servers", job.bootstrap)
            .option("subscribe", job.topic)
            .option("startingOffsets", "earliest")
        )
        rows = reader.load().select("value")
        ages: list[float] = []
        seen = 0
        writer = rows.writeStream.option("checkpointLocation", str(self._folder / uuid4().hex))
        if job.to_topic:
            writer = writer.format(job.connector).option("topic", job.to_topic)
            writer = writer.option("kafka.bootstrap.servers", job.bootstrap)
            if job.connector == "moldau":
                writer = writer.option("exactlyOnce", job.exactly_once)
        else:

            def note(batch: DataFrame, batch_id: int) -> None:
                nonlocal seen
                stamps = _stamps(batch)
                arrived = time.monotonic_ns()
                for number, sent in stamps:
                    if number >= job.warm_up:
                        ages.append((arrived - sent) / 1e9)
                seen += len(stamps)

            writer = writer.foreachBatch(note)
        query = writer.start()
        try:
            _wait(lambda: query.lastProgress is not None, "the query did not start")
            _say("ready")
            # Noted as they come: Spark remembers the last hundred batches alone. To ask for them
            # costs time, which should not be the query's.
            counts: dict[int, int] = {}
            seconds: list[float] = []
            deadline = time.monotonic() + STALLED_S
            while sum(counts.values()) < job.count:
                if query.exception() is not None or time.monotonic() > deadline:
                    raise BenchFailed(f"the query stopped at {seen} rows: {query.exception()}")
                time.sleep(_ASK_EVERY_S)
                for progress in query.recentProgress:
                    if progress.numInputRows and progress.batchId not in counts:
                        counts[progress.batchId] = int(progress.numInputRows)
                        seconds.append(progress.batchDuration / 1000)
                        deadline = time.monotonic() + STALLED_S
        finally:
            query.stop()
        return jobs.Followed(ages, seconds)


def _stamps(batch: DataFrame) -> list[tuple[int, int]]:
    values = batch.toArrow().column("value")
    return [STAMP.unpack_from(value.as_py()) for value in values]


def _timed(wanted: int, work: Callable[[], int]) -> RowFlow:
    cpu, started = tree_cpu_seconds(), time.monotonic()
    rows = work()
    took, used = time.monotonic() - started, tree_cpu_seconds() - cpu
    if rows != wanted:
        raise BenchFailed(f"{rows} rows came out where {wanted} went in")
    return RowFlow(rows, took, used)


def _count(rows: DataFrame, target: Path) -> int:
    return rows.count()


def _aggregate(rows: DataFrame, target: Path) -> int:
    """As a dashboard would: a thousand groups, with a count and sizes."""
    groups = rows.selectExpr(f"pmod(offset, {_EVENT_GROUPS}) as event", "length(value) as size")
    made = groups.groupBy("event").agg({"size": "sum", "*": "count"}).collect()
    return sum(int(group["count(1)"]) for group in made)


def _to_parquet(rows: DataFrame, target: Path) -> int:
    import pyarrow.parquet as parquet

    rows.write.parquet(str(target))
    return sum(parquet.read_metadata(path).num_rows for path in target.glob("*.parquet"))


def _to_delta(rows: DataFrame, target: Path) -> int:
    from moldau.spark.lake import DeltaSink

    return DeltaSink(str(target), app_id="bench").write(rows, 0).rows


def _to_iceberg(rows: DataFrame, target: Path) -> int:
    from moldau.spark.lake import IcebergSink

    return IcebergSink("bench.rows", app_id="bench", warehouse=str(target)).write(rows, 0).rows


def _wait(is_true: Callable[[], bool], problem: str) -> None:
    deadline = time.monotonic() + STALLED_S
    while not is_true():
        if time.monotonic() > deadline:
            raise BenchFailed(f"{problem} within {STALLED_S} s")
        time.sleep(0.05)
