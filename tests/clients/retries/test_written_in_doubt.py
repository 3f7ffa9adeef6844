"""A batch is written, its leader changes before it is acknowledged, and what follows is refused.

To librdkafka OUT_OF_ORDER_SEQUENCE_NUMBER means that it has to begin a new epoch. In that it sends
again all that has not been acknowledged, in every partition, and nobody can tell any more that some
of it was written before.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from confluent_kafka import KafkaError, Producer
from confluent_kafka import Message as Polled

from moldau.broker.server import Broker as Server
from moldau.cluster.state.topics import PartitionState
from moldau.testing import Broker
from moldau.testing.waiting import until
from tests.broker.wire_client import Client, inside
from tests.clients.client import WITHIN_S
from tests.clients.retries.pipeline_proxy import PipelineProxy

# A broker that never was: what it should copy is not acknowledged.
MISSING = 99


def stage(server: Server, isr: tuple[int, ...]) -> None:
    """Has every partition led by this broker, with these in sync."""
    for partition in server.partitions.values():
        if partition.topic == "t":
            epoch = partition.leader_epoch + 1
            partition.become(PartitionState((0, MISSING), isr, 0, epoch))
            partition.wake()


@contextmanager
def changing_hands(in_doubt: int) -> Iterator[tuple[PipelineProxy, Broker]]:
    """A broker that writes the first of three requests, and loses the lead before it can tell; it
    refuses the second, and leads again when the third comes."""

    def change(number: int) -> None:
        if number == 0:
            partition = inside(broker, lambda server: server.partitions["t", in_doubt])
            until(lambda: partition.waiters, "a write that waits")
            inside(broker, lambda server: server.replicas.fence(True))
        elif number == 1:
            until(lambda: inside(broker, lambda server: len(server.partitions.refused_writes)))
            inside(broker, lambda server: stage(server, (0,)))

    with (
        PipelineProxy(3, meanwhile=change) as proxy,
        Broker(advertised_listeners=proxy.address) as broker,
    ):
        proxy.forward_to(broker.host, broker.port)
        with Client(broker) as client:
            client.create("t", partitions=2)
        inside(broker, lambda server: stage(server, (0, MISSING)))
        yield proxy, broker


@pytest.mark.parametrize("in_doubt", [0, 1], ids=["same partition", "other partition"])
def test_librdkafka_leaves_nothing_twice(in_doubt: int) -> None:
    reported: list[tuple[bytes | None, KafkaError | None]] = []

    def report(error: KafkaError | None, message: Polled) -> None:
        value = message.value()
        assert value is None or isinstance(value, bytes)
        reported.append((value, error))

    with changing_hands(in_doubt) as (proxy, broker):
        producer = Producer(
            {
                "bootstrap.servers": proxy.address,
                "enable.idempotence": True,
                "batch.num.messages": 1,
                "linger.ms": 0,
                "retry.backoff.ms": 10,
            }
        )
        producer.produce("t", b"in doubt", partition=in_doubt, on_delivery=report)
        until(lambda: proxy.collected == 1, "the first request")
        for value in (b"1", b"2", b"3", b"4"):
            producer.produce("t", value, partition=0, on_delivery=report)
        assert producer.flush(WITHIN_S) == 0
        assert proxy.has_happened.is_set()
        assert [error for _, error in reported] == [None] * 5
        with Client(broker) as client:
            found = [client.values("t", partition) for partition in (0, 1)]
        if in_doubt == 0:
            assert found == [[b"in doubt", b"1", b"2", b"3", b"4"], []]
        else:
            assert found == [[b"1", b"2", b"3", b"4"], [b"in doubt"]]
