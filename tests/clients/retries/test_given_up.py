"""A batch of a transaction is written, its answer is lost, and the producer aborts.

librdkafka takes what it had not sent again by then for never written: the first message of its next
transaction gets the same sequence number. Told that it has written that one, it would take the
message for delivered, and commit without it.
"""

from __future__ import annotations

import time
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer

from moldau.testing import Broker
from moldau.testing.waiting import until
from tests.clients.client import WITHIN_S
from tests.clients.retries.lossy_proxy import LossyProxy
from tests.scenarios.clients import IMPATIENT

# Long enough to abort before the producer has connected again, and sent the message again.
_RECONNECT_MS = 1500
_ABORT_S = 5.0


@pytest.mark.parametrize("more", [(), (b"third", b"fourth")], ids=["one", "pipelined"])
def test_librdkafka_loses_nothing_of_the_transaction_after_one_that_it_aborted_in_doubt(
    more: tuple[bytes, ...],
) -> None:
    errors: list[KafkaError] = []
    with LossyProxy() as proxy, Broker(advertised_listeners=proxy.address) as broker:
        proxy.forward_to(broker.host, broker.port)
        broker.create_topic("t")
        producer = Producer(
            {
                **IMPATIENT,
                "bootstrap.servers": proxy.address,
                "transactional.id": "librdkafka",
                "reconnect.backoff.ms": _RECONNECT_MS,
                "reconnect.backoff.max.ms": _RECONNECT_MS,
                "batch.num.messages": 1,
                "error_cb": errors.append,
            }
        )
        producer.init_transactions(WITHIN_S)
        _write(producer, b"first")

        producer.begin_transaction()
        proxy.lose_answers_to_produce(1)
        producer.produce("t", b"given up")
        until(lambda: producer.poll(0.01) is not None and proxy.lost and errors, "the loss")
        _abort(producer)

        with pytest.raises(KafkaException) as refused:
            _write(producer, b"second", *more)
        assert refused.value.args[0].txn_requires_abort()
        _abort(producer)
        _write(producer, b"second", *more)
        _write(producer, b"last")
        assert _committed(broker) == [b"first", b"second", *more, b"last"]


def _write(producer: Producer, *values: bytes) -> None:
    producer.begin_transaction()
    for value in values:
        producer.produce("t", value)
    producer.commit_transaction(WITHIN_S)


def _abort(producer: Producer) -> None:
    """Abort, and again where librdkafka has overlooked the message that it was about to send again:
    it waits for that one in vain, and takes it away when it is asked once more."""
    deadline = time.monotonic() + WITHIN_S
    while True:
        try:
            return producer.abort_transaction(_ABORT_S)
        except KafkaException as problem:
            timed_out = problem.args[0].code() == KafkaError._TIMED_OUT
            if not timed_out or time.monotonic() > deadline:
                raise


def _committed(broker: Broker) -> list[Any]:
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": "g",
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
            "enable.partition.eof": True,
        }
    )
    found: list[Any] = []
    try:
        consumer.subscribe(["t"])
        while (message := consumer.poll(WITHIN_S)) is not None and message.error() is None:
            found.append(message.value())
    finally:
        consumer.close()
    return found
