"""Runs of pipelines on a real Spark: what is written, and where the next run goes on."""

from __future__ import annotations

import shutil
import threading
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from moldau.spark.pipeline import CheckpointInUse, PipelineError, SinkProgress
from moldau.testing import Broker
from moldau.testing.waiting import until
from tests.spark.pipeline.files import (
    COUNTS,
    RAW,
    SOURCE,
    event,
    load,
    send,
    table,
    values,
)
from tests.spark.pipeline.run.pipelines import UPSERTED
from tests.spark.topics import add_partitions, fresh_topic

pytestmark = [pytest.mark.spark, pytest.mark.timeout(400)]


TO_TOPIC = """
[sinks.counted]
from = "counts"
type = "topic"
topic = "{topic}-counts"
key = "name"
"""


@pytest.mark.slow
def test_a_bounded_run_writes_all_rows_and_its_last_windows_if_told_so(
    spark: SparkSession, moldau_session_broker: Broker, tmp_path: Path
) -> None:
    broker = moldau_session_broker
    topic = fresh_topic(broker, partitions=2)
    pipeline = load(tmp_path, broker, topic, SOURCE, COUNTS, RAW, UPSERTED, TO_TOPIC)
    for index in range(2):
        send(broker, topic, [event(second, "ab"[index]) for second in range(90)], partition=index)

    done = pipeline.run(once=True, emit_open=True, spark=spark)
    assert {name: each.rows for name, each in done.items()} == dict.fromkeys(done, 180)
    assert done["raw"].written == 180
    assert done["raw"].lag == 0
    assert len(table(tmp_path / "lake/raw")) == 180
    counts = {(row["minute"].minute, row["name"]): row for row in table(tmp_path / "lake/counts")}
    assert {key: row["events"] for key, row in counts.items()} == {
        (0, "a"): 60,
        (0, "b"): 60,
        (1, "a"): 30,
        (1, "b"): 30,
    }
    sent = [
        (row["minute"][14:16], row["name"], row["events"])
        for row in values(broker, f"{topic}-counts")
    ]
    assert sorted(sent) == [("00", "a", 60), ("00", "b", 60), ("01", "a", 30), ("01", "b", 30)]

    # Nothing new: nothing is written again, not even the windows that are open.
    pipeline.run(once=True, emit_open=True, spark=spark)
    assert len(values(broker, f"{topic}-counts")) == 4
    assert len(table(tmp_path / "lake/raw")) == 180

    # A window that was emitted as it stood goes on to count, and is emitted again when complete.
    send(broker, topic, [event(second, "a") for second in range(90, 200)])
    pipeline.run(once=True, emit_open=True, spark=spark)
    rows = table(tmp_path / "lake/counts")
    assert sum(row["events"] for row in rows) == 290
    latest = {
        (row["minute"], row["name"]): row["events"] for row in values(broker, f"{topic}-counts")
    }
    assert sum(latest.values()) == 290
    assert len(table(tmp_path / "lake/raw")) == 290


@pytest.mark.slow
def test_a_batch_that_only_the_tables_know_of_is_run_again_and_changes_nothing(
    spark: SparkSession, moldau_session_broker: Broker, tmp_path: Path
) -> None:
    broker = moldau_session_broker
    topic = fresh_topic(broker)
    pipeline = load(tmp_path, broker, topic, SOURCE, COUNTS, RAW, UPSERTED)
    send(broker, topic, [event(second) for second in range(90)])
    pipeline.run(once=True, spark=spark)
    # As if killed between the table's commit of the first batch and Spark's own.
    for sink in (tmp_path / "checkpoints/test/sinks").iterdir():
        _forget_batches(sink / "commits", 0)
        _forget_batches(sink / "offsets", 1)

    send(broker, topic, [event(second) for second in range(90, 200)])
    done = pipeline.run(once=True, spark=spark)
    assert done["raw"].written == 110
    assert len(table(tmp_path / "lake/raw")) == 200
    assert sum(row["events"] for row in table(tmp_path / "lake/counts")) == 200


def _forget_batches(folder: Path, first: int) -> None:
    for entry in folder.iterdir():
        if entry.name.isdigit() and int(entry.name) >= first:
            entry.unlink()
            entry.with_name(f".{entry.name}.crc").unlink(missing_ok=True)


def unable(*_: object, **__: object) -> None:
    raise RuntimeError("not now")


@pytest.mark.slow
def test_a_lost_checkpoint_goes_on_where_the_table_says(
    spark: SparkSession,
    moldau_session_broker: Broker,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    broker = moldau_session_broker
    topic = fresh_topic(broker)
    pipeline = load(tmp_path, broker, topic, SOURCE, RAW)
    send(broker, topic, [event(second, number=second) for second in range(50)])
    pipeline.run(once=True, spark=spark)
    shutil.rmtree(tmp_path / "checkpoints")
    send(broker, topic, [event(second, number=second) for second in range(50, 80)])
    # The new query dies in its first batch, of which Spark knows the end only.
    with monkeypatch.context() as patch:
        patch.setattr("moldau.spark.lake.sink.DeltaSink.write", unable)
        with pytest.raises(PipelineError, match="sink raw: not now"):
            pipeline.run(once=True, spark=spark)
    add_partitions(broker, topic, 2)
    pipeline.run(once=True, spark=spark)
    send(broker, topic, [event(second, number=second) for second in range(80, 90)], partition=1)
    pipeline.run(once=True, spark=spark)
    assert sorted(row["number"] for row in table(tmp_path / "lake/raw")) == list(range(90))


@pytest.mark.slow
def test_windows_are_not_guessed_when_their_checkpoint_is_lost(
    spark: SparkSession, moldau_session_broker: Broker, tmp_path: Path
) -> None:
    broker = moldau_session_broker
    topic = fresh_topic(broker)
    replaced = load(tmp_path, broker, topic, SOURCE, COUNTS, UPSERTED)
    send(broker, topic, [event(second) for second in range(30)])
    replaced.run(once=True, spark=spark)
    shutil.rmtree(tmp_path / "checkpoints")
    send(broker, topic, [event(second) for second in range(30, 40)])
    replaced.run(once=True, spark=spark)
    (row,) = table(tmp_path / "lake/counts")
    assert row["events"] == 40


@pytest.mark.slow
def test_a_running_pipeline_is_stopped_between_batches_and_goes_on(
    spark: SparkSession, moldau_session_broker: Broker, tmp_path: Path
) -> None:
    broker = moldau_session_broker
    topic = fresh_topic(broker)
    pipeline = load(tmp_path, broker, topic, 'trigger = "100 milliseconds"\n', SOURCE, RAW)
    stop = threading.Event()
    seen: list[SinkProgress] = []

    def follow(progress: SinkProgress) -> None:
        seen.append(progress)
        if progress.rows == 20:
            stop.set()

    send(broker, topic, [event(second, number=second) for second in range(20)])
    done = pipeline.run(spark=spark, stop=stop, on_progress=follow)
    assert done["raw"].rows == 20
    assert seen[-1].rows_per_s > 0 or seen[-1].batch_rows == 0
    send(broker, topic, [event(second, number=second) for second in range(20, 30)])
    assert pipeline.run(once=True, spark=spark)["raw"].rows == 10
    assert sorted(row["number"] for row in table(tmp_path / "lake/raw")) == list(range(30))


def test_two_pipelines_do_not_share_a_checkpoint(
    spark: SparkSession, moldau_session_broker: Broker, tmp_path: Path
) -> None:
    broker = moldau_session_broker
    topic = fresh_topic(broker)
    pipeline = load(tmp_path, broker, topic, SOURCE, RAW)
    send(broker, topic, [event(1)])
    with pipeline.start(spark) as running:
        with pytest.raises(CheckpointInUse, match=r"is in use by process \d+ on .* another 'check"):
            pipeline.run(once=True, spark=spark)
        until(lambda: running.plan.sinks["raw"].writer.outcome.rows, "a row")
    other = 'name = "other"\ncheckpoint = "checkpoints/test"\n'
    with pytest.raises(PipelineError, match="belongs to the pipeline 'test'"):
        load(tmp_path, broker, topic, other, SOURCE, RAW).run(once=True, spark=spark)
    assert len(table(tmp_path / "lake/raw")) == 1


@pytest.mark.slow
def test_what_fails_in_sql_is_named_with_its_line(
    spark: SparkSession, moldau_session_broker: Broker, tmp_path: Path
) -> None:
    broker = moldau_session_broker
    topic = fresh_topic(broker)
    divided = """
[tables.divided]
sql = '''
SELECT time,
       10 / number AS share
FROM events
'''
[sinks.shares]
from = "divided"
type = "delta"
path = "lake/shares"
"""
    pipeline = load(tmp_path, broker, topic, SOURCE, divided)
    send(broker, topic, [event(1, number=0)])
    with pytest.raises(PipelineError) as raised:
        pipeline.run(once=True, spark=spark)
    (problem,) = raised.value.problems
    assert (problem.part, problem.line) == ("table divided", 10)
    assert problem.message.startswith("Division by zero")
    assert "sink shares" in problem.message
    assert "\tat " not in str(raised.value)
    assert "Traceback" in raised.value.detail


@pytest.mark.slow
def test_all_kinds_of_sinks_take_a_table(
    spark: SparkSession,
    moldau_session_broker: Broker,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    broker = moldau_session_broker
    topic = fresh_topic(broker)
    sinks = """
[tables.names]
sql = "SELECT name, count(*) AS events FROM events GROUP BY name"
[sinks.changes]
from = "names"
type = "topic"
topic = "{topic}-changes"
[sinks.names]
from = "names"
type = "delta"
path = "lake/names"
mode = "complete"
[sinks.shown]
from = "names"
type = "console"
[sinks.files]
from = "events"
type = "parquet"
path = "files"
partition_by = ["name"]
[sinks.windows]
from = "counts"
type = "parquet"
path = "windows"
"""
    pipeline = load(tmp_path, broker, topic, SOURCE, COUNTS, sinks)
    send(broker, topic, [event(second, "ab"[second % 2]) for second in range(70)])
    pipeline.run(once=True, emit_open=True, spark=spark)
    assert {row["name"]: row["events"] for row in values(broker, f"{topic}-changes")} == {
        "a": 35,
        "b": 35,
    }
    assert len(table(tmp_path / "lake/names")) == 2
    assert spark.read.parquet(str(tmp_path / "files")).count() == 70
    assert (
        spark.read.parquet(str(tmp_path / "windows-open")).count()
        == 4 - spark.read.parquet(str(tmp_path / "windows")).count()
    )
    assert "shown, batch 0" in capfd.readouterr().out
