"""`moldau schemas`, against a registry and against the brokers alone."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from moldau.schemas import RegisteredAvroSerializer, RegistryClient
from moldau.schemas.schema import Reference, SchemaType
from moldau.testing import Broker
from tests.cli.conftest import Run

ORDER = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "int"}]}
BROKEN = {**ORDER, "fields": [{"name": "id", "type": "string"}]}
PLACE = 'syntax = "proto3"; message Place { string city = 1; }'
TRIP = 'syntax = "proto3"; import "place.proto"; message Trip { Place to = 1; }'


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with Broker(http_listen="127.0.0.1:0") as broker:
        yield broker.http_url


@pytest.fixture
def subject() -> str:
    return f"s/{uuid.uuid4().hex[:8]}"


def write(folder: Path, name: str, schema: object) -> str:
    file = folder / name
    file.write_text(schema if isinstance(schema, str) else json.dumps(schema))
    return str(file)


def test_the_life_of_a_subject(moldau: Run, url: str, subject: str, tmp_path: Path) -> None:
    at = ("--registry", url)
    order = write(tmp_path, "order.avsc", ORDER)
    made = moldau("schemas", "register", subject, order, *at, "--json")
    assert made.status == 0, made.err
    assert made.json["version"] == 1
    listed = {row["subject"]: row for row in moldau("schemas", "list", *at, "--json").json}
    assert listed[subject]["type"] == "AVRO"
    assert listed[subject]["compatibility"] == "BACKWARD"
    shown = moldau("schemas", "show", subject, *at)
    assert json.loads(shown.out) == ORDER
    by_id = moldau("schemas", "show", "--id", str(made.json["id"]), *at, "--json")
    assert json.loads(by_id.json["schema"]) == ORDER
    broken = write(tmp_path, "broken.avsc", BROKEN)
    checked = moldau("schemas", "check", subject, broken, *at)
    assert checked.status == 1
    assert "TYPE_MISMATCH" in checked.err
    assert moldau("schemas", "check", subject, order, *at).status == 0
    refused = moldau("schemas", "register", subject, broken, *at)
    assert refused.status == 1
    assert "TYPE_MISMATCH" in refused.err
    assert moldau("schemas", "delete", subject, "--permanent", "--yes", *at).status == 1
    assert moldau("schemas", "delete", subject, "--version", "1", *at).status == 0
    unsure = moldau("schemas", "delete", subject, "--permanent", *at, typed="n\n")
    assert "nothing was changed" in unsure.err
    gone = moldau("schemas", "delete", subject, "--permanent", "--yes", *at, "--json")
    assert gone.json == {"subject": subject, "deleted": [1], "permanent": True}
    assert moldau("schemas", "show", subject, *at).status == 1


def test_protobuf_with_a_reference(moldau: Run, url: str, subject: str, tmp_path: Path) -> None:
    at = ("--registry", url)
    place, trip = write(tmp_path, "place.proto", PLACE), write(tmp_path, "trip.proto", TRIP)
    assert moldau("schemas", "register", f"{subject}-place", place, *at).status == 0
    reference = ("--reference", f"place.proto={subject}-place:1")
    assert moldau("schemas", "register", subject, trip, *at, *reference).status == 0
    assert "message Trip {" in moldau("schemas", "show", subject, *at).out
    client = RegistryClient(url)
    found = client.version(subject)
    assert found.type is SchemaType.PROTOBUF
    assert found.references == (Reference("place.proto", f"{subject}-place", 1),)
    assert [each.name for each in found.dependencies] == ["place.proto"]
    wrong = moldau("schemas", "register", subject, trip, *at, "--reference", "nonsense")
    assert wrong.status == 2


def test_without_a_registry(moldau: Run, subject: str, tmp_path: Path) -> None:
    order = write(tmp_path, "order.avsc", ORDER)
    made = moldau("schemas", "register", subject, order)
    assert made.status == 0, made.err
    assert subject in moldau("schemas", "list").out
    assert json.loads(moldau("schemas", "show", subject).out)["name"] == "Order"
    broken = write(tmp_path, "broken.avsc", BROKEN)
    assert moldau("schemas", "check", subject, broken).status == 1
    refused = moldau("schemas", "register", subject, write(tmp_path, "place.proto", PLACE))
    assert "only Avro" in refused.err
    assert "--registry" in moldau("schemas", "delete", subject).err
    assert moldau("schemas", "show").status == 2


def test_no_registry_at_all(moldau: Run) -> None:
    ended = moldau("schemas", "list", "--registry", "http://127.0.0.1:1")
    assert ended.status == 1
    assert "does not answer" in ended.err


def test_a_serializer_takes_a_registry_client(url: str, subject: str) -> None:
    with RegistryClient(url) as client:
        serializer = RegisteredAvroSerializer(client, ORDER, subject=subject)
        payload = serializer.serialize("t", {"id": 7})
        assert RegisteredAvroSerializer(client).deserialize("t", payload) == {"id": 7}
        assert [found.version for found in client.versions(subject)] == [1]
        client.set_mode("full", subject)
        assert client.mode(subject).value == "FULL"
