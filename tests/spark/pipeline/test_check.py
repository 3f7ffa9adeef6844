"""`check`: what is wrong with topics and SQL, without a run."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from moldau.spark.pipeline import Pipeline, PipelineError
from moldau.testing import Broker
from tests.spark.pipeline.files import COUNTS, RAW, SOURCE, load
from tests.spark.topics import fresh_topic

pytestmark = [pytest.mark.spark, pytest.mark.timeout(240)]

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
            "there is no source or table 'event'; did you mean 'events'?",
        ),
        (
            '[tables.t]\nsql = "SELECT * FROM u"\n[tables.u]\nsql = "SELECT * FROM events"\n' + RAW,
            7,
            "table t",
            "table u stands below; a table sees the tables above it",
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


def test_brokers_that_do_not_answer_are_named(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "test.toml"
    path.write_text(SOURCE.format(topic="x") + RAW, "utf-8")
    (problem,) = Pipeline.load(path, bootstrap="127.0.0.1:1").check(spark)
    assert "127.0.0.1:1" in problem.message
    assert "refused" in problem.message
