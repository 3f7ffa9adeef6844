"""The schema store, against a real broker."""

from __future__ import annotations

import itertools
import threading
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau import Consumer, DecodeError, Message, MessageSet, Producer
from moldau.client.avro import decode_avro, parse_avro
from moldau.schemas import (
    IncompatibleSchema,
    Mode,
    RegisteredAvroSerializer,
    SchemaNotFound,
    SchemaStore,
    pack_header,
    unpack_header,
)
from moldau.schemas.header import KEY_HEADER, VALUE_HEADER, pack_guid, read_name
from moldau.schemas.registry.records import (
    SchemaKey,
    SchemaValue,
    decode,
    encode_key,
    encode_value,
)
from moldau.schemas.registry.state import RegistryState
from moldau.schemas.schema import Schema
from moldau.testing import Broker


def record(**kinds: Any) -> dict[str, Any]:
    fields = [
        {"name": name, "type": kind}
        if isinstance(kind, str)
        else {"name": name, "type": kind[0], "default": kind[1]}
        for name, kind in kinds.items()
    ]
    return {"type": "record", "name": "Order", "fields": fields}


V1 = record(id="int", item="string")
V2 = record(id="long", item="string", price=("double", 0.0))
BROKEN = record(id="int", item="string", customer="string")


@pytest.fixture
def bootstrap(moldau_session_broker: Broker) -> str:
    return moldau_session_broker.bootstrap


@pytest.fixture
def schemas_topic() -> str:
    return f"_schemas-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def store(bootstrap: str, schemas_topic: str) -> Iterator[SchemaStore]:
    with SchemaStore(bootstrap, topic=schemas_topic) as store:
        yield store


def test_subjects_have_versions_and_schemas_have_ids(store: SchemaStore) -> None:
    first = store.register("orders-value", V1)
    assert (first.version, first.id) == (1, 1)
    assert store.register("orders-value", V1) == first
    second = store.register("orders-value", V2)
    assert (second.version, second.id) == (2, 2)
    elsewhere = store.register("refunds-value", V1)
    assert (elsewhere.version, elsewhere.id) == (1, 1)
    assert store.subjects() == ["orders-value", "refunds-value"]
    assert [found.version for found in store.versions("orders-value")] == [1, 2]
    assert store.version("orders-value") == second
    assert store.version("orders-value", 1) == first
    assert store.by_id(2).schema["name"] == "Order"
    with pytest.raises(SchemaNotFound, match="id 99"):
        store.by_id(99)
    with pytest.raises(SchemaNotFound, match="nobody"):
        store.version("nobody")


def test_an_incompatible_schema_is_refused_with_the_reason(store: SchemaStore) -> None:
    store.register("s", V1)
    with pytest.raises(IncompatibleSchema, match=r"field customer: .* no default") as refused:
        store.register("s", BROKEN)
    assert refused.value.mode == "BACKWARD"
    assert store.problem("s", BROKEN) == refused.value.reason
    assert store.problem("s", V2) is None
    store.set_mode("none", "s")
    assert store.register("s", BROKEN).version == 2
    store.set_mode(Mode.FULL)
    assert store.mode("another") is Mode.FULL
    assert store.mode("s") is Mode.NONE
    with pytest.raises(ValueError, match="SIDEWAYS"):
        store.set_mode("sideways")


def test_another_store_sees_the_same(
    store: SchemaStore, bootstrap: str, schemas_topic: str
) -> None:
    store.register("s", V1)
    with SchemaStore(bootstrap, topic=schemas_topic) as other:
        assert other.by_id(1).version == 1
        later = store.register("s", V2)
        assert other.by_id(2) == later
        assert other.find("s", V2) == later
        assert other.find("s", BROKEN) is None


def test_two_registrations_at_once_never_share_an_id(bootstrap: str, schemas_topic: str) -> None:
    stores = [SchemaStore(bootstrap, topic=schemas_topic) for _ in range(4)]
    together = threading.Barrier(4)
    found: list[tuple[str, int, int]] = []

    def register(number: int) -> None:
        for n in range(5):
            together.wait(60)
            schema = record(**{f"f{number}_{n}": ("int", 0)})
            one = stores[number].register(f"s{n % 2}", schema)
            found.append((one.subject, one.version, one.id))

    threads = [threading.Thread(target=register, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(found) == 20
    assert len({schema_id for _, _, schema_id in found}) == 20
    assert len({(subject, version) for subject, version, _ in found}) == 20
    for subject, version, schema_id in found:
        for store in stores:
            assert store.version(subject, version).id == schema_id
    for store in stores:
        store.close()


def test_records_of_two_versions_are_read_with_either_schema(
    store: SchemaStore, bootstrap: str
) -> None:
    topic = f"t-{uuid.uuid4().hex[:8]}"
    store.set_mode(Mode.NONE)
    old = RegisteredAvroSerializer(store, record(id="int", item="string"))
    new = RegisteredAvroSerializer(store, record(id="int", item="string", price=("double", 0.0)))
    with Producer(bootstrap, value_serializer=old) as producer:
        producer.send(topic, {"id": 1, "item": "coffee"}).result(60)
    with Producer(bootstrap, value_serializer=new) as producer:
        producer.send(topic, {"id": 2, "item": "tea", "price": 2.5}).result(60)
    with Producer(bootstrap) as producer:
        producer.send(
            topic, MessageSet([b"{}", Message(pack_header(999) + b"x"), pack_header(1)])
        ).result(60)
    coffee, tea = {"id": 1, "item": "coffee"}, {"id": 2, "item": "tea"}
    for deserializer, expected in (
        (old, [coffee, tea]),
        (new, [{**coffee, "price": 0.0}, {**tea, "price": 2.5}]),
        (RegisteredAvroSerializer(store), [coffee, {**tea, "price": 2.5}]),
    ):
        problems: list[DecodeError] = []
        with Consumer(
            bootstrap, value_deserializer=deserializer, on_undecodable=problems.append
        ) as consumer:
            consumer.subscribe(topic)
            found = []
            for message in consumer.messages(60):
                found.append(message.value)
                if len(found) == 2:
                    break
            while len(problems) < 3:
                assert consumer.poll(1.0) is None
        assert found == expected
        assert [problem.offset for problem in problems] == [2, 3, 4]
    assert store.subjects() == [f"{topic}-value"]


def test_a_serializer_that_may_not_register_finds_what_is_there(store: SchemaStore) -> None:
    careful = RegisteredAvroSerializer(store, V1, subject="s", register=False)
    with pytest.raises(ValueError, match="not registered under s"):
        careful.serialize("t", {"id": 1, "item": "x"})
    store.register("s", V1)
    assert unpack_header(careful.serialize("t", {"id": 1, "item": "x"})) == 1
    with pytest.raises(ValueError, match="needs a schema"):
        RegisteredAvroSerializer(store).serialize("t", {})


def test_messages_may_name_their_schemas_in_headers(store: SchemaStore, bootstrap: str) -> None:
    topic = f"t-{uuid.uuid4().hex[:8]}"
    store.set_mode(Mode.NONE)
    keys = RegisteredAvroSerializer(store, "string", for_key=True, in_headers=True)
    values = RegisteredAvroSerializer(store, V1, in_headers=True)
    coffee = {"id": 1, "item": "coffee"}
    with Producer(bootstrap, key_serializer=keys, value_serializer=values) as producer:
        producer.send(topic, Message(coffee, "a", headers={"more": b"1"})).result(60)
        producer.send(topic, MessageSet([Message(coffee, "b"), Message(None, "c")])).result(60)
    with Consumer(
        bootstrap,
        key_deserializer=RegisteredAvroSerializer(store, for_key=True),
        value_deserializer=RegisteredAvroSerializer(store),
    ) as consumer:
        consumer.subscribe(topic)
        found = list(itertools.islice(consumer.messages(60), 3))
    assert [(each.key, each.value) for each in found] == [
        ("a", coffee), ("b", coffee), ("c", None),
    ]  # fmt: skip
    named = pack_guid(store.version(f"{topic}-value").guid)
    assert [name for name, _ in found[0].headers] == ["more", KEY_HEADER, VALUE_HEADER]
    assert dict(found[1].headers)[VALUE_HEADER] == named
    # Nothing in front of the value, and nothing that names the schema of no value.
    assert found[1].payload() == values.serialize(topic, coffee)
    assert decode_avro(found[1].payload() or b"", 0, parse_avro(V1), parse_avro(V1)) == coffee
    assert [name for name, _ in found[2].headers] == [KEY_HEADER]
    with pytest.raises(SchemaNotFound, match="no schema has the guid"):
        store.by_guid(str(uuid.uuid4()))


@given(st.binary(max_size=24), st.none() | st.binary(max_size=24))
def test_every_payload_names_a_schema_or_is_an_error(payload: bytes, header: bytes | None) -> None:
    try:
        schema, start, path = read_name(payload, header)
    except ValueError:
        return
    name = pack_header(schema) if isinstance(schema, int) else pack_guid(schema)
    assert (payload[:start] if header is None else header) == name + path


@given(st.binary(max_size=12))
def test_a_header_is_a_zero_and_four_bytes_or_an_error(payload: bytes) -> None:
    if len(payload) >= 5 and payload[0] == 0:
        assert pack_header(unpack_header(payload)) == payload[:5]
    else:
        with pytest.raises(ValueError, match="schema id"):
            unpack_header(payload)


@given(st.binary(max_size=40) | st.none(), st.binary(max_size=40) | st.none())
def test_foreign_records_in_the_topic_are_passed_over(
    key: bytes | None, value: bytes | None
) -> None:
    assert decode(key, value) is None


def test_the_first_claim_to_a_version_or_an_id_counts() -> None:
    state = RegistryState()
    for subject, version, schema_id, text, nonce in (
        ("s", 1, 1, '"int"', "a"),
        ("s", 1, 2, '"long"', "b"),
        ("t", 1, 1, '"long"', "c"),
        ("t", 1, 1, '"int"', "d"),
    ):
        key = SchemaKey(subject, version, nonce)
        value = SchemaValue(subject, version, schema_id, text)
        found = decode(encode_key(key), encode_value(value))
        assert found is not None
        state.apply(found)
    assert [state.won(SchemaKey("s", 1, nonce)) for nonce in "ab"] == [True, False]
    assert [state.won(SchemaKey("t", 1, nonce)) for nonce in "cd"] == [False, True]
    assert state.id_of(".", Schema('"long"')) is None
    assert state.next_id(".") == 2
