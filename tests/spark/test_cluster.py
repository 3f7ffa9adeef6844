"""A standalone cluster of two workers whose Python lacks this package; executors that die."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import sysconfig
import time
import venv
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark import TaskContext
from pyspark.sql import SparkSession

from moldau.peer.cluster import LATEST
from moldau.peer.cluster import Cluster as Peers
from moldau.peer.view import parse_bootstrap
from moldau.spark import session
from moldau.spark.lake.tasks import map_in_arrow
from moldau.spark.runtime.probe import SHIPPED
from moldau.spark.runtime.shipping import WorkersLack, ship
from moldau.spark.sink.committing import Committer
from moldau.testing import Broker
from moldau.testing.waiting import until
from tests.spark.lake.copying import start_copy
from tests.spark.lake.tables import rows_of
from tests.spark.queries import wait_until
from tests.spark.standalone import ON_THIS_MACHINE, StandaloneSpark
from tests.spark.topics import Sent, fresh_topic, numbered, produce, read_by_librdkafka

pytestmark = [
    pytest.mark.spark,
    pytest.mark.timeout(400),
    pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="executors are found in /proc"),
]

WITHIN_S = 120.0
CONFIG = {
    **ON_THIS_MACHINE,
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
}

# A second attempt at a task that takes longer than the other one.
SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.multiplier": "1.5",
    "spark.speculation.minTaskRuntime": "1s",
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneSpark]:
    with StandaloneSpark(tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster


def python_without(folder: Path, *packages: str) -> Path:
    """A Python with all that this one has but for some packages; made of links, so it is cheap."""
    venv.create(folder, with_pip=False, symlinks=True)
    site = next(folder.glob("lib/python3*/site-packages"))
    for entry in Path(sysconfig.get_path("purelib")).iterdir():
        # Through files like that the package may be found elsewhere.
        if entry.suffix != ".pth" and not entry.name.startswith(packages):
            (site / entry.name).symlink_to(entry)
    return folder / "bin" / "python"


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python that has all but this package."""
    return python_without(tmp_path_factory.mktemp("bare"), *SHIPPED)


PIPELINE = """
[sources.events]
topic = "{topic}"
schema = "time TIMESTAMP NOT NULL, name STRING"
watermark = {{ column = "time", delay = "10 seconds" }}

[tables.counts]
sql = '''
    SELECT window.start AS minute, count(*) AS events FROM events GROUP BY window(time, '1 minute')
'''

[sinks.raw]
from = "events"
type = "delta"
path = "lake/raw"

[sinks.counts]
from = "counts"
type = "topic"
topic = "{topic}-counts"

[spark]
{spark}
"""


# Before there is a session on this cluster: that would hold all its cores.
@pytest.mark.slow
def test_a_pipeline_runs_on_workers_that_lack_this_package(
    cluster: StandaloneSpark, bare: Path, moldau_session_broker: Broker, tmp_path: Path
) -> None:
    broker = moldau_session_broker
    topic = fresh_topic(broker, partitions=2)
    file = tmp_path / "events.toml"
    spark = "\n".join(f'"{name}" = "{value}"' for name, value in CONFIG.items())
    file.write_text(PIPELINE.format(topic=topic, spark=spark), "utf-8")
    events: list[Sent] = [
        (None, json.dumps({"time": f"2024-05-01T12:0{n // 60}:{n % 60:02}Z"}).encode(), [])
        for n in range(180)
    ]
    produce(broker, topic, [*events, (None, b"nonsense", [])])
    ended = subprocess.run(
        [
            *(sys.executable, "-m", "moldau", "pipeline", "run", str(file), "--once", "--json"),
            *("--emit-open", "--master", cluster.url, "--bootstrap", broker.bootstrap),
        ],
        env={**os.environ, "PYSPARK_PYTHON": str(bare)},
        capture_output=True,
        text=True,
        timeout=2 * WITHIN_S,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.stderr == ""
    done = [json.loads(line) for line in ended.stdout.splitlines()]
    assert sum(each["dead_letters"] for each in done) == 1
    assert count(tmp_path / "lake/raw") == 180
    windows = [json.loads(row["value"]) for row in read_by_librdkafka(broker, f"{topic}-counts")]
    assert [each["events"] for each in windows] == [60, 60, 60]


@pytest.fixture(scope="module")
def spark(cluster: StandaloneSpark, bare: Path) -> Iterator[SparkSession]:
    """A session on that cluster, whose workers have all but this package."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("PYTHONPATH", raising=False)
        patch.setenv("PYSPARK_PYTHON", str(bare))
        spark = session("test", master=cluster.url, config=CONFIG | SPECULATION)
        yield spark
        spark.stop()


@pytest.mark.slow
def test_the_package_reaches_workers_and_rows_are_there_once_though_executors_die(
    spark: SparkSession, cluster: StandaloneSpark, moldau_broker: Broker, tmp_path: Path
) -> None:
    broker, table = moldau_broker, tmp_path / "table"
    topic = fresh_topic(broker, partitions=2)
    produce(broker, topic, numbered(0, 400), per_batch=10)
    query = start_copy(spark, broker.bootstrap, topic, tmp_path, most=100)
    try:
        wait_until(lambda: count(table) >= 100, query)
        first, second = cluster.executors()
        os.kill(first, signal.SIGKILL)
        produce(broker, topic, numbered(400, 300), per_batch=10)
        wait_until(lambda: count(table) >= 500, query)
        broker.stop()
        broker.start()
        os.kill(second, signal.SIGKILL)
        produce(broker, topic, numbered(700, 200), per_batch=10)
        wait_until(lambda: count(table) >= 900, query)
    finally:
        query.stop()
    assert {first, second}.isdisjoint(cluster.executors())
    rows = rows_of(table)
    assert sorted(row["n"] for row in rows) == list(range(900))
    assert len({(row["partition"], row["offset"]) for row in rows}) == 900


def count(table: Path) -> int:
    return len(rows_of(table)) if (table / "_delta_log").is_dir() else 0


@pytest.mark.slow
def test_a_speculative_attempt_that_is_faster_leaves_every_row_of_the_sink_once(
    spark: SparkSession, moldau_session_broker: Broker, tmp_path: Path
) -> None:
    broker = moldau_session_broker
    topic = fresh_topic(broker, partitions=2)
    second = str(tmp_path / "second attempt")

    # Within the test, as workers lack this module: so it is sent whole.
    def slowly_at_first(batches: Iterator[Any]) -> Iterator[Any]:
        context = TaskContext.get()
        assert context is not None
        yield from batches
        if context.attemptNumber():
            Path(second).touch()
        elif context.partitionId() == 1:
            # Its rows are staged by now. It will be killed.
            time.sleep(2 * WITHIN_S)

    rows = spark.range(100, numPartitions=2).selectExpr("cast(id as string) as value")
    frame = map_in_arrow(rows, slowly_at_first, "value string")
    writer = frame.write.format("moldau").option("topic", topic).mode("append")
    writer.option("kafka.bootstrap.servers", broker.bootstrap).option("exactlyOnce", "true").save()

    def is_there_once() -> bool:
        found = read_by_librdkafka(broker, topic, 2)
        assert len(found) <= 100
        return sorted(int(row["value"]) for row in found) == list(range(100))

    until(is_there_once)
    assert Path(second).exists()


@pytest.mark.slow
@pytest.mark.timeout(500)
def test_rows_of_the_sink_are_there_once_though_executors_die_while_they_stage(
    spark: SparkSession, cluster: StandaloneSpark, moldau_session_broker: Broker, tmp_path: Path
) -> None:
    broker = moldau_session_broker
    source, target = fresh_topic(broker, partitions=2), fresh_topic(broker, partitions=2)
    # More than what stays in the buffers between two processes.
    padding = b"." * 1000
    for partition in range(2):
        rows: list[Sent] = [(None, b"%d %s" % (n, padding), []) for n in range(partition, 400, 2)]
        produce(broker, source, rows, partition=partition)
    killed = str(tmp_path / "killed")

    # Within the test, as workers lack this module: so it is sent whole.
    def until_they_die(batches: Iterator[Any]) -> Iterator[Any]:
        context = TaskContext.get()
        assert context is not None
        yield from batches
        while context.partitionId() == 1 and not Path(killed).exists():
            time.sleep(0.05)

    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "20")
    stream = (
        spark.readStream.format("moldau")
        .option("kafka.bootstrap.servers", broker.bootstrap)
        .option("subscribe", source)
        .option("startingOffsets", "earliest")
        .load()
        .select("partition", "value")
    )
    query = (
        map_in_arrow(stream, until_they_die, "partition int, value binary")
        .writeStream.format("moldau")
        .option("kafka.bootstrap.servers", broker.bootstrap)
        .option("topic", target)
        .option("exactlyOnce", "true")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    try:
        with Peers(parse_bootstrap(broker.bootstrap)) as peers:
            wait_until(lambda: end_of(peers, target, 1) > 0, query)
            executors = cluster.executors()
            for executor in executors:
                os.kill(executor, signal.SIGKILL)
            Path(killed).touch()
            assert query.awaitTermination(int(2 * WITHIN_S))
            problem = query.exception()
            assert problem is None, str(problem)
            # What died was aborted, and holds nobody back.
            assert Committer(peers).ongoing(f"{query.id}/{target}") == []
            assert end_of(peers, target, 1, read_committed=True) == end_of(peers, target, 1)
    finally:
        query.stop()
        spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")
    assert executors
    assert set(executors).isdisjoint(cluster.executors())
    numbers = [int(row["value"].split()[0]) for row in read_by_librdkafka(broker, target, 2)]
    assert sorted(numbers) == list(range(400))


def end_of(peers: Peers, topic: str, partition: int, *, read_committed: bool = False) -> int:
    place = (topic, partition)
    return peers.list_offsets({place: LATEST}, read_committed=read_committed)[place].offset


@pytest.mark.slow
def test_packages_that_workers_lack_are_named_with_what_to_do(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    poor = python_without(tmp_path / "poor", *SHIPPED, "numba", "cramjam")
    change_python(spark, poor, monkeypatch)
    with pytest.raises(WorkersLack, match=r"cramjam, numba\. .*pip install 'moldau\[spark\]'"):
        ship(spark)


@pytest.mark.slow
def test_a_python_that_workers_do_not_have_is_named(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    change_python(spark, Path("/nowhere/python"), monkeypatch)
    with pytest.raises(WorkersLack, match=r"cannot run /nowhere/python: .*; set PYSPARK_PYTHON"):
        ship(spark)


def change_python(spark: SparkSession, python: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the session had begun with that one: a new one would take long."""
    context = spark.sparkContext
    monkeypatch.setattr(context, "pythonExec", str(python))
    monkeypatch.setattr(context, "_python_includes", [])
    monkeypatch.setitem(context.environment, "PYTHONPATH", "")
