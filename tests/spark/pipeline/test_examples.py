"""The pipelines in examples/ do what they say."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from confluent_kafka import Producer
from pyspark.sql import SparkSession

from moldau.schemas import RegisteredAvroSerializer, SchemaStore
from moldau.spark.pipeline import Pipeline
from moldau.testing import Broker
from tests.spark.pipeline.files import headers, table, values
from tests.spark.topics import Sent, produce, read_by_librdkafka

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

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
        assert producer.flush(20) == 0

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
        "a value with a schema id begins with 0, but this one with 112",
    ]
