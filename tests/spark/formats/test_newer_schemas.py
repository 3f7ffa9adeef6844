"""Newer schemas while a stream runs: found by the driver, before anything is read to be written."""

from __future__ import annotations

import json
from typing import Any, Self

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from moldau.client.avro import encode_avro, parse_avro
from moldau.schemas import SchemaStore, pack_header
from moldau.schemas.header import VALUE_HEADER, pack_guid
from moldau.spark.formats import BadRecords, ValueSpec
from moldau.spark.formats.avro_types import spark_schema_of
from moldau.spark.formats.debezium import change_columns, row_of_envelope
from moldau.spark.formats.errors import NewFields
from moldau.spark.formats.newer_schemas import NewerSchemas
from moldau.spark.formats.source import ValueBatchReader, ValueStreamReader
from moldau.spark.source.options import SourceOptions
from moldau.testing import Broker
from tests.spark.topics import fresh_topic, produce

OLD = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "int"}]}
PRICE = {"name": "price", "type": "double", "default": 0.0}
NEW = {**OLD, "fields": [*OLD["fields"], PRICE]}
SAME = {**OLD, "doc": "the same fields, and another id"}
EVERYTHING = ReadAllAvailable()


class Orders:
    """A topic of orders, with a reader that knows the versions of when it was made."""

    def __init__(self, broker: Broker, **subscription: str) -> None:
        self._broker = broker
        self.topic = fresh_topic(broker, 2)
        self.subject = f"{self.topic}-value"
        self._subscription = subscription
        self.store = SchemaStore(broker.bootstrap)
        self.old = self.store.register(self.subject, OLD)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *problem: object) -> None:
        self.store.close()

    def send(self, schema: Any, schema_id: int, count: int = 1, partition: int = 1) -> None:
        parsed = parse_avro(schema)
        value = encode_avro(parsed, {"id": 1, "price": 2.0}, "orders", pack_header(schema_id))
        produce(self._broker, self.topic, [(None, value, [])] * count, partition=partition)

    def send_named(self, schema: Any, guid: str) -> None:
        """Send a value whose schema is named in a header."""
        value = encode_avro(parse_avro(schema), {"id": 1, "price": 2.0}, "orders", b"")
        headers: list[Any] = [("other", b"1"), (VALUE_HEADER, pack_guid(guid))]
        produce(self._broker, self.topic, [(None, value, headers)], partition=1)

    def _given(self) -> tuple[SourceOptions, ValueSpec]:
        text = json.dumps(OLD)
        pattern = self._subscription.get("subscribePattern", "").format(topic=self.topic)
        spec = ValueSpec(
            format="avro",
            schema=json.dumps(spark_schema_of(text).jsonValue()),
            bad_records=BadRecords(f"{self.topic}-bad"),
            bootstrap=self._broker.bootstrap,
            reader_schema=text,
            known_schemas={self.old.id: text},
            known_guids={self.old.guid: self.old.id},
            subjects=() if pattern else (self.subject,),
            remedy="Start again",
        )
        options = {
            "kafka.bootstrap.servers": self._broker.bootstrap,
            "columns": ",".join(spec.record_columns),
            **({"subscribePattern": pattern} if pattern else {"subscribe": self.topic}),
        }
        return SourceOptions.parse(options), spec

    def stream(self) -> ValueStreamReader:
        options, spec = self._given()
        return ValueStreamReader(SourceOptions.parse(_earliest(options)), spec)

    def batch(self) -> ValueBatchReader:
        return ValueBatchReader(*self._given())


def _earliest(options: SourceOptions) -> dict[str, str]:
    return options.options.under("") | {"startingOffsets": "earliest"}


@pytest.mark.parametrize("subscription", [{}, {"subscribePattern": "^{topic}$"}])
def test_a_record_with_new_fields_stops_its_batch_before_anything_is_read(
    moldau_session_broker: Broker, subscription: dict[str, str]
) -> None:
    with Orders(moldau_session_broker, **subscription) as orders:
        orders.send(OLD, orders.old.id, 5)
        orders.send(OLD, orders.old.id, 5, partition=0)
        stream = orders.stream()
        first = stream.latestOffset(stream.initialOffset(), EVERYTHING)
        assert len(stream.partitions(stream.initialOffset(), first)) == 2
        # A version that nobody has written with yet stops nothing; nor does one without new fields.
        newer = orders.store.register(orders.subject, NEW)
        same = orders.store.register(orders.subject, SAME)
        orders.send(SAME, same.id, 3)
        second = stream.latestOffset(first, EVERYTHING)
        assert len(stream.partitions(first, second)) == 1
        orders.send(OLD, orders.old.id, 4, partition=0)
        orders.send(OLD, orders.old.id, 2)
        orders.send(NEW, newer.id)
        orders.send(OLD, orders.old.id, 2)
        third = stream.latestOffset(second, EVERYTHING)
        said = rf"at {orders.topic}-1 offset 10 has fields .* lacks: price \(double\).*Start again"
        for reader in (stream, orders.stream()):
            with pytest.raises(NewFields, match=said):
                reader.partitions(second, third)
        with pytest.raises(NewFields, match=said):
            orders.batch().partitions()


def test_the_store_is_read_again_only_when_something_was_registered(
    moldau_session_broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Orders(moldau_session_broker) as orders:
        stream = orders.stream()
        looks: list[NewerSchemas] = []
        look = NewerSchemas._look

        def counted(newer: NewerSchemas) -> dict[int | str, list[str]]:
            looks.append(newer)
            return look(newer)

        monkeypatch.setattr(NewerSchemas, "_look", counted)
        offset = stream.initialOffset()
        for _ in range(3):
            orders.send(OLD, orders.old.id)
            end = stream.latestOffset(offset, EVERYTHING)
            stream.partitions(offset, end)
            offset = end
        assert len(looks) == 1


def test_a_task_that_meets_new_fields_sends_no_dead_letter_and_no_row_of_them(
    moldau_session_broker: Broker,
) -> None:
    """A schema of a subject that nobody named, as a producer with a naming of its own has it."""
    with Orders(moldau_session_broker) as orders:
        stranger = orders.store.register(f"{orders.topic}-strangers", NEW)
        orders.send(OLD, orders.old.id, 2)
        orders.send(NEW, stranger.id)
        stream = orders.stream()
        start = stream.initialOffset()
        (piece,) = stream.partitions(start, stream.latestOffset(start, EVERYTHING))
        with pytest.raises(NewFields, match=rf"at {orders.topic}-1 offset 2 .*price"):
            list(stream.read(piece))


def test_schemas_that_are_named_in_headers_are_known_and_new_ones_found(
    moldau_session_broker: Broker,
) -> None:
    with Orders(moldau_session_broker) as orders:
        orders.send_named(OLD, orders.old.guid)
        orders.send(OLD, orders.old.id)
        stream = orders.stream()
        start = stream.initialOffset()
        first = stream.latestOffset(start, EVERYTHING)
        (piece,) = stream.partitions(start, first)
        rows = [row for batch in stream.read(piece) for row in batch.to_pylist()]
        assert [(row["id"], row["__bad"]) for row in rows] == [(1, False)] * 2
        newer = orders.store.register(orders.subject, NEW)
        orders.send_named(NEW, newer.guid)
        second = stream.latestOffset(first, EVERYTHING)
        with pytest.raises(NewFields, match=rf"offset 2 .*price \(double\).*id {newer.guid}"):
            stream.partitions(first, second)


def _envelope(kind: str) -> dict[str, Any]:
    row = {"type": "record", "name": "Row", "fields": [{"name": "id", "type": kind}]}
    after = {"name": "after", "type": ["null", row], "default": None}
    op = {"name": "op", "type": "string"}
    return {"type": "record", "name": "Envelope", "fields": [after, op]}


def test_a_wider_column_in_the_envelopes_of_changes_is_noticed(
    moldau_session_broker: Broker,
) -> None:
    broker = moldau_session_broker
    topic = fresh_topic(broker)
    text = json.dumps(_envelope("int"))
    with SchemaStore(broker.bootstrap) as store:
        old = store.register(f"{topic}-value", text)
        spec = ValueSpec(
            format="avro",
            schema=json.dumps(change_columns(row_of_envelope(spark_schema_of(text))).jsonValue()),
            bootstrap=broker.bootstrap,
            reader_schema=text,
            known_schemas={old.id: text},
            subjects=(f"{topic}-value",),
            is_debezium=True,
        )
        options = {"kafka.bootstrap.servers": broker.bootstrap, "subscribe": topic}
        reader = ValueBatchReader(
            SourceOptions.parse(options | {"columns": ",".join(spec.record_columns)}), spec
        )
        newer = store.register(f"{topic}-value", _envelope("long"))
        event = {"after": {"id": 1 << 40}, "op": "c"}
        header = pack_header(newer.id)
        value = encode_avro(parse_avro(_envelope("long")), event, topic, header)
        produce(broker, topic, [(None, value, [])])
        with pytest.raises(NewFields, match=r"after.id \(.*bigint"):
            reader.partitions()
