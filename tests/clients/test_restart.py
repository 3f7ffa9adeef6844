"""A broker that stops and starts again: what clients had written, and what they go on writing."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, Producer, TopicPartition
from confluent_kafka import Message as Polled
from confluent_kafka.admin import AdminClient

from moldau.testing import Broker
from moldau.testing.waiting import until
from tests.clients.client import (
    CODECS,
    NOON_MS,
    WITHIN_S,
    Message,
    read_all,
)
from tests.clients.confluent import ConfluentClient, send
from tests.clients.conftest import CLIENTS


@pytest.fixture
def restartable() -> Iterator[Broker]:
    with Broker(log_retention_ms=-1) as broker:
        yield broker


def restart(broker: Broker) -> None:
    broker.stop()
    broker.start()


def test_messages_offsets_and_topics_outlive_a_restart(restartable: Broker) -> None:
    clients = {name: kind(restartable.bootstrap) for name, kind in CLIENTS.items()}
    restartable.create_topic("t", partitions=2)
    sent: list[Message] = []
    for client in clients.values():
        for codec in CODECS:
            messages = [
                Message(
                    b"%d" % number * 30,
                    key=b"%d" % number,
                    headers=(("codec", codec.encode()),),
                    timestamp_ms=NOON_MS + len(sent) + number,
                )
                for number in range(20)
            ]
            client.produce("t", messages, codec=codec)
            sent += messages
    restart(restartable)
    for client in clients.values():
        assert client.watermarks("t") == (0, len(sent))
        assert client.watermarks("t", 1) == (0, 0)
        assert [each.message for each in read_all(client, "t", len(sent))] == sent
        assert client.offsets_at("t", NOON_MS + 77) == {NOON_MS + 77: 77}
    assert clients["aiokafka"].produce("t", [Message(b"after")]) == [len(sent)]


def test_deleted_records_stay_deleted_after_a_restart(restartable: Broker) -> None:
    client = ConfluentClient(restartable.bootstrap)
    client.produce("t", [Message(b"%d" % number) for number in range(10)])
    admin = AdminClient({"bootstrap.servers": restartable.bootstrap})
    (deleted,) = admin.delete_records([TopicPartition("t", 0, 4)]).values()
    assert deleted.result(WITHIN_S).low_watermark == 4
    restart(restartable)
    assert client.watermarks("t") == (4, 10)
    assert read_all(client, "t", 1)[0].message.value == b"4"


def test_a_reader_goes_on_after_a_restart(restartable: Broker) -> None:
    restartable.create_topic("t")
    client = ConfluentClient(restartable.bootstrap)
    client.produce("t", [Message(b"before")])
    with client.reader("t") as reader:
        assert [each.message.value for each in reader.read(1)] == [b"before"]
        restart(restartable)
        client.produce("t", [Message(b"after")])
        (after,) = reader.read(1)
    assert (after.offset, after.message.value) == (1, b"after")


class Outcome:
    """Counts delivery reports; the errors among them."""

    def __init__(self) -> None:
        self.delivered = 0
        self.errors: list[str] = []

    def __call__(self, error: KafkaError | None, _: Polled) -> None:
        if error is None:
            self.delivered += 1
        else:
            self.errors.append(str(error))


def stubborn_producer(bootstrap: str) -> Producer:
    return Producer(
        {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,
            "batch.num.messages": 50,
            "linger.ms": 1,
            "retry.backoff.ms": 20,
            "reconnect.backoff.ms": 20,
            "reconnect.backoff.max.ms": 100,
            "message.timeout.ms": int(WITHIN_S * 1000),
            "log_level": 0,
        }
    )


def assert_each_once_in_order(bootstrap: str, topic: str, count: int) -> None:
    client = ConfluentClient(bootstrap)
    assert client.watermarks(topic) == (0, count)
    read = read_all(client, topic, count)
    assert [each.message.value for each in read] == [b"%d" % number for number in range(count)]


def test_an_idempotent_producer_goes_through_restarts_without_loss_or_duplicates(
    restartable: Broker,
) -> None:
    restartable.create_topic("t")
    producer = stubborn_producer(restartable.bootstrap)
    outcome = Outcome()
    sent = 0
    for _ in range(2):
        goal = outcome.delivered + 300
        while outcome.delivered < goal:
            producer.produce("t", b"%d" % sent, partition=0, on_delivery=outcome)
            sent += 1
            producer.poll(0.001)
        restart(restartable)
    assert producer.flush(WITHIN_S) == 0
    assert outcome.errors == []
    assert outcome.delivered == sent
    assert_each_once_in_order(restartable.bootstrap, "t", sent)


def test_a_producer_keeps_its_sequence_over_a_restart(restartable: Broker) -> None:
    """The broker remembers the last sequence numbers, or the next batch would be out of order."""
    restartable.create_topic("t")
    producer = stubborn_producer(restartable.bootstrap)
    assert send(producer, "t", [Message(b"0")]) == [0]
    restart(restartable)
    assert send(producer, "t", [Message(b"1")]) == [1]
    assert_each_once_in_order(restartable.bootstrap, "t", 2)


@contextmanager
def broker_process(folder: Path, listen: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """`moldau broker` in a process of its own, and where it listens."""
    command = [sys.executable, "-m", "moldau", "broker"]
    command += ["--data-dir", str(folder), "--listen", listen]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    try:
        assert process.stdout is not None
        ready = process.stdout.readline()
        assert " ready on " in ready
        yield process, ready.split()[-1]
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM], ids=["SIGKILL", "SIGTERM"])
def test_an_idempotent_producer_goes_through_the_end_of_the_process(
    tmp_path: Path, how: signal.Signals
) -> None:
    """What the broker has answered for is in the page cache, which outlives the process."""
    outcome = Outcome()
    sent = 0
    with broker_process(tmp_path, "127.0.0.1:0") as (process, address):
        producer = stubborn_producer(address)
        while outcome.delivered < 500:
            producer.produce("t", b"%d" % sent, partition=0, on_delivery=outcome)
            sent += 1
            producer.poll(0.001)
        process.send_signal(how)
        process.wait(WITHIN_S)
    for _ in range(500):
        producer.produce("t", b"%d" % sent, partition=0, on_delivery=outcome)
        sent += 1
    with broker_process(tmp_path, address):
        assert producer.flush(WITHIN_S) == 0
        assert outcome.errors == []
        assert outcome.delivered == sent
        assert_each_once_in_order(address, "t", sent)


def test_a_topic_deleted_before_a_restart_is_gone_after_it(restartable: Broker) -> None:
    client = ConfluentClient(restartable.bootstrap)
    client.produce("gone", [Message(b"x")])
    client.produce("kept", [Message(b"x")])
    admin = AdminClient({"bootstrap.servers": restartable.bootstrap})
    (deleted,) = admin.delete_topics(["gone"]).values()
    deleted.result(WITHIN_S)
    restart(restartable)
    admin = AdminClient({"bootstrap.servers": restartable.bootstrap})
    assert set(admin.list_topics(timeout=WITHIN_S).topics) == {"kept"}
    until(lambda: not list(restartable.data_dir.glob("gone-*")), "the folder of the topic is gone")
    assert client.produce("gone", [Message(b"new")]) == [0]
