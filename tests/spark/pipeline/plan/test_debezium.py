"""Debezium's events through pipelines: against an oracle, in Avro, and what they refuse."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewPartitions
from pyspark.sql import SparkSession

from moldau.schemas import RegisteredAvroSerializer, SchemaStore
from moldau.spark.pipeline import Pipeline, PipelineError
from moldau.testing import Broker
from tests.spark.lake.iceberg.tables import rows_of
from tests.spark.pipeline.files import load, table
from tests.spark.topics import Sent, fresh_topic, produce

pytestmark = [pytest.mark.spark, pytest.mark.timeout(400)]

SOURCE = """
[sources.rows]
topic = "{topic}"
format = "debezium"
"""
JSON = 'schema = "id BIGINT NOT NULL, v STRING"\n'
SINKS = """
[sinks.now]
from = "rows"
type = "delta"
path = "lake/now"
keys = ["id"]
[sinks.history]
from = "rows"
type = "delta"
path = "lake/history"
keys = ["id"]
scd = 2
"""

IN_ICEBERG = SINKS.replace(
    'type = "delta"\npath = "lake/history"',
    'type = "iceberg"\ntable = "lake.history"\nwarehouse = "iceberg"',
)


def change(op: str, id: int, lsn: int, v: str = "") -> dict[str, Any]:
    row = {"id": id, "v": v}
    source = {"ts_ms": lsn * 1000, "lsn": lsn}
    return {
        "before": row if op == "d" else None,
        "after": None if op == "d" else row,
        "source": source,
        "op": op,
        "ts_ms": lsn * 1000 + 1,
    }


def sent(event: dict[str, Any], wrapped: bool = False) -> Sent:
    value = {"schema": {}, "payload": event} if wrapped else event
    return str(event["source"]["lsn"]).encode(), json.dumps(value).encode(), []


def pipeline_of(tmp_path: Path, broker: Broker, topic: str, *parts: str) -> Pipeline:
    return load(tmp_path, broker, topic, SOURCE, *(part for part in parts))


def histories(
    rows: Iterable[dict[str, Any]],
) -> list[tuple[int, str, float, float | None, bool]]:
    return sorted(
        (
            row["id"],
            row["v"],
            row["valid_from"].timestamp(),
            row["valid_to"] and row["valid_to"].timestamp(),
            row["is_current"],
        )
        for row in rows
    )


@pytest.mark.slow
def test_disorder_duplicates_restarts_and_new_partitions_change_nothing(
    spark: SparkSession, moldau_session_broker: Broker, tmp_path: Path
) -> None:
    broker, luck = moldau_session_broker, random.Random(7)
    topic = fresh_topic(broker, partitions=2)
    events = [
        change(luck.choice("rcuud"), luck.randrange(6), lsn, f"v{lsn}") for lsn in range(1, 91)
    ]
    luck.shuffle(events)
    for number in range(3):
        some = [*events[number * 30 : number * 30 + 30], *luck.choices(events, k=10)]
        if number == 2:
            admin = AdminClient({"bootstrap.servers": broker.bootstrap})
            admin.create_partitions([NewPartitions(topic, 4)])[topic].result(20)
        for partition in range(4 if number == 2 else 2):
            rows = [sent(each, luck.random() < 0.5) for each in some[partition::4]]
            rows += [sent(each) for each in some[partition + 2 :: 4]] if number < 2 else []
            produce(broker, topic, rows, partition=partition)
        pipeline_of(tmp_path, broker, topic, JSON, IN_ICEBERG).run(once=True, spark=spark)
    ordered = sorted(events, key=lambda each: each["source"]["lsn"])
    by_key: dict[int, list[dict[str, Any]]] = {}
    for event in ordered:
        by_key.setdefault((event["after"] or event["before"])["id"], []).append(event)
    last = {id: each[-1]["after"] for id, each in by_key.items()}
    left = {id: row["v"] for id, row in last.items() if row is not None}
    assert {row["id"]: row["v"] for row in table(tmp_path / "lake/now")} == left
    expected = [
        (id, each["after"]["v"], lsn_of(each), None if then is None else lsn_of(then), then is None)
        for id, some in by_key.items()
        for each, then in pairwise([*some, None])
        if each is not None and each["after"] is not None
    ]
    assert histories(rows_of(tmp_path / "iceberg", "lake.history")) == sorted(expected)


def lsn_of(event: dict[str, Any]) -> float:
    return float(event["source"]["lsn"])


ENVELOPE = {
    "type": "record",
    "name": "Envelope",
    "fields": [
        {
            "name": "before",
            "type": [
                "null",
                {
                    "type": "record",
                    "name": "Value",
                    "fields": [
                        {"name": "id", "type": "long"},
                        {"name": "v", "type": ["null", "string"], "default": None},
                    ],
                },
            ],
            "default": None,
        },
        {"name": "after", "type": ["null", "Value"], "default": None},
        {
            "name": "source",
            "type": {
                "type": "record",
                "name": "Source",
                "fields": [{"name": "ts_ms", "type": "long"}, {"name": "lsn", "type": "long"}],
            },
        },
        {"name": "op", "type": "string"},
        {"name": "ts_ms", "type": ["null", "long"], "default": None},
    ],
}


@pytest.mark.slow
def test_events_in_avro_need_no_schema_and_a_truncated_table_stops_the_pipeline(
    spark: SparkSession, moldau_session_broker: Broker, tmp_path: Path
) -> None:
    broker = moldau_session_broker
    topic = fresh_topic(broker)
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    with SchemaStore(broker.bootstrap) as store:
        serializer = RegisteredAvroSerializer(store, ENVELOPE)

        def send(*events: dict[str, Any]) -> None:
            for event in events:
                producer.produce(topic, serializer.serialize(topic, event))
            assert producer.flush(20) == 0

        send(change("r", 1, 5, "a"), change("c", 2, 6, "b"), change("d", 1, 7))
        pipeline = pipeline_of(tmp_path, broker, topic, SINKS)
        assert pipeline.check(spark) == []
        pipeline.run(once=True, spark=spark)
        assert [(row["id"], row["v"]) for row in table(tmp_path / "lake/now")] == [(2, "b")]
        assert histories(table(tmp_path / "lake/history")) == [
            (1, "a", 5.0, 7.0, False),
            (2, "b", 6.0, None, True),
        ]
        send(change("d", 9, 8) | {"op": "t", "before": None})
        with pytest.raises(PipelineError, match="offset 3 says that the table was truncated"):
            pipeline.run(once=True, spark=spark)
    aside = SOURCE + 'truncates = "dead-letter"\n'
    load(tmp_path, broker, topic, aside, SINKS).run(once=True, spark=spark)


@pytest.mark.slow
@pytest.mark.parametrize(
    "target",
    ['type = "delta"\npath = "lake/now"', 'type = "iceberg"\ntable = "a.b"\nwarehouse = "lake"'],
)
def test_what_a_merge_lacks_is_found_before_anything_runs(
    spark: SparkSession, moldau_session_broker: Broker, tmp_path: Path, target: str
) -> None:
    broker = moldau_session_broker
    topic = fresh_topic(broker)
    plain = """
[sources.rows]
topic = "{topic}"
schema = "id BIGINT, at TIMESTAMP, v STRING"
[sinks.now]
from = "rows"
{target}
keys = ["id"]
""".replace("{target}", target)
    for setting, words in (
        ("scd = 2\n", "scd = 2 needs 'order_by'"),
        ('scd = 2\norder_by = "v"\nvalid_from = "att"\n', "has no column 'att'"),
        ('merge_where = "source.v <> target.w"\n', "No such struct field `w`"),
    ):
        found = load(tmp_path, broker, topic, plain + setting).check(spark)
        assert words in str(found[0]), setting
    fine = plain + 'merge_where = "source.v <> target.v"\n'
    assert load(tmp_path, broker, topic, fine).check(spark) == []
