"""A new producer's first batch is refused, and the broker has recovered when the next arrives.

Real clients with several batches under way; `tests/broker/partitions/test_refused_writes.py` has
the frames.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError as AioKafkaError
from confluent_kafka import KafkaError, Producer
from confluent_kafka import Message as Polled
from kafka import KafkaProducer

from moldau.testing import Broker
from tests.broker.wire_client import Client, inside
from tests.clients.client import WITHIN_S
from tests.clients.java import JavaProducer
from tests.clients.retries.pipeline_proxy import PipelineProxy

COUNT = 8
VALUES = [b"%d" % number for number in range(COUNT)]


@contextmanager
def recovering(under_way: int) -> Iterator[tuple[PipelineProxy, Broker]]:
    """A broker short of replicas in sync until it has refused the first batch."""

    def recover() -> None:
        refused = inside(broker, lambda server: len(server.partitions.refused_writes))
        with Client(broker) as client:
            client.alter("t", min_insync_replicas="1")
        assert refused == 1

    with (
        PipelineProxy(under_way, recover) as proxy,
        Broker(advertised_listeners=proxy.address) as broker,
    ):
        proxy.forward_to(broker.host, broker.port)
        with Client(broker) as client:
            client.create("t", min_insync_replicas="2")
        yield proxy, broker


def values_in(broker: Broker) -> list[bytes | None]:
    with Client(broker) as client:
        return client.values("t")


@pytest.mark.parametrize("under_way", [2, 5])
def test_librdkafka_sends_again_in_order(under_way: int) -> None:
    reported: list[tuple[bytes | None, KafkaError | None]] = []

    def report(error: KafkaError | None, message: Polled) -> None:
        value = message.value()
        assert value is None or isinstance(value, bytes)
        reported.append((value, error))

    with recovering(under_way) as (proxy, broker):
        producer = Producer(
            {
                "bootstrap.servers": proxy.address,
                "enable.idempotence": True,
                "batch.num.messages": 1,
                "linger.ms": 0,
                "retry.backoff.ms": 10,
            }
        )
        for value in VALUES:
            producer.produce("t", value, partition=0, on_delivery=report)
        assert producer.flush(WITHIN_S) == 0
        assert proxy.has_happened.is_set()
        assert reported == [(value, None) for value in VALUES]
        assert values_in(broker) == VALUES


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_javas_producer_sends_again_in_order(java_producer: JavaProducer) -> None:
    with recovering(under_way=2) as (proxy, broker):
        sending = java_producer.start(
            proxy.address, "t", batch_size=1, linger_ms=0, retry_backoff_ms=10
        )
        said = sending.send([(None, value.decode()) for value in VALUES])
        assert proxy.has_happened.is_set()
        assert said == [str(offset) for offset in range(COUNT)]
        assert values_in(broker) == VALUES


def test_aiokafka_which_has_one_under_way_is_not_affected() -> None:
    async def send(bootstrap: str) -> list[int]:
        async with AIOKafkaProducer(
            bootstrap_servers=bootstrap,
            enable_idempotence=True,
            max_batch_size=1,
            retry_backoff_ms=10,
        ) as producer:
            sent = [await producer.send("t", value, partition=0) for value in VALUES]
            return [(await each).offset for each in sent]

    with recovering(under_way=1) as (proxy, broker):
        assert asyncio.run(send(proxy.address)) == list(range(COUNT))
        assert proxy.has_happened.is_set()
        assert values_in(broker) == VALUES


def test_kafka_python_which_has_one_under_way_is_not_affected() -> None:
    with recovering(under_way=1) as (proxy, broker):
        producer = KafkaProducer(
            bootstrap_servers=proxy.address,
            enable_idempotence=True,
            batch_size=1,
            linger_ms=0,
            retry_backoff_ms=10,
        )
        try:
            sent = [producer.send("t", value, partition=0) for value in VALUES]
            assert [each.get(WITHIN_S).offset for each in sent] == list(range(COUNT))
        finally:
            producer.close(timeout=WITHIN_S)
        assert proxy.has_happened.is_set()
        assert values_in(broker) == VALUES


def test_aiokafka_goes_on_after_a_first_record_that_nothing_can_be_done_about(
    broker: Broker, fresh_name: str
) -> None:
    """It does not number its batches anew, as others do; it is believed after five."""
    broker.create_topic(fresh_name, cleanup_policy="compact")

    async def send() -> list[bool]:
        async with AIOKafkaProducer(
            bootstrap_servers=broker.bootstrap, enable_idempotence=True
        ) as producer:
            taken = []
            for key in (None, *[b"k"] * 8):
                try:
                    await producer.send_and_wait(fresh_name, b"v", key=key, partition=0)
                except AioKafkaError:
                    taken.append(False)
                else:
                    taken.append(True)
            return taken

    assert asyncio.run(send()) == [False] * 5 + [True] * 4


def test_librdkafka_goes_on_after_a_first_record_that_nothing_can_be_done_about(
    broker: Broker, fresh_name: str
) -> None:
    broker.create_topic(fresh_name, cleanup_policy="compact")
    errors: list[int] = []

    def report(error: KafkaError | None, message: Polled) -> None:
        errors.append(error.code() if error is not None else 0)

    producer = Producer(
        {"bootstrap.servers": broker.bootstrap, "enable.idempotence": True, "batch.num.messages": 1}
    )
    for key in (None, *["k"] * 8):
        producer.produce(fresh_name, b"v", key, partition=0, on_delivery=report)
    assert producer.flush(WITHIN_S) == 0
    assert errors == [KafkaError.INVALID_RECORD, *[0] * 8]
