"""Schemas through the console's API."""

from __future__ import annotations

import json

from moldau.console.settings import ConsoleSettings
from moldau.testing import Broker
from tests.console.consoles import RunningConsole


def record(*fields: tuple[str, str]) -> str:
    listed = [{"name": name, "type": kind} for name, kind in fields]
    return json.dumps({"type": "record", "name": "R", "fields": listed})


def test_a_schema_is_tried_registered_shown_and_deleted(console: RunningConsole) -> None:
    path = "api/schemas/team%2Forders-value"
    first = {"schema": record(("a", "string"))}
    assert console.post(f"{path}/check", first) == {"compatible": True, "reasons": []}
    registered = console.post(f"{path}/versions", first, 201)
    assert (registered["subject"], registered["version"]) == ("team/orders-value", 1)
    worse = {"schema": record(("a", "string"), ("b", "int"))}
    tried = console.post(f"{path}/check", worse)
    assert not tried["compatible"]
    assert tried["reasons"]
    assert console.post(f"{path}/versions", worse, 409)["error"]["code"] == "incompatible"
    found = console.get(path)
    assert found["versions"] == [1]
    assert found["compatibility"] == "BACKWARD"
    assert found["mode"] == "READWRITE"
    assert found["latest"]["id"] == registered["id"]
    assert console.get(f"{path}/versions/1")["schema"] == registered["schema"]
    rows = {each["subject"]: each for each in console.get("api/schemas")["schemas"]}
    assert rows["team/orders-value"]["type"] == "AVRO"
    assert console.send("DELETE", path) == {"versions": [1]}
    console.get(path, 404)
    refused = console.post(f"{path}/check", {"schema": "{nonsense"}, 422)
    assert refused["error"]["code"] == "registry"


def test_a_console_without_a_registry_says_so(shared_broker: Broker) -> None:
    with RunningConsole(ConsoleSettings(shared_broker.bootstrap)) as console:
        assert console.get("api/schemas", 404)["error"]["code"] == "no_registry"
        assert not console.get("api/session")["features"]["registry"]
