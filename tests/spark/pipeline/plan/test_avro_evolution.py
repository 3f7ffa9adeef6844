"""Avro schemas that grow while a pipeline runs, on a real Spark."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from moldau.client.avro import encode_avro, parse_avro
from moldau.schemas import RegisteredSchema, SchemaStore, pack_header
from moldau.spark.pipeline import PipelineError
from moldau.spark.pipeline.run.progress import SinkProgress
from moldau.spark.pipeline.run.running import Running
from moldau.testing import Broker
from moldau.testing.waiting import until
from tests.spark.lake.iceberg.tables import rows_of
from tests.spark.pipeline.files import load, table, values
from tests.spark.pipeline.following import followed
from tests.spark.topics import Sent, fresh_topic, produce, read_by_librdkafka

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(400)]

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


FAIL = 'evolution = "fail"\n'
ICEBERG = """
[sinks.ice]
from = "orders"
type = "iceberg"
table = "shop.orders"
warehouse = "lake"
"""
PAUSED = """
[sources.orders]
topic = "{topic}"
format = "avro"
evolution = "pause"
[sources.lines]
topic = "{topic}-lines"
format = "string"
[sinks.lake]
from = "orders"
type = "delta"
path = "lake/orders"
[sinks.lines]
from = "lines"
type = "delta"
path = "lake/lines"
"""


def order(version: RegisteredSchema, number: Any) -> Sent:
    value: dict[str, Any] = {"id": number, "price": 7.5, "note": "n"}
    return None, encode_avro(parse_avro(version.schema), value, "", pack_header(version.id)), []


def started(running: Running) -> None:
    until(lambda: all(each.lastProgress for each in running.queries.values()), "a batch", 180)


def test_new_fields_stop_a_pipeline_that_is_to_fail_and_the_next_run_takes_them_up(
    spark: SparkSession, moldau_session_broker: Broker, tmp_path: Path
) -> None:
    broker = moldau_session_broker
    topic = fresh_topic(broker)
    with SchemaStore(broker.bootstrap) as store:
        old = store.register(f"{topic}-value", OLD)
        produce(broker, topic, [order(old, number) for number in range(10)])
        pipeline = load(tmp_path, broker, topic, FAIL, PIPELINE)
        with pipeline.start(spark) as running:
            started(running)
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
    expected = {number: (7.5 if number == 14 else None) for number in range(20)}
    rows = table(tmp_path / "lake" / "orders")
    assert len(rows) == 20
    assert {row["id"]: row["price"] for row in rows} == expected
    copied = values(broker, f"{topic}-copy")
    assert [row["id"] for row in copied] == list(range(20))
    assert {row["id"]: row.get("price") for row in copied} == expected
    assert read_by_librdkafka(broker, f"{topic}-dead-letters") == []


def test_a_newer_schema_is_taken_up_by_the_batch_that_meets_it(
    spark: SparkSession,
    moldau_session_broker: Broker,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    broker = moldau_session_broker
    topic = fresh_topic(broker)
    wide = {**NEW, "fields": [{"name": "id", "type": "long"}, PRICE]}
    with SchemaStore(broker.bootstrap) as store:
        old = store.register(f"{topic}-value", OLD)
        produce(broker, topic, [order(old, number) for number in range(10)])
        pipeline = load(tmp_path, broker, topic, PIPELINE.replace("delta", "parquet"), ICEBERG)
        with pipeline.start(spark) as running:
            started(running)
            new = store.register(f"{topic}-value", NEW)
            grown = [order(new if number == 14 else old, number) for number in range(10, 20)]
            produce(broker, topic, grown)
            followed(running, 20)
        # Wider numbers come the same way, to a table that can hold them.
        with load(tmp_path, broker, topic, PIPELINE[: PIPELINE.index("[sinks")], ICEBERG).start(
            spark
        ) as running:
            started(running)
            wider = store.register(f"{topic}-value", wide)
            produce(broker, topic, [order(wider, 1 << 40), order(old, 20)])
            followed(running, 2)
    rows = rows_of(tmp_path / "lake")
    assert sorted(row["id"] for row in rows) == [*range(21), 1 << 40]
    assert {row["id"] for row in rows if row["price"] is not None} == {14, 1 << 40}
    copied = values(broker, f"{topic}-copy")
    assert [row["id"] for row in copied] == list(range(20))
    assert [row["id"] for row in copied if row.get("price")] == [14]
    said = "so it is planned again before any of it is written (new: price (double))"
    assert said in caplog.text
    assert "planned again before any of it is written (wider: id (bigint, was int))" in caplog.text
    assert read_by_librdkafka(broker, f"{topic}-dead-letters") == []


@pytest.mark.parametrize(
    ("fields", "number", "said"),
    [
        ([{"name": "id", "type": "string"}], "x", r"of another type: id \(string, was int\)"),
        ([PRICE], 0, r"new: price \(double\); gone: id \(int\)"),
    ],
)
def test_an_incompatible_schema_stops_the_pipeline_before_anything_is_written(
    spark: SparkSession,
    moldau_session_broker: Broker,
    tmp_path: Path,
    fields: list[Any],
    number: Any,
    said: str,
) -> None:
    broker = moldau_session_broker
    topic = fresh_topic(broker)
    with SchemaStore(broker.bootstrap) as store:
        store.set_mode("none", f"{topic}-value")
        old = store.register(f"{topic}-value", OLD)
        produce(broker, topic, [order(old, number) for number in range(10)])
        with load(tmp_path, broker, topic, PIPELINE).start(spark) as running:
            started(running)
            other = store.register(f"{topic}-value", {**OLD, "fields": fields})
            produce(broker, topic, [order(old, 10), order(other, number)])
            with pytest.raises(PipelineError, match=said) as raised:
                running.wait()
    assert f"{topic}-0 offset 11" in str(raised.value)
    # By this, a supervisor knows that the next start would meet the same.
    assert "moldau.spark.formats.errors.NewFields" in raised.value.detail
    assert sorted(row["id"] for row in table(tmp_path / "lake" / "orders")) == list(range(10))
    assert [row["id"] for row in values(broker, f"{topic}-copy")] == list(range(10))
    assert read_by_librdkafka(broker, f"{topic}-dead-letters") == []


def test_a_sink_pauses_at_a_newer_schema_and_others_run_on(
    spark: SparkSession, moldau_session_broker: Broker, tmp_path: Path
) -> None:
    broker = moldau_session_broker
    topic = fresh_topic(broker)
    broker.create_topic(f"{topic}-lines")
    stop = threading.Event()

    def note(progress: SinkProgress) -> None:
        if progress.sink == "lines" and progress.rows >= 5:
            stop.set()

    with SchemaStore(broker.bootstrap) as store:
        old = store.register(f"{topic}-value", OLD)
        produce(broker, topic, [order(old, number) for number in range(10)])
        pipeline = load(tmp_path, broker, topic, PAUSED)
        with pipeline.start(spark) as running:
            started(running)
            produce(broker, topic, [order(store.register(f"{topic}-value", NEW), 10)])
            until(lambda: running.queries["lake"].exception() is not None, "the pause", 120)
            produce(broker, f"{topic}-lines", [(None, b"line", [])] * 5)
            running.wait(stop=stop, on_progress=note)
    assert len(table(tmp_path / "lake" / "lines")) == 5
    assert sorted(row["id"] for row in table(tmp_path / "lake" / "orders")) == list(range(10))
    load(tmp_path, broker, topic, PAUSED).run(once=True, spark=spark)
    rows = {row["id"]: row["price"] for row in table(tmp_path / "lake" / "orders")}
    assert rows == {**dict.fromkeys(range(10)), 10: 7.5}


def test_a_restart_leaves_out_no_column_that_unread_records_may_have(
    spark: SparkSession,
    moldau_session_broker: Broker,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    broker = moldau_session_broker
    topic = fresh_topic(broker)

    def prices(*more: str) -> dict[int, float | None]:
        load(tmp_path, broker, topic, *more, PIPELINE).run(once=True, spark=spark)
        return {row["id"]: row.get("price") for row in table(tmp_path / "lake" / "orders")}

    with SchemaStore(broker.bootstrap) as store:
        priced = store.register(f"{topic}-value", NEW)
        produce(broker, topic, [order(priced, 0)])
        assert prices() == {0: 7.5}
        later = store.register(f"{topic}-value", OLD)
        produce(broker, topic, [order(priced, 1), order(later, 2)])
    said = r"version 2 of .* does not go with .* \(gone: price \(double\)\)"
    with pytest.raises(PipelineError, match=said):
        prices(FAIL)
    assert [str(each) for each in load(tmp_path, broker, topic, FAIL, PIPELINE).check(spark)] != []
    assert prices() == {0: 7.5, 1: 7.5, 2: None}
    assert "version 2" in caplog.text
    assert "all is still read by version 1" in caplog.text
    produce(broker, topic, [order(priced, 3)])
    accepts = load(
        tmp_path,
        broker,
        topic,
        FAIL,
        PIPELINE.replace('format = "avro"\n', 'format = "avro"\nmay_change = ["price"]\n', 1),
    )
    accepts.run(once=True, spark=spark)
    rows = table(tmp_path / "lake" / "orders")
    assert {row["id"]: row["price"] for row in rows} == {0: 7.5, 1: 7.5, 2: None, 3: None}
    assert len(rows) == 4
    # From then on, nobody has it.
    assert prices(FAIL) == {0: 7.5, 1: 7.5, 2: None, 3: None}
    assert read_by_librdkafka(broker, f"{topic}-dead-letters") == []
