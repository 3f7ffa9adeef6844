"""Messages through the console's API."""

from __future__ import annotations

import importlib.util
import json
from typing import Any

import confluent_kafka
import pytest

from moldau.console import browse
from moldau.console.settings import ConsoleSettings
from moldau.console.values.masks import Mask
from moldau.testing import Broker
from moldau.testing.waiting import until
from tests.console.consoles import RunningConsole


def produce(broker: Broker, topic: str, count: int, partitions: int = 1) -> None:
    """Write numbered messages, a second apart, over the partitions in turn."""
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(count):
        producer.produce(
            topic,
            json.dumps({"number": number}),
            f"key-{number % 10}",
            number % partitions,
            timestamp=1_700_000_000_000 + number * 1000,
            headers=[("trace", f"t{number}".encode())],
        )
    producer.flush(30)


def numbers(page: dict[str, Any]) -> list[int]:
    return [each["value"]["json"]["number"] for each in page["messages"]]


def test_pages_go_forwards_and_backwards_over_all_partitions(
    console: RunningConsole, shared_broker: Broker
) -> None:
    shared_broker.create_topic("paged", 3)
    produce(shared_broker, "paged", 100, 3)
    path = "api/topics/paged/messages"
    page = console.get(path, from_="beginning", limit=30)
    seen = numbers(page)
    while page["next"]:
        page = console.get(path, from_=page["next"], limit=30)
        seen += numbers(page)
    assert seen == list(range(100))
    assert numbers(console.get(path, from_="end:-5")) == [95, 96, 97, 98, 99]
    page = console.get(path, from_="end", limit=40)
    seen = numbers(page)
    while page["previous"]:
        page = console.get(path, from_=page["previous"], limit=40)
        seen = numbers(page) + seen
    assert seen == list(range(100))


def test_a_page_that_ends_before_it_has_read_all_leaves_the_rest_to_the_next(
    console: RunningConsole, shared_broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared_broker.create_topic("sparse", 2)
    producer = confluent_kafka.Producer({"bootstrap.servers": shared_broker.bootstrap})
    for number in range(200):
        value = "x" * 40_000
        producer.produce(
            "sparse", value, f"key-{number % 10}", number // 2 % 2, timestamp=1_000 + number
        )
        if number % 10 == 9:
            # So that batches, and what one fetch brings, are small.
            assert producer.flush(30) == 0
    monkeypatch.setattr(browse, "MOST_SCANNED", 70)
    path = "api/topics/sparse/messages"
    found: list[int] = []
    from_ = "end"
    while from_:
        page = console.get(path, from_=from_, key="key-3", limit=4)
        found = [each["timestamp"] - 1_000 for each in page["messages"]] + found
        from_ = page["previous"]
    assert sorted(found) == list(range(3, 200, 10))


def test_messages_are_found_by_offset_time_and_key(
    console: RunningConsole, shared_broker: Broker
) -> None:
    shared_broker.create_topic("found", 1)
    produce(shared_broker, "found", 50)
    path = "api/topics/found/messages"
    assert numbers(console.get(path, from_="offset:48", partition=0)) == [48, 49]
    assert numbers(console.get(path, from_="time:1700000047000")) == [47, 48, 49]
    found = console.get(path, from_="beginning", key="key-3")
    assert numbers(found) == [3, 13, 23, 33, 43]
    assert found["scanned"] == 50
    assert found["next"] is None
    message = console.get(path, from_="offset:7", limit=1)["messages"][0]
    assert message == {
        "partition": 0, "offset": 7, "timestamp": 1_700_000_007_000, "timestamp_type": "create",
        "key": {"encoding": "text", "bytes": 5, "text": "key-7"},
        "value": {"encoding": "json", "bytes": 13, "json": {"number": 7}},
        "headers": [["trace", {"encoding": "text", "bytes": 2, "text": "t7"}]],
        "size": 25,
    }  # fmt: skip


def test_a_message_is_produced_in_every_encoding(
    console: RunningConsole, shared_broker: Broker
) -> None:
    shared_broker.create_topic("made-here", 1)
    schema = {"type": "record", "name": "R", "fields": [{"name": "n", "type": "long"}]}
    from moldau.schemas.client import RegistryClient

    registered = RegistryClient(shared_broker.http_url).register("made-here-value", schema)
    path = "api/topics/made-here/messages"
    bodies = [
        {"value": "plain", "key": "k", "headers": [["h", "x"], ["none", None]]},
        {"value": {"a": 12345678901234567890}, "value_encoding": "json"},
        {"value": "00ff", "value_encoding": "hex"},
        {"value": {"n": 5}, "value_encoding": "schema", "schema_id": registered.id},
        {"value": None, "key": "k"},
    ]
    for number, body in enumerate(bodies):
        assert console.post(path, body, 201) == {"partition": 0, "offset": number}
    values = [each["value"] for each in console.get(path, from_="beginning")["messages"]]
    assert values[0] == {"encoding": "text", "bytes": 5, "text": "plain"}
    assert values[1]["text"] == '{"a":12345678901234567890}'
    assert values[2] == {"encoding": "hex", "bytes": 2, "hex": "00ff"}
    assert values[3] == {
        "encoding": "avro", "bytes": 6, "json": {"n": 5}, "schema_id": registered.id,
    }  # fmt: skip
    assert values[4] is None
    bad = {"value": "zz", "value_encoding": "hex"}
    assert "hexadecimal" in console.post(path, bad, 422)["error"]["message"]


def test_values_in_protobuf_are_produced_shown_and_filtered_by_all_of_their_fields(
    console: RunningConsole, shared_broker: Broker
) -> None:
    pytest.importorskip("grpc_tools")
    from moldau.schemas.client import RegistryClient
    from moldau.schemas.schema import SchemaType

    shared_broker.create_topic("in-protobuf", 1)
    schema = 'syntax = "proto3"; message Order { int64 id = 1; int32 amount = 2; }'
    registry = RegistryClient(shared_broker.http_url)
    registered = registry.register("in-protobuf-value", schema, SchemaType.PROTOBUF)
    path = "api/topics/in-protobuf/messages"
    body: dict[str, Any] = {"value_encoding": "schema", "schema_id": registered.id}
    for amount in (0, 9):
        console.post(path, body | {"value": {"id": 1 + amount, "amount": amount}}, 201)
    for wrong in (5, True, "abc", [1], {"nope": 1}):
        console.post(path, body | {"value": wrong}, 422)
    shown = [each["value"] for each in console.get(path, from_="beginning")["messages"]]
    assert {each["encoding"] for each in shown} == {"protobuf"}
    # Zero is a value like others, though it takes no bytes.
    assert [each["json"] for each in shown] == [{"id": "1", "amount": 0}, {"id": "10", "amount": 9}]
    if importlib.util.find_spec("duckdb") is not None:
        found = console.get(path, from_="beginning", filter="value.amount = 0")["messages"]
        assert [each["offset"] for each in found] == [0]


def test_a_value_of_an_unknown_schema_is_shown_with_the_reason(
    console: RunningConsole, shared_broker: Broker
) -> None:
    shared_broker.create_topic("strange", 1)
    body = {"value": "0000ffffff02", "value_encoding": "hex"}
    console.post("api/topics/strange/messages", body, 201)
    (message,) = console.get("api/topics/strange/messages")["messages"]
    assert message["value"]["hex"] == "0000ffffff02"
    assert "16777215" in message["value"]["problem"]


def test_long_values_are_cut_unless_all_of_one_is_asked_for(
    console: RunningConsole, shared_broker: Broker
) -> None:
    shared_broker.create_topic("long", 1)
    console.post("api/topics/long/messages", {"value": "x" * 100_000}, 201)
    path = "api/topics/long/messages"
    (message,) = console.get(path)["messages"]
    assert message["value"]["truncated"]
    assert message["value"]["bytes"] == 100_000
    assert len(message["value"]["text"]) < 100_000
    whole = console.get(path, from_="offset:0", limit=1, whole="true")
    assert len(whole["messages"][0]["value"]["text"]) == 100_000


def test_what_a_transaction_aborted_is_not_shown(
    console: RunningConsole, shared_broker: Broker
) -> None:
    shared_broker.create_topic("aborted", 1)
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": shared_broker.bootstrap, "transactional.id": "console-test"}
    )
    producer.init_transactions(30)
    for number, ends in enumerate((producer.abort_transaction, producer.commit_transaction)):
        producer.begin_transaction()
        producer.produce("aborted", json.dumps({"number": number}))
        producer.flush(30)
        ends(30)
    path = "api/topics/aborted/messages"
    until(lambda: numbers(console.get(path, from_="beginning")) == [1], "the commit")
    assert numbers(console.get(path, from_="end:-10")) == [1]


def test_a_tail_shows_what_comes(console: RunningConsole, shared_broker: Broker) -> None:
    shared_broker.create_topic("followed", 2)
    produce(shared_broker, "followed", 3)
    events = console.events("api/topics/followed/tail")
    assert next(events) == ("messages", [])
    console.post("api/topics/followed/messages", {"value": "now"}, 201)
    name, found = next(events)
    assert name == "messages"
    assert [each["value"]["text"] for each in found] == ["now"]
    events.close()


def test_masked_fields_are_shown_to_nobody(shared_broker: Broker) -> None:
    shared_broker.create_topic("customers", 1)
    masks = ("cust*:card.number", "customers:@key", "customers:@secret")
    settings = ConsoleSettings(
        shared_broker.bootstrap, masks=tuple(Mask.parse(text) for text in masks)
    )
    with RunningConsole(settings) as console:
        path = "api/topics/customers/messages"
        value = {"name": "Ann", "card": {"number": "4111", "year": 2030}}
        body = {
            "value": value, "value_encoding": "json", "key": "4111", "headers": [["secret", "s"]],
        }  # fmt: skip
        console.post(path, body, 201)
        console.post(path, {"value": "card number 4111"}, 201)
        first, second = console.get(path)["messages"]
        assert first["value"]["json"] == {"name": "Ann", "card": {"number": "***", "year": 2030}}
        assert first["key"]["text"] == "***"
        assert first["headers"][0][1]["text"] == "***"
        # It has no fields, so that nobody can know whether the number is in it.
        assert second["value"]["text"] == "***"
        raw = console.get(path, decode="none")["messages"]
        assert "4111" not in json.dumps(raw)
        assert console.get(path, 403, key="4111")["error"]["code"] == "masked"
