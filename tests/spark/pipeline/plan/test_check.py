"""`check`: what is wrong with topics and SQL, without a run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, Schema
from pyspark.sql import SparkSession

from moldau.spark.pipeline import Pipeline, PipelineError
from moldau.testing import Broker
from tests.spark.pipeline.files import COUNTS, RAW, SOURCE, load
from tests.spark.topics import fresh_topic

pytestmark = [pytest.mark.spark, pytest.mark.timeout(400)]

WINDOWED = """
[sinks.counts]
from = "counts"
type = "delta"
path = "lake/counts"
"""
PLAIN = """\
[sources.events]
topic = "{topic}"
format = "json"
schema = "time TIMESTAMP NOT NULL, name STRING, number INT"
watermark = {{ column = "time", delay = "10 seconds" }}
"""
TOTALS = """
[tables.totals]
sql = "SELECT name, count(*) AS events FROM events GROUP BY name"
"""


@pytest.fixture(scope="module")
def topic(moldau_session_broker: Broker) -> str:
    return fresh_topic(moldau_session_broker)


def test_a_right_file_has_no_problems_and_leaves_nothing_behind(
    spark: SparkSession, moldau_session_broker: Broker, tmp_path: Path, topic: str
) -> None:
    pipeline = load(tmp_path, moldau_session_broker, topic, SOURCE, COUNTS, RAW, WINDOWED)
    assert pipeline.check(spark) == []
    assert [path.name for path in tmp_path.iterdir()] == ["test.toml"]


# What is added begins on line 6.
@pytest.mark.parametrize(
    ("added", "line", "part", "said"),
    [
        (
            "[tables.t]\nsql = '''\nSELECT name,\n  numbr\nFROM events'''\n" + RAW,
            9,
            "table t",
            "there is no column 'numbr'; did you mean 'number'?",
        ),
        (
            '[tables.t]\nsql = "SELECT * FROM event"\n' + RAW,
            7,
            "table t",
            "there is no source, table or step 'event'; did you mean 'events'?",
        ),
        (
            '[tables.t]\nsql = "SELECT * FROM u"\n[tables.u]\nsql = "SELECT * FROM events"\n' + RAW,
            7,
            "table t",
            "table u is defined below this one; move it above",
        ),
        (
            "[tables.t]\nsql = '''\nSELECT name\nFORM events'''\n" + RAW,
            9,
            "table t",
            "Syntax error",
        ),
        (
            "[tables.t]\nsql = '''\nSELECT nosuch(name)\nFROM events'''\n" + RAW,
            8,
            "table t",
            "nosuch",
        ),
        (
            TOTALS + '[sinks.t]\nfrom = "totals"\ntype = "delta"\npath = "t"\n',
            10,
            "sink t",
            "aggregates without a watermark",
        ),
        (
            TOTALS + '[sinks.t]\nfrom = "totals"\ntype = "delta"\npath = "t"\nkeys = ["nme"]\n',
            13,
            "sink t",
            "totals has no column 'nme'; did you mean 'name'?",
        ),
        (
            '[sinks.t]\nfrom = "events"\ntype = "delta"\npath = "t"\nkeys = ["name"]\n'
            'partition_by = ["number"]\ndelete_where = "numbr IS NULL"\n',
            12,
            "sink t",
            "numbr",
        ),
        (
            '[sinks.t]\nfrom = "events"\ntype = "delta"\npath = "t"\nmode = "complete"\n',
            10,
            "sink t",
            "complete is for tables that aggregate",
        ),
        (
            '[sinks.t]\nfrom = "events"\ntype = "topic"\ntopic = "t"\nformat = "raw"\n',
            10,
            "sink t",
            "not time, name, number",
        ),
    ],
)
def test_wrong_sql_and_sinks_are_found_on_their_lines(
    spark: SparkSession,
    moldau_session_broker: Broker,
    tmp_path: Path,
    topic: str,
    added: str,
    line: int,
    part: str,
    said: str,
) -> None:
    (problem,) = load(tmp_path, moldau_session_broker, topic, SOURCE, added).check(spark)
    assert said in problem.message, problem
    assert "\n" not in problem.message
    assert (problem.line, problem.part) == (line, part)


@pytest.mark.parametrize(
    ("change", "line", "said"),
    [
        (("number INT", "number INTT"), 4, "not a schema: Unsupported data type"),
        (('column = "time"', 'column = "tim"'), 5, "no column 'tim'; did you mean 'time'?"),
        (('column = "time"', 'column = "name"'), 5, "'name' is string, but must be a timestamp"),
        (('"json"\nschema', '"avro"\n# schema'), 3, "has no subject"),
        (('topic = "{topic}"', 'pattern = "[a"'), 2, "not closed, at position 0 of '[a'"),
        (("watermark", 'start = "noon"\nwatermark'), 5, "start is 'noon', but must be earliest"),
        (
            ("watermark", "options = {{ minPartition = 3 }}\nwatermark"),
            5,
            "there is no option 'minpartition'; did you mean 'minPartitions'?",
        ),
    ],
)
def test_wrong_sources_are_found_on_their_lines(
    spark: SparkSession,
    moldau_session_broker: Broker,
    tmp_path: Path,
    topic: str,
    change: tuple[str, str],
    line: int,
    said: str,
) -> None:
    text = PLAIN.replace(*change)
    assert text != PLAIN
    (problem,) = load(tmp_path, moldau_session_broker, topic, text, RAW).check(spark)
    assert said in problem.message, problem
    assert (problem.line, problem.part) == (line, "source events")


NUMBERED = [("time", pa.timestamp("us", tz="UTC")), ("number", pa.int32())]


@pytest.mark.parametrize(
    ("columns", "more", "sink", "said"),
    [
        (
            [("time", pa.timestamp("us", tz="UTC")), ("number", pa.string())],
            {},
            "",
            "column 'number' is string in the table and int32 in the batch",
        ),
        (
            [*NUMBERED, pa.field("kept", pa.string(), nullable=False)],
            {},
            "",
            "column 'kept' (string, not null) is missing in the batch",
        ),
        (
            NUMBERED,
            {"partition_by": ["number"]},
            'partition_by = ["name"]\n',
            "is partitioned by ['number'], not by ['name']",
        ),
        (
            NUMBERED,
            {"constraint": {"positive": "number > 0"}},
            "",
            "has rules that this sink cannot follow (delta.constraints.positive)",
        ),
        (
            NUMBERED,
            {},
            'keys = ["name"]\norder_by = ["placed"]\n',
            "column 'placed' is list<element: string>, which has no order",
        ),
        (
            [*NUMBERED, *((name, pa.bool_()) for name in ("valid_from", "valid_to", "is_current"))],
            {},
            'keys = ["name"]\norder_by = ["number"]\n',
            "has a history (valid_from, valid_to, is_current), which an upsert with scd = 1",
        ),
    ],
)
def test_a_table_that_does_not_take_the_rows_is_found_before_a_run(
    spark: SparkSession,
    moldau_session_broker: Broker,
    tmp_path: Path,
    topic: str,
    columns: list[Any],
    more: dict[str, Any],
    sink: str,
    said: str,
) -> None:
    path = str(tmp_path / "lake/raw")
    more = dict(more)
    constraint = more.pop("constraint", None)
    made = DeltaTable.create(path, Schema.from_arrow(pa.schema(columns)), **more)
    if constraint:
        made.alter.add_constraint(constraint)
    version = made.version()
    placed = "[tables.placed]\nsql = \"SELECT *, split(name, ' ') AS placed FROM events\"\n"
    raw = RAW.replace('"events"', '"placed"') + sink
    pipeline = load(tmp_path, moldau_session_broker, topic, SOURCE, placed, raw)
    (problem,) = pipeline.check(spark)
    assert said in problem.message
    assert problem.part == "sink raw"
    assert pipeline.file.path.read_text("utf-8").splitlines()[problem.line - 1] == (
        'path = "lake/raw"'
    )
    with pytest.raises(PipelineError) as raised:
        pipeline.run(once=True, spark=spark)
    assert raised.value.problems == (problem,)
    assert DeltaTable(path).version() == version
    assert not (tmp_path / "checkpoints").exists()


def test_a_table_that_takes_the_rows_is_fine_and_stays_as_it_is(
    spark: SparkSession, moldau_session_broker: Broker, tmp_path: Path, topic: str
) -> None:
    path = str(tmp_path / "lake/raw")
    # Columns that it lacks are added by a run, and a narrower number is widened.
    DeltaTable.create(path, Schema.from_arrow(pa.schema([("number", pa.int64())])))
    assert load(tmp_path, moldau_session_broker, topic, SOURCE, RAW).check(spark) == []
    assert (DeltaTable(path).version(), len(DeltaTable(path).schema().fields)) == (0, 1)


def test_a_checkpoint_of_another_pipeline_is_found_before_a_run(
    spark: SparkSession, moldau_session_broker: Broker, tmp_path: Path, topic: str
) -> None:
    folder = tmp_path / "checkpoints/test"
    folder.mkdir(parents=True)
    (folder / "pipeline.json").write_text(json.dumps({"name": "another", "sinks": {}}))
    (problem,) = load(tmp_path, moldau_session_broker, topic, SOURCE, RAW).check(spark)
    assert "belongs to the pipeline 'another'" in problem.message
    assert [path.name for path in folder.iterdir()] == ["pipeline.json"]


def test_a_topic_that_does_not_exist_is_named_with_the_nearest_one(
    spark: SparkSession, moldau_session_broker: Broker, tmp_path: Path
) -> None:
    moldau_session_broker.create_topic("check-orders")
    pipeline = load(tmp_path, moldau_session_broker, "check-order", SOURCE, RAW)
    (problem,) = pipeline.check(spark)
    assert problem.message == "topic 'check-order' does not exist; did you mean 'check-orders'?"
    assert (problem.line, problem.part) == (3, "source events")
    with pytest.raises(PipelineError, match="topic 'check-order' does not exist"):
        pipeline.run(once=True, spark=spark)


@pytest.mark.slow
def test_brokers_that_do_not_answer_are_named(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "test.toml"
    path.write_text(SOURCE.format(topic="x") + RAW, "utf-8")
    (problem,) = Pipeline.load(path, bootstrap="127.0.0.1:1").check(spark)
    assert "127.0.0.1:1" in problem.message
    assert "refused" in problem.message
