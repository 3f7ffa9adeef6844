"""Avro schemas that grow while a pipeline runs, on a real Spark."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from moldau.client.avro import encode_avro, parse_avro
from moldau.schemas import RegisteredSchema, SchemaStore, pack_header
from moldau.spark.pipeline import PipelineError
from moldau.testing import Broker
from tests.spark.pipeline.files import load, table, values
from tests.spark.topics import Sent, fresh_topic, produce, read_by_librdkafka

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(240)]

OLD = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "int"}]}
PRICE = {"name": "price", "type": ["null", "double"], "default": None}
NEW = {**OLD, "fields": [*OLD["fields"], PRICE]}

PIPELINE = """
[sources.orders]
topic = "{topic}"
format = "avro"
[sinks.lake]
from = "orders"
type = "delta"
path = "lake/orders"
[sinks.copy]
from = "orders"
type = "topic"
topic = "{topic}-copy"
"""


def order(version: RegisteredSchema, number: int) -> Sent:
    value: dict[str, Any] = {"id": number, "price": number / 2}
    return None, encode_avro(parse_avro(version.schema), value, "", pack_header(version.id)), []


def test_new_fields_stop_the_pipeline_and_the_next_run_takes_them_up(
    spark: SparkSession, moldau_session_broker: Broker, tmp_path: Path
) -> None:
    broker = moldau_session_broker
    topic = fresh_topic(broker)
    with SchemaStore(broker.bootstrap) as store:
        old = store.register(f"{topic}-value", OLD)
        produce(broker, topic, [order(old, number) for number in range(10)])
        pipeline = load(tmp_path, broker, topic, PIPELINE)
        with pipeline.start(spark) as running:
            deadline = time.monotonic() + 120
            while not all(each.lastProgress for each in running.queries.values()):
                assert time.monotonic() < deadline
                time.sleep(0.05)
            new = store.register(f"{topic}-value", NEW)
            grown = [order(new if number == 14 else old, number) for number in range(10, 20)]
            produce(broker, topic, grown)
            with pytest.raises(PipelineError, match=r"lacks: price \(null or double\)") as raised:
                running.wait()
    assert f"{topic}-0 offset 14" in str(raised.value)
    assert "source orders: " in str(raised.value)
    written = [row["id"] for row in table(tmp_path / "lake" / "orders")]
    assert sorted(written) == list(range(10))
    assert [row["id"] for row in values(broker, f"{topic}-copy")] == list(range(10))
    done = load(tmp_path, broker, topic, PIPELINE).run(once=True, spark=spark)
    assert {each.dead_letters for each in done.values()} == {0}
    expected = {number: (number / 2 if number == 14 else None) for number in range(20)}
    rows = table(tmp_path / "lake" / "orders")
    assert len(rows) == 20
    assert {row["id"]: row["price"] for row in rows} == expected
    copied = values(broker, f"{topic}-copy")
    assert [row["id"] for row in copied] == list(range(20))
    assert {row["id"]: row.get("price") for row in copied} == expected
    assert read_by_librdkafka(broker, f"{topic}-dead-letters") == []
