"""The client, the serializers and the commands with a registry that others wrote: Apicurio's."""

from __future__ import annotations

import json
import os
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bench.kafka.jars import java, registry_archive
from moldau.bench.errors import Unavailable
from moldau.cli import main
from moldau.client import Consumer, Producer
from moldau.local.ports import free_ports
from moldau.schemas import (
    IncompatibleSchema,
    Level,
    RegisteredAvroSerializer,
    RegistryClient,
    SchemaError,
    SchemaNotFound,
)
from moldau.testing import Broker
from moldau.testing.waiting import until
from tests.processes import started

pytestmark = [pytest.mark.slow, pytest.mark.timeout(500)]

_STARTS_WITHIN_S = 180.0


def order(*more: dict[str, object]) -> dict[str, object]:
    return {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "int"}, *more]}


ONE = order()
TWO = order({"name": "price", "type": "double", "default": 0.0})
BROKEN = order({"name": "table", "type": "int"})


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Its address, with the path of Confluent's API."""
    try:
        command, archive = java(), registry_archive()
    except Unavailable as reason:
        pytest.skip(f"no Apicurio registry to test against: {reason}")
    folder = tmp_path_factory.mktemp("apicurio")
    with tarfile.open(archive) as packed:
        packed.extractall(folder, filter="data")
    (jar,) = folder.rglob("*-runner.jar")
    (port,) = free_ports(1)
    url = f"http://127.0.0.1:{port}/apis/ccompat/v7"
    environment = {"QUARKUS_HTTP_HOST": "127.0.0.1", "QUARKUS_HTTP_PORT": str(port)}
    with (
        (folder / "log").open("wb") as log,
        started(
            [command, "-Xmx256m", "-XX:+UseSerialGC", "-jar", str(jar)],
            env=os.environ | environment, stdout=log, stderr=log, start_new_session=True,
        ) as process,
    ):  # fmt: skip

        def serves() -> bool:
            assert process.poll() is None, (folder / "log").read_text()
            RegistryClient(url).subjects()
            return True

        until(serves, "Apicurio's registry", _STARTS_WITHIN_S, ignoring=SchemaError)
        yield url


def test_schemas_are_registered_found_checked_and_deleted(registry: str) -> None:
    client = RegistryClient(registry)
    client.set_mode(Level.BACKWARD, "orders-value")
    assert client.mode("orders-value") is Level.BACKWARD
    first = client.register("orders-value", ONE)
    assert client.register("orders-value", ONE) == first
    second = client.register("orders-value", TWO)
    assert (first.version, second.version) == (1, 2)
    assert client.problem("orders-value", BROKEN)
    with pytest.raises(IncompatibleSchema, match="orders-value"):
        client.register("orders-value", BROKEN)
    assert client.find("orders-value", ONE) == first
    assert client.version("orders-value") == second
    assert client.version_numbers("orders-value") == [1, 2]
    fresh = RegistryClient(registry)
    assert json.loads(fresh.by_id(first.id).text) == ONE
    with pytest.raises(SchemaNotFound):
        fresh.by_id(99_999)
    with pytest.raises(SchemaNotFound):
        fresh.version("orders-value", 9)
    # It has none of these, and says so by 404.
    assert fresh.operations("orders-value") is None
    assert fresh.write_mode("orders-value") == "READWRITE"
    assert client.delete("orders-value") == [1, 2]
    assert "orders-value" not in client.subjects()


def test_messages_go_through_a_broker_with_its_ids(registry: str) -> None:
    client = RegistryClient(registry)
    with Broker() as broker:
        broker.create_topic("trips")
        for schema, value in ((ONE, {"id": 1}), (TWO, {"id": 2, "price": 2.5})):
            serializer = RegisteredAvroSerializer(client, schema)
            with Producer(broker.bootstrap, value_serializer=serializer) as producer:
                producer.send("trips", value).result(30)
        reader = RegisteredAvroSerializer(RegistryClient(registry), TWO)
        with Consumer(broker.bootstrap, value_deserializer=reader) as consumer:
            consumer.subscribe("trips")
            found: list[Any] = []
            while len(found) < 2:
                message = consumer.poll(30)
                assert message is not None
                found.append(message.value)
    assert found == [{"id": 1, "price": 0.0}, {"id": 2, "price": 2.5}]


def test_the_commands_work_with_it(
    registry: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "one.avsc"
    path.write_text(json.dumps(ONE))

    def run(*words: str) -> str:
        assert main(["schemas", *words, "--registry", registry]) == 0
        return capsys.readouterr().out

    assert run("register", "bills-value", str(path)).startswith("bills-value version 1 has the id")
    assert "bills-value" in run("list")
    assert json.loads(run("show", "bills-value")) == ONE
    assert "is compatible" in run("check", "bills-value", str(path))
    assert run("delete", "bills-value") == "deleted from bills-value: version 1\n"
