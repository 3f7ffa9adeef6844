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
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from moldau.spark import session
from moldau.spark.runtime.probe import SHIPPED
from moldau.spark.runtime.shipping import WorkersLack, ship
from moldau.testing import Broker
from tests.spark.lake.copying import start_copy
from tests.spark.lake.tables import rows_of
from tests.spark.standalone import HOST, QUICK_JAVA, StandaloneSpark
from tests.spark.topics import Sent, fresh_topic, numbered, produce, read_by_librdkafka

pytestmark = [
    pytest.mark.spark,
    pytest.mark.timeout(300),
    pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="executors are found in /proc"),
]

WITHIN_S = 120.0
CONFIG = {
    "spark.driver.host": HOST,
    "spark.driver.bindAddress": HOST,
    "spark.driver.memory": "512m",
    "spark.executor.memory": "512m",
    "spark.executor.extraJavaOptions": QUICK_JAVA,
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
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
        spark = session("test", master=cluster.url, config=CONFIG)
        yield spark
        spark.stop()


def wait_until(done: Callable[[], bool], query: StreamingQuery) -> None:
    deadline = time.monotonic() + WITHIN_S
    while not done():
        problem = query.exception()
        assert problem is None, str(problem)
        assert time.monotonic() < deadline
        time.sleep(0.05)


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
