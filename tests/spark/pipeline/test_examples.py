"""The pipelines in examples/ do what they say."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from confluent_kafka import Producer
from pyspark.sql import SparkSession

from moldau.schemas import RegisteredAvroSerializer, SchemaStore
from moldau.spark.pipeline import Pipeline
from moldau.testing import Broker
from moldau.testing.waiting import until
from tests.spark.lake.iceberg.tables import duckdb_rows, rows_of, table_of
from tests.spark.pipeline.files import headers, table, values
from tests.spark.pipeline.following import followed
from tests.spark.topics import Sent, produce, read_by_librdkafka

pytestmark = [pytest.mark.spark, pytest.mark.timeout(400)]

EXAMPLES = Path(__file__).parents[3] / "examples"
START = datetime(2025, 3, 3, 9, tzinfo=UTC)


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


def load(name: str, broker: Broker, folder: Path) -> Pipeline:
    path = EXAMPLES / name / "pipeline.toml"
    return Pipeline.load(path, bootstrap=broker.bootstrap, folder=folder)


def as_json(**fields: object) -> Sent:
    return None, json.dumps(fields).encode(), []


def moment(second: float) -> str:
    return (START + timedelta(seconds=second)).isoformat()


def page_view(number: int) -> Sent:
    return as_json(
        event_id=f"e-{number}",
        time=moment(number),
        user=f"u-{number % 3}",
        session=f"s-{number % 3}",
        page=f"/{number % 2}",
        referrer=None,
        status=500 if number % 10 == 0 else 200,
        latency_ms=number / 2,
        country="CZ",
    )


@pytest.mark.slow
def test_activity_keeps_every_view_and_counts_them(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    broker.create_topic("page-views")
    produce(broker, "page-views", [page_view(number) for number in range(90)])
    produce(broker, "page-views", [as_json(event_id="broken")])
    load("activity", broker, tmp_path).run(once=True, emit_open=True, spark=spark)
    lake = tmp_path / "data" / "lake"
    raw = table(lake / "page_views")
    assert sorted(row["_offset"] for row in raw) == list(range(90))
    views = table(lake / "views_per_minute")
    assert sorted((row["minute"].minute, row["page"], row["views"]) for row in views) == [
        (0, "/0", 30),
        (0, "/1", 30),
        (1, "/0", 15),
        (1, "/1", 15),
    ]
    assert sum(row["errors"] for row in views) == 9
    sent = values(broker, "views-per-minute")
    assert sorted((row["page"], row["views"]) for row in sent) == sorted(
        (row["page"], row["views"]) for row in views
    )
    sessions = table(lake / "sessions")
    assert sorted((row["session"], row["views"]) for row in sessions) == [
        ("s-0", 30),
        ("s-1", 30),
        ("s-2", 30),
    ]
    assert len(read_by_librdkafka(broker, "page-views-dead-letters")) == 1


@pytest.mark.slow
def test_metrics_above_their_limit_become_alerts(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    broker.create_topic("metrics")
    measured = [
        as_json(time=moment(second), host=host, name=name, value=value)
        for second in range(0, 120, 10)
        for host, name, value in (
            ("web-1", "cpu", 99.0 if second < 60 else 20.0),
            ("web-2", "cpu", 50.0),
            ("web-2", "unlimited", 1e9),
        )
    ]
    produce(broker, "metrics", measured)
    load("metrics", broker, tmp_path).run(once=True, emit_open=True, spark=spark)
    (alert,) = read_by_librdkafka(broker, "alerts")
    assert alert["key"] == b"web-1"
    told = json.loads(alert["value"])
    assert told["message"] == "cpu of web-1 is 99.0 on average, and should be 90.0 at most"
    assert told["minute"] == "2025-03-03T09:00:00.000Z"
    assert len(table(tmp_path / "data/lake/metrics_per_minute")) == 6


@pytest.mark.slow
def test_logs_in_avro_are_kept_and_their_errors_grouped(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    broker.create_topic("logs")
    schema = json.loads((EXAMPLES / "logs" / "log.avsc").read_text("utf-8"))
    older = schema | {"fields": schema["fields"][:-1]}
    with SchemaStore(broker.bootstrap) as store:
        producer = Producer({"bootstrap.servers": broker.bootstrap})
        for number in range(20):
            line = {
                "time": START + timedelta(seconds=number),
                "service": "shop",
                "level": "ERROR" if number % 4 == 0 else "INFO",
                "message": f"order {number} failed",
                "trace": f"ab{number:02}",
            }
            serializer = RegisteredAvroSerializer(store, older if number < 10 else schema)
            producer.produce("logs", serializer.serialize("logs", line))
        producer.produce("logs", b"\0\0\0\0\x63nothing")
        producer.produce("logs", "plain text")
        assert producer.flush(60) == 0

        load("logs", broker, tmp_path).run(once=True, emit_open=True, spark=spark)
        rows = table(tmp_path / "data/lake/logs")
        assert len(rows) == 20
        assert sum(row["trace"] is None for row in rows) == 10
        assert (tmp_path / "data/lake/logs/day=2025-03-03").is_dir()
        (told,) = read_by_librdkafka(broker, "log-errors")
        assert json.loads(told["key"]) == ["shop", "order # failed"]
        error = RegisteredAvroSerializer(store).deserialize("log-errors", told["value"])
        assert (error["minute"], error["lines"], error["a_trace"]) == (START, 5, "ab16")
    reasons = [
        headers(row)["moldau.reason"].decode()
        for row in read_by_librdkafka(broker, "logs-dead-letters")
    ]
    assert reasons == [
        "no schema has the id 99",
        "a value with a schema id begins with 0, but this one begins with 112",
    ]


@pytest.mark.slow
def test_changes_of_a_database_become_a_copy_and_a_history(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    topic = "shop.public.customers"
    broker.create_topic(topic, partitions=2)
    lines = (EXAMPLES / "cdc" / "events.jsonl").read_bytes().splitlines()
    events: list[Sent] = [(b"%d" % number, line, []) for number, line in enumerate(lines)]
    for number, some in enumerate((events[:5], events[5:])):
        # A tombstone follows each delete; what is nobody's change is set aside.
        produce(broker, topic, [*some, (b"2", None, []), (b"x", b"{}", [])], partition=number)
        load("cdc", broker, tmp_path).run(once=True, spark=spark)
    lake = tmp_path / "data" / "lake"
    now = table(lake / "customers")
    assert sorted((row["name"], row["city"]) for row in now) == [
        ("Anna", "Olomouc"),
        ("Cyril", "Plzen"),
        ("Dana", "Tabor"),
    ]
    assert set(now[0]) == {"id", "name", "city", "updated_at", "_changed", "_position"}

    def minute(time: datetime | None) -> int | None:
        return None if time is None else time.minute

    versions = [
        (
            row["name"],
            row["city"],
            minute(row["valid_from"]),
            minute(row["valid_to"]),
            row["is_current"],
        )
        for row in table(lake / "customers_history")
    ]
    assert sorted(versions, key=lambda row: row[:3:2]) == [
        ("Anna", "Praha", 0, 3, False),
        ("Anna", "Ostrava", 3, 5, False),
        ("Anna", "Olomouc", 5, None, True),
        ("Bela", "Brno", 0, 4, False),
        ("Bela", "Znojmo", 4, 6, False),
        ("Cyril", "Plzen", 0, None, True),
        ("Dana", "Tabor", 1, None, True),
    ]
    assert len(read_by_librdkafka(broker, f"{topic}-dead-letters")) == 2


@pytest.mark.slow
def test_orders_whose_schema_grows_are_read_by_duckdb(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    folder = EXAMPLES / "evolution"
    broker.create_topic("orders")
    producer = Producer({"bootstrap.servers": broker.bootstrap})

    def sell(store: SchemaStore, version: int, **order: object) -> None:
        schema = json.loads((folder / f"order-v{version}.avsc").read_text("utf-8"))
        value = RegisteredAvroSerializer(store, schema).serialize("orders", order)
        producer.produce("orders", value)
        assert producer.flush(60) == 0

    with SchemaStore(broker.bootstrap) as store:
        sell(store, 1, time=START, customer="ann", item="tea", quantity=2)
        sell(store, 1, time=START, customer="bob", item="jam", quantity=1)
        with load("evolution", broker, tmp_path).start(spark) as running:
            until(
                lambda: all(each.lastProgress for each in running.queries.values()), "a batch", 180
            )
            later = START + timedelta(days=1)
            sell(store, 2, time=later, customer="ann", item="tea", quantity=5 * 10**9, price=0.5)
            followed(running, 3)
    lake = tmp_path / "data" / "lake"
    asked = [sys.executable, str(folder / "read.py"), str(lake)]
    told = subprocess.run(asked, capture_output=True, text=True, timeout=60, check=True).stdout
    assert told.splitlines() == [
        "2025-03-03  jam                     1  no price yet",
        "2025-03-03  tea                     2  no price yet",
        "2025-03-04  tea            5000000000  2500000000.00",
    ]
    orders = table_of(lake)
    assert [str(field.transform) for field in orders.spec().fields] == ["day", "bucket[8]"]
    assert duckdb_rows(orders, "SELECT count(*), max(price) FROM it") == [(3, 0.5)]
    latest = {row["customer"]: row["price"] for row in rows_of(lake, "shop.latest")}
    assert latest == {"ann": 0.5, "bob": None}
