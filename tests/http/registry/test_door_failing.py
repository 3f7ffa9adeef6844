"""The check at the door when it cannot be done now: clients send again, and nothing is lost."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from confluent_kafka import Producer
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient

from moldau.http.registry import following, quarantine
from moldau.http.registry.following import SchemasFollower
from moldau.http.registry.quarantine import Quarantine
from moldau.schemas.door.messages import CheckBatch
from moldau.schemas.header import pack_header
from moldau.schemas.worker.process import WorkerProcess
from moldau.testing import Broker
from moldau.testing.waiting import until
from moldau.wire.errors import Error
from tests.broker.asking import Asker
from tests.broker.wire_client import Client, fresh_name, make_batch
from tests.http.registry.test_door import produce
from tests.spark.topics import read_by_librdkafka

pytest.importorskip("numba", reason="the check is compiled by numba, which is not installed")

# The first process on a machine compiles.
pytestmark = pytest.mark.timeout(400)


@pytest.fixture
def broker() -> Iterator[Broker]:
    # A stop may wait for as long as the process that checks takes to start on a busy machine.
    with Broker(http_listen="127.0.0.1:0", shutdown_drain_ms=20_000) as broker:
        yield broker


def checked_topic(broker: Broker, **configs: Any) -> tuple[str, bytes]:
    """A topic with a check, and a value that it takes."""
    topic = fresh_name("failing")
    broker.create_topic(topic, moldau_value_schema_validation="true", **configs)
    with SchemaRegistryClient({"url": broker.http_url}) as client:
        known = client.register_schema(f"{topic}-value", Schema('"string"', "AVRO"))
    return topic, pack_header(known) + b"\x02a"


class HeldCheck:
    """Holds each batch on its way to the process that checks it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.reached = threading.Event()
        self.go_on = threading.Event()
        exchange = WorkerProcess._exchange

        async def held(worker: Any, process: Any, request: Any) -> Any:
            if isinstance(request, CheckBatch):
                self.reached.set()
                await asyncio.to_thread(self.go_on.wait, 60)
            return await exchange(worker, process, request)

        monkeypatch.setattr(WorkerProcess, "_exchange", held)


def test_a_batch_that_is_being_checked_is_taken_while_the_broker_stops(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic, fine = checked_topic(broker)
    server = broker._server
    assert server is not None
    with Asker(broker) as asker:
        # From here on, the process that checks has loaded and compiled what it needs.
        assert produce(asker, topic, [fine]).error_code == 0
    hold = HeldCheck(monkeypatch)
    with Client(broker) as client:
        client.send_produce(topic, make_batch(fine))
        assert hold.reached.wait(60)
        stop = threading.Thread(target=broker.stop, daemon=True)
        stop.start()
        until(lambda: server.phase == "stopping", "the stop")
        hold.go_on.set()
        result = client.receive().responses[0].partition_responses[0]
        stop.join(60)
    assert (result.error_code, result.base_offset) == (0, 1)
    broker.start()
    assert [row["value"] for row in read_by_librdkafka(broker, topic)] == [fine, fine]


def test_an_idempotent_producer_outlives_the_process_that_checks(
    registry_broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worst: the first batches of a producer fail, and those sent behind them are fine."""
    topic, fine = checked_topic(registry_broker)
    exchange = WorkerProcess._exchange
    lost: list[int] = []

    async def dying(worker: Any, process: Any, request: Any) -> Any:
        if isinstance(request, CheckBatch) and len(lost) < 2:
            lost.append(process.pid)
            process.kill()
        return await exchange(worker, process, request)

    monkeypatch.setattr(WorkerProcess, "_exchange", dying)
    problems: list[Any] = []
    producer = Producer(
        {"bootstrap.servers": registry_broker.bootstrap, "enable.idempotence": True,
         "linger.ms": 0, "batch.num.messages": 1}
    )  # fmt: skip
    values = [fine[:-1] + bytes([97 + number]) for number in range(5)]
    for value in values:
        producer.produce(topic, value, on_delivery=lambda error, _: problems.append(error))
        producer.poll(0)
    assert producer.flush(60) == 0
    assert len(set(lost)) == 2
    assert problems == [None] * 5
    assert [row["value"] for row in read_by_librdkafka(registry_broker, topic)] == values


def test_a_quarantine_without_a_leader_is_no_reason_to_give_up(
    registry_broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    aside = fresh_name("failing-aside")
    topic, _ = checked_topic(registry_broker, moldau_schema_validation_quarantine=aside)

    async def without_leader(*_: Any) -> None:
        raise quarantine._NotNow("it has no leader")

    with Asker(registry_broker) as asker:
        with monkeypatch.context() as patch:
            patch.setattr(Quarantine, "_try", without_leader)
            patch.setattr(quarantine, "_WITHIN_S", 0.3)
            answer = produce(asker, topic, [b"bad"])
            assert answer.error_code == Error.NOT_ENOUGH_REPLICAS
            assert f"the quarantine {aside} does not accept the record: it has no leader" in (
                answer.error_message
            )
        assert produce(asker, topic, [b"bad"]).error_code == 0


def test_nobody_waits_without_end_for_schemas_that_cannot_be_read(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worst: reading them fails in a way that nobody has foreseen."""
    topic, fine = checked_topic(broker)
    broker.stop()
    read_on = SchemasFollower._read_on
    failed: list[int] = []
    mended = threading.Event()

    async def failing(follower: SchemasFollower) -> None:
        if not mended.is_set():
            failed.append(1)
            raise RuntimeError("nobody has foreseen this")
        await read_on(follower)

    monkeypatch.setattr(SchemasFollower, "_read_on", failing)
    monkeypatch.setattr(following, "_CURRENT_WITHIN_S", 0.3, raising=False)
    monkeypatch.setattr(following, "_LONG_PAUSE_S", 0.1, raising=False)
    broker.start()
    url = f"{broker.http_url}/subjects/{topic}-value/versions"
    with Asker(broker) as asker:
        answer = produce(asker, topic, [fine])
        assert answer.error_code == Error.NOT_ENOUGH_REPLICAS
        assert "the schemas could not be read in time" in answer.error_message
        assert httpx.get(url, timeout=20).json()["error_code"] == 50002
        until(lambda: len(failed) > 2, "more attempts")
        mended.set()
        until(lambda: produce(asker, topic, [fine]).error_code == 0, "a batch that is taken")
    assert httpx.get(url, timeout=20).json() == [1]
