"""kill -9 of `moldau pipeline run` at random moments: rows once, and aggregates right."""

from __future__ import annotations

import random
import shutil
import time
from collections import Counter
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from moldau.testing import Broker
from tests.spark.drivers import (
    DRIVER_WITHIN_S,
    KILLS,
    LONGEST_LIFE_S,
    SEED,
    Driver,
)
from tests.spark.lake.tables import version_of
from tests.spark.pipeline.files import COUNTS, RAW, SOURCE, event, load, send, table
from tests.spark.topics import fresh_topic

pytestmark = pytest.mark.spark

# One less than elsewhere, as a pipeline takes long to start.
TIMES = max(KILLS - 1, 1)
A_KILL = 300
SETTINGS = """
trigger = "100 milliseconds"
[spark]
"spark.driver.memory" = "512m"
"spark.sql.shuffle.partitions" = 2
"""
UPSERTED = """
[sinks.counts]
from = "counts"
type = "delta"
path = "lake/counts"
keys = ["minute", "name"]
"""


@pytest.mark.slow
def test_a_pipeline_starts_though_it_was_killed_while_it_wrote_its_first_plan(
    spark: SparkSession, moldau_session_broker: Broker, tmp_path: Path
) -> None:
    topic = fresh_topic(moldau_session_broker)
    pipeline = load(tmp_path, moldau_session_broker, topic, SOURCE, RAW)
    send(moldau_session_broker, topic, [event(second, "a") for second in range(10)])
    pipeline.run(once=True, spark=spark)
    # As a driver leaves it that got no further.
    (query,) = tmp_path.glob("**/sinks/raw")
    shutil.rmtree(query)
    shutil.rmtree(tmp_path / "lake/raw")
    (query / "offsets").mkdir(parents=True)
    for name in (".0.533e892b-ece4-40bd-9727-1438dcf0c63a.tmp", "..0.533e892b.tmp.crc"):
        (query / "offsets" / name).write_text("v1")
    pipeline.run(once=True, spark=spark)
    assert len(table(tmp_path / "lake/raw")) == 10


@pytest.mark.timeout(DRIVER_WITHIN_S * (TIMES + 1))
@pytest.mark.slow
def test_a_killed_pipeline_leaves_every_row_once_and_its_counts_right(
    moldau_session_broker: Broker, tmp_path: Path
) -> None:
    broker, raw, luck = moldau_session_broker, tmp_path / "lake/raw", random.Random(SEED)
    topic = fresh_topic(broker, partitions=2)
    source = SOURCE + "max_records_per_batch = 30\n"
    file = tmp_path / "killed.toml"
    text = "".join((SETTINGS, source, COUNTS, RAW, UPSERTED))
    file.write_text(text.format(topic=topic), "utf-8")
    given = ("--master", "local[2]", "--bootstrap", broker.bootstrap)
    run = ("-m", "moldau", "pipeline", "run", str(file), *given)
    for number in range(TIMES):
        numbers = range(number * A_KILL, (number + 1) * A_KILL)
        events = [event(each % 120, "ab"[each % 2], each) for each in numbers]
        send(broker, topic, events, partition=number % 2, per_batch=10)
        before = version_of(raw)
        with Driver(*run, log=tmp_path / f"driver-{number}.log") as driver:
            driver.wait_until(lambda: version_of(raw) > before)  # noqa: B023
            time.sleep(luck.uniform(0, LONGEST_LIFE_S))
    # No limit any more, so that this takes few batches.
    more = ("--once", "--set", "sources.events.max_records_per_batch=10000")
    with Driver(*run, *more, log=tmp_path / "last.log") as last:
        assert last.process.wait(DRIVER_WITHIN_S) == 0, last.said()
    every = range(TIMES * A_KILL)
    assert sorted(row["number"] for row in table(raw)) == list(every), f"seed {SEED}"
    counts = {
        (row["minute"].minute, row["name"]): (row["events"], row["total"])
        for row in table(tmp_path / "lake/counts")
    }
    keys = [(each % 120 // 60, "ab"[each % 2]) for each in every]
    totals: Counter[tuple[int, str]] = Counter()
    for key, each in zip(keys, every, strict=True):
        totals[key] += each
    assert counts == {key: (n, totals[key]) for key, n in Counter(keys).items()}, f"seed {SEED}"
