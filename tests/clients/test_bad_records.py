"""Bad records are named, so that clients can tell them from the good ones of their batch."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError, Producer
from confluent_kafka import Message as Polled
from kafka import KafkaProducer
from kafka.errors import InvalidRecordError
from kafka.errors import KafkaError as KafkaPythonError
from kafka.producer.future import FutureRecordMetadata

from moldau.testing import Broker
from tests.clients.client import WITHIN_S
from tests.clients.java import JavaProducer

KEYLESS = (3, 7)
TEN = [(None if number in KEYLESS else "k", str(number)) for number in range(10)]


def test_confluent_kafka_learns_which_records_of_a_batch_have_no_key(
    broker: Broker, fresh_name: str
) -> None:
    broker.create_topic(fresh_name, cleanup_policy="compact")
    codes: dict[bytes | None, int] = {}

    def report(error: KafkaError | None, message: Polled) -> None:
        codes[message.value()] = error.code() if error is not None else 0

    producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 1000})
    for key, value in TEN:
        producer.produce(fresh_name, value.encode(), key, partition=0, on_delivery=report)
    assert producer.flush(WITHIN_S) == 0
    assert codes == {
        value.encode(): KafkaError._INVALID_DIFFERENT_RECORD if key else KafkaError.INVALID_RECORD
        for key, value in TEN
    }


def test_kafka_python_learns_which_records_of_a_batch_have_no_key(
    broker: Broker, fresh_name: str
) -> None:
    broker.create_topic(fresh_name, cleanup_policy="compact")
    with KafkaProducer(bootstrap_servers=broker.bootstrap, linger_ms=1000) as producer:
        sent = [
            producer.send(fresh_name, value.encode(), key.encode() if key else None, partition=0)
            for key, value in TEN
        ]
        errors = [_failure_of(each) for each in sent]
    for number, error in enumerate(errors):
        assert isinstance(error, InvalidRecordError) == (number in KEYLESS), errors
        assert "without a key" in str(error) or number not in KEYLESS


def _failure_of(sent: FutureRecordMetadata) -> Exception:
    with pytest.raises(KafkaPythonError) as failure:
        sent.get(WITHIN_S)
    error: Exception = failure.value
    return error


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_javas_producer_learns_which_records_of_a_batch_have_no_key(
    broker: Broker, fresh_name: str, java_producer: JavaProducer
) -> None:
    broker.create_topic(fresh_name, cleanup_policy="compact")
    said = java_producer.start(broker.bootstrap, fresh_name, linger_ms=1000).send(TEN)
    for number, line in enumerate(said):
        expected = "InvalidRecordException" if number in KEYLESS else "KafkaException"
        assert line.split()[0] == expected, said
    assert len(said) == len(TEN)
