"""The registry when its topic is cut, or is another one: it begins anew, and never hangs."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import msgspec
import pytest

from moldau.broker.server import Broker as Server
from moldau.cluster.state.changes import PartitionsChanged
from moldau.http.registry.following import TOPIC, SchemasFollower
from moldau.http.registry.registry import SchemaRegistry, record_of
from moldau.log.truncation import truncate_to
from moldau.records.record import Record, build_batch
from moldau.schemas.registry.records import encode_key, encode_value
from moldau.schemas.registry.state import Version
from moldau.schemas.schema import Schema
from moldau.testing import Broker
from moldau.testing.waiting import until
from moldau.wire.apis import Api
from tests.broker.wire_client import Client, inside, now_ms


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker(http_listen="127.0.0.1:0") as broker:
        yield broker


def register(broker: Broker, subject: str, kind: str = "string") -> httpx.Response:
    url = f"{broker.http_url}/subjects/{subject}/versions"
    return httpx.post(url, json={"schema": f'"{kind}"'}, timeout=20)


def subjects(broker: Broker) -> Any:
    return httpx.get(f"{broker.http_url}/subjects", timeout=20).json()


def registry_of(server: Server) -> SchemaRegistry:
    found: SchemaRegistry = server.partitions.door._registry  # type: ignore[union-attr]
    return found


class HeldReader:
    """Keeps the broker from reading `_schemas`, until it may go on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, broker: Broker) -> None:
        self._broker = broker
        self._go_on = threading.Event()
        read_on = SchemasFollower._read_on

        async def held(follower: SchemasFollower) -> None:
            if self._go_on.is_set():
                await read_on(follower)

        monkeypatch.setattr(SchemasFollower, "_read_on", held)

    def release(self) -> None:
        self._go_on.set()
        inside(self._broker, lambda server: registry_of(server).follower.notify())


def schema_batch(subject: str) -> bytearray:
    """A registration, as the registry of another leader would have written it."""
    version = Version(subject, 1, 7, Schema('"long"'))
    key, value = record_of(version)
    assert value is not None
    return build_batch([Record(0, now_ms(), encode_key(key), encode_value(value))])


class Away(SchemasFollower):
    """Reads `_schemas` as a broker does that has no replica of it."""

    @property
    def partition(self) -> None:
        return None


@pytest.mark.parametrize("others", [(), ("new1", "new2")])
def test_a_log_that_was_cut_is_read_anew(broker: Broker, others: tuple[str, ...]) -> None:
    """As by an unclean election. The worst: the log is as long again, with other records."""
    for subject in ("kept", "lost", "lost2"):
        assert register(broker, subject).status_code == 200
    inside(broker, lambda server: truncate_to(server.partitions[TOPIC, 0].log, 1))
    with Client(broker) as client:
        for subject in others:
            assert client.produce(TOPIC, schema_batch(subject)).error_code == 0
    assert register(broker, "next", "int").status_code == 200
    assert subjects(broker) == sorted(["kept", *others, "next"])


def test_a_topic_that_was_deleted_and_made_again_is_read_anew(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worst: somebody writes before the broker has begun to read the new one."""
    for subject in ("old1", "old2"):
        assert register(broker, subject).status_code == 200
    held = HeldReader(monkeypatch, broker)
    with Client(broker) as client:
        client.ask(Api.DELETE_TOPICS, topics=[{"name": TOPIC}])
        client.create(TOPIC, cleanup_policy="compact")
    until(lambda: inside(broker, lambda server: (TOPIC, 0) in server.partitions), "the new one")
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(register, broker, "new", "int")
        until(lambda: inside(broker, lambda server: registry_of(server)._turn.locked()), "a write")
        held.release()
        assert asked.result(30).json()["version"] == 1
    assert subjects(broker) == ["new"]


def test_a_broker_without_a_replica_notices_that_the_log_was_cut_and_has_grown_again(
    broker: Broker,
) -> None:
    """By the epoch of the last record that it has read: the log is as long as it was."""
    server = broker._server
    assert server is not None
    for subject in ("kept", "lost", "lost2"):
        assert register(broker, subject).status_code == 200

    async def follow() -> Away:
        away = Away(server)
        away.start()
        return away

    async def elect() -> None:
        """Cut the log, and have the leader begin another epoch."""
        truncate_to(server.partitions[TOPIC, 0].log, 1)
        partition = server.state.topics[TOPIC].partitions[0]
        later = msgspec.structs.replace(partition, leader_epoch=partition.leader_epoch + 1)
        await server.store.commit([PartitionsChanged(TOPIC, {0: later})])

    away = broker._call(follow())

    def known() -> list[str]:
        return inside(broker, lambda server: sorted(name for name, _ in away.state.subjects()))

    until(lambda: known() == ["kept", "lost", "lost2"], "it has read all")
    broker._call(away.stop())
    broker._call(elect())

    def epochs() -> tuple[int, int]:
        state = server.state.topics[TOPIC].partitions[0]
        return server.partitions[TOPIC, 0].leader_epoch, state.leader_epoch

    # It leads once a thread has forced the cut to the disk.
    until(lambda: len({*inside(broker, lambda _: epochs())}) == 1, "it leads in that epoch")
    with Client(broker) as client:
        for subject in ("new1", "new2", "new3"):
            assert client.produce(TOPIC, schema_batch(subject)).error_code == 0

    async def go_on() -> None:
        away.start()

    broker._call(go_on())
    until(lambda: known() == ["kept", "new1", "new2", "new3"], "it has begun anew")
    broker._call(away.stop())
