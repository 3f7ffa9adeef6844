"""Batches of a pipeline that run again: rows of topic sinks and dead letters are there once."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from moldau.spark.pipeline import Pipeline
from moldau.testing import Broker
from tests.spark.topics import Sent, fresh_topic, produce, read_by_librdkafka

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(400)]

PIPELINE = """
checkpoint = "{folder}"
[sources.numbers]
topic = "{topic}"
schema = "number BIGINT NOT NULL"
dead_letters = "{topic}-letters"
options = {{ minPartitions = {tasks} }}
[sinks.out]
from = "numbers"
type = "topic"
topic = "{topic}-out"
"""


def test_rows_and_dead_letters_of_a_batch_that_runs_again_are_there_once(
    spark: SparkSession, moldau_session_broker: Broker, tmp_path: Path
) -> None:
    broker = moldau_session_broker
    topic = fresh_topic(broker, partitions=2)
    broker.create_topic(f"{topic}-out", 2)
    file = tmp_path / "again.toml"
    for turn, tasks in enumerate((2, 3)):
        records: list[Sent] = [
            (None, b"bad %d" % n if n % 10 == 0 else b'{"number": %d}' % n, [])
            for n in range(turn * 60, turn * 60 + 60)
        ]
        produce(broker, topic, records, partition=turn % 2)
        for again in (0, 1):
            # Other tasks read the same records the second time.
            text = PIPELINE.format(folder=tmp_path / "state", topic=topic, tasks=tasks + again)
            file.write_text(text, "utf-8")
            Pipeline.load(file, bootstrap=broker.bootstrap).run(once=True, spark=spark)
            # As if the driver had died between its decision and Spark's own note of it.
            notes = [
                note
                for note in tmp_path.glob("state/**/commits/*")
                if note.name.isdigit() and int(note.name) == turn
            ]
            assert notes, list(tmp_path.rglob("commits"))
            for note in notes:
                note.unlink()
                note.with_name(f".{note.name}.crc").unlink(missing_ok=True)
    found = [int(row["value"][10:-1]) for row in read_by_librdkafka(broker, f"{topic}-out", 2)]
    assert sorted(found) == [n for n in range(120) if n % 10]
    letters = [int(row["value"][4:]) for row in read_by_librdkafka(broker, f"{topic}-letters", 1)]
    assert sorted(letters) == [n for n in range(120) if n % 10 == 0]
