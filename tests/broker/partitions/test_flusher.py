"""Topics with a flush policy: only what is on disk counts."""

from __future__ import annotations

import errno
import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

from moldau.log.files.disk import replace_file
from moldau.testing import Broker
from moldau.testing.waiting import until
from tests.broker.broker_process import BrokerProcess
from tests.broker.wire_client import inside


class HeldFsync:
    """os.fsync that waits until it is let go, and counts."""

    def __init__(self, fsync: Callable[[int], None]) -> None:
        self._fsync = fsync
        self.free = threading.Event()
        self.begun = threading.Semaphore(0)
        self.count = 0

    def __call__(self, descriptor: int) -> None:
        # Only segment files of the topic; the metadata store has its own reasons to fsync, and so
        # has another broker of this process.
        path = os.readlink(f"/proc/self/fd/{descriptor}")
        if path.endswith(".log") and "/t-0/" in path:
            self.count += 1
            self.begun.release()
            assert self.free.wait(60)
        self._fsync(descriptor)


@pytest.fixture
def fsync(monkeypatch: pytest.MonkeyPatch) -> Iterator[HeldFsync]:
    held = HeldFsync(os.fsync)
    monkeypatch.setattr(os, "fsync", held)
    yield held
    held.free.set()


class Sender:
    """A producer that keeps what came of each message."""

    def __init__(self, bootstrap: str, **settings: object) -> None:
        self.outcomes: list[KafkaError | None] = []
        self._producer = Producer({"bootstrap.servers": bootstrap, **settings})

    def send(self, value: bytes) -> None:
        self._producer.produce("t", value, partition=0, on_delivery=self._delivered)
        self._producer.poll(0)

    def wait(self, seconds: float = 60) -> int:
        return self._producer.flush(seconds)

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        self.outcomes.append(error)


def end_offset(broker: Broker) -> int:
    consumer = Consumer(
        {"bootstrap.servers": broker.bootstrap, "group.id": "-", "enable.auto.commit": False}
    )
    try:
        end: int = consumer.get_watermark_offsets(TopicPartition("t", 0), timeout=60)[1]
        return end
    finally:
        consumer.close()


def test_a_write_with_acks_all_is_answered_and_seen_only_after_the_flush(fsync: HeldFsync) -> None:
    with Broker() as broker:
        broker.create_topic("t", flush_messages=1)
        sender = Sender(broker.bootstrap, acks="all")
        sender.send(b"x")
        assert fsync.begun.acquire(timeout=60)
        assert sender.wait(0.2) == 1
        assert end_offset(broker) == 0
        fsync.free.set()
        assert sender.wait() == 0
        assert (sender.outcomes, end_offset(broker)) == ([None], 1)


def test_writes_that_arrive_during_a_flush_share_the_next_one(fsync: HeldFsync) -> None:
    with Broker() as broker:
        broker.create_topic("t", flush_messages=1)
        sender = Sender(broker.bootstrap, acks="all", **{"linger.ms": 0, "batch.num.messages": 1})
        sender.send(b"first")
        assert fsync.begun.acquire(timeout=60)
        for _ in range(50):
            sender.send(b"later")
        log = inside(broker, lambda server: server.partitions["t", 0].log)
        until(lambda: log.log_end == 51, "all of them to arrive")
        assert sender.outcomes == []
        fsync.free.set()
        assert sender.wait() == 0
        assert sender.outcomes == [None] * 51
        assert 2 <= fsync.count < 20


def test_where_a_log_ends_after_a_crash_is_told_once_what_was_left_is_on_disk(
    fsync: HeldFsync, tmp_path: Path
) -> None:
    with BrokerProcess(tmp_path / "data", ["log.flush.interval.messages=1"]) as process:
        sender = Sender(f"127.0.0.1:{process.port}", acks="all")
        for _ in range(3):
            sender.send(b"x")
        assert sender.wait() == 0
        process.stop(signal.SIGKILL)
    again = Broker(data_dir=tmp_path / "data", log_flush_interval_messages=1)
    with again as broker, ThreadPoolExecutor(1) as thread:
        assert fsync.begun.acquire(timeout=60)
        end = thread.submit(end_offset, broker)
        assert not wait([end], 0.5).done
        fsync.free.set()
        assert end.result(60) == 3


def test_a_count_without_a_time_does_not_leave_the_last_messages_waiting() -> None:
    with Broker() as broker:
        broker.create_topic("t", flush_messages=1000)
        sender = Sender(broker.bootstrap, acks=1)
        sender.send(b"x")
        assert sender.wait() == 0
        consumer = Consumer(
            {"bootstrap.servers": broker.bootstrap, "group.id": "-", "enable.auto.commit": False}
        )
        consumer.assign([TopicPartition("t", 0, 0)])
        message = consumer.poll(60)
        assert message is not None
        assert message.value() == b"x"
        consumer.close()


def test_without_a_policy_nothing_waits_for_the_disk(fsync: HeldFsync) -> None:
    with Broker() as broker:
        broker.create_topic("t")
        sender = Sender(broker.bootstrap, acks="all")
        sender.send(b"x")
        assert sender.wait() == 0
        assert (sender.outcomes, fsync.count, end_offset(broker)) == ([None], 0, 1)
        fsync.free.set()


def test_a_failed_fsync_takes_the_partition_offline_and_tells_the_producer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real = os.fsync

    def fail(descriptor: int) -> None:
        if os.readlink(f"/proc/self/fd/{descriptor}").endswith("t-0/00000000000000000000.log"):
            raise OSError(5, "Input/output error")
        real(descriptor)

    with Broker() as broker:
        broker.create_topic("t", flush_messages=1)
        broker.create_topic("other")
        monkeypatch.setattr(os, "fsync", fail)
        sender = Sender(broker.bootstrap, acks="all", retries=0)
        sender.send(b"x")
        assert sender.wait() == 0
        [error] = sender.outcomes
        assert error is not None
        assert error.code() == KafkaError.KAFKA_STORAGE_ERROR
        healthy = Producer({"bootstrap.servers": broker.bootstrap})
        healthy.produce("other", b"y")
        assert healthy.flush(60) == 0
        monkeypatch.undo()


def test_a_small_file_that_finds_no_room_is_written_later_and_nothing_is_offline(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real = replace_file
    refused: list[str] = []

    def refuse_once(path: str, content: bytes, *, sync: bool) -> None:
        if not refused:
            refused.append(path)
            raise OSError(errno.ENOSPC, "no room")
        real(path, content, sync=sync)

    with Broker() as broker:
        broker.create_topic("t", flush_messages=1)
        monkeypatch.setattr("moldau.log.flushes.flush.replace_file", refuse_once)
        sender = Sender(broker.bootstrap, acks="all", retries=0)
        sender.send(b"x")
        assert sender.wait() == 0
        assert refused
        assert (sender.outcomes, end_offset(broker)) == ([None], 1)


def test_a_policy_that_is_set_later_applies_at_once(fsync: HeldFsync) -> None:
    from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource

    with Broker() as broker:
        broker.create_topic("t")
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        entry = ConfigEntry("flush.messages", "1", incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ConfigResource.Type.TOPIC, "t", incremental_configs=[entry])
        for outcome in admin.incremental_alter_configs([resource]).values():
            outcome.result(60)
        sender = Sender(broker.bootstrap, acks="all")
        sender.send(b"x")
        assert fsync.begun.acquire(timeout=60)
        assert sender.wait(0.2) == 1
        fsync.free.set()
        assert sender.wait() == 0
