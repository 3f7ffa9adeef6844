"""The in-process broker, as a user's tests use it."""

from __future__ import annotations

import gc
import signal
import socket
import threading
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from moldau.settings import InvalidSetting
from moldau.testing import Broker


def send(broker: Broker, topic: str, value: bytes) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    producer.produce(topic, value)
    assert producer.flush(60) == 0


def first_message(broker: Broker, topic: str) -> bytes | str | None:
    consumer = Consumer(
        {"bootstrap.servers": broker.bootstrap, "group.id": "test", "enable.auto.commit": False}
    )
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        message = consumer.poll(60)
        assert message is not None
        assert message.error() is None
        return message.value()
    finally:
        consumer.close()


def test_a_client_produces_and_consumes() -> None:
    with Broker() as broker:
        send(broker, "words", b"hello")
        assert first_message(broker, "words") == b"hello"


def test_nothing_is_left_behind() -> None:
    before = set(threading.enumerate())
    with Broker() as broker:
        folder, address = broker.data_dir, (broker.host, broker.port)
        assert folder.is_dir()
        socket.create_connection(address, timeout=60).close()
    assert not folder.exists()
    assert set(threading.enumerate()) <= before
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(address, timeout=60)


def test_the_users_process_is_left_as_it_was() -> None:
    def process_state() -> tuple[object, ...]:
        handlers = (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT))
        return gc.get_threshold(), gc.get_freeze_count(), gc.isenabled(), handlers

    before = process_state()
    with Broker():
        assert process_state() == before
    assert process_state() == before


def test_two_brokers_live_side_by_side() -> None:
    with Broker() as one, Broker() as other:
        assert one.port != other.port
        send(one, "words", b"for one")
        send(other, "words", b"for the other")
        assert first_message(one, "words") == b"for one"
        assert first_message(other, "words") == b"for the other"


def test_settings_are_given_by_keyword_or_by_name() -> None:
    with Broker({"log.retention.ms": 5000}, num_partitions=3) as broker:
        send(broker, "words", b"x")
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        assert len(admin.list_topics(timeout=60).topics["words"].partitions) == 3


def test_a_setting_that_does_not_exist_is_refused_with_the_nearest_one() -> None:
    with pytest.raises(InvalidSetting, match=r"did you mean num\.partitions"):
        Broker(num_partition=3).start()


def test_topics_are_created_with_their_settings() -> None:
    with Broker() as broker:
        broker.create_topic("words", partitions=4, retention_ms=1000, cleanup_policy="delete")
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        assert len(admin.list_topics("words", timeout=60).topics["words"].partitions) == 4
        with pytest.raises(Exception, match="words"):
            broker.create_topic("words")


def test_a_restart_keeps_data_and_address() -> None:
    with Broker() as broker:
        send(broker, "words", b"kept")
        address = broker.bootstrap
        broker.stop()
        broker.start()
        assert broker.bootstrap == address
        assert first_message(broker, "words") == b"kept"


def test_a_data_folder_of_ones_own_stays(tmp_path: Path) -> None:
    with Broker(data_dir=tmp_path) as broker:
        send(broker, "words", b"kept")
    assert list(tmp_path.glob("words-0/*.log"))
    with Broker(data_dir=tmp_path) as broker:
        assert first_message(broker, "words") == b"kept"


def test_a_broker_that_cannot_start_says_why(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        broker = Broker(listeners=f"127.0.0.1:{taken.getsockname()[1]}", data_dir=tmp_path)
        with pytest.raises(OSError, match="in use"):
            broker.start()
    broker.start()
    broker.stop()


def test_it_has_no_address_before_it_runs() -> None:
    with pytest.raises(RuntimeError, match="use `with`"):
        _ = Broker().bootstrap
