"""Damage inside data that was on disk: that partition says so, the others serve."""

from __future__ import annotations

import io
import shutil
import struct
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

from moldau.broker.upkeep.start_progress import StartProgress
from moldau.testing import Broker
from moldau.wire.apis import Api
from tests.broker.wire_client import Client

WITHIN_S = 60.0


def fill(broker: Broker, topic: str, count: int = 30) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "batch.num.messages": 1})
    for number in range(count):
        producer.produce(topic, b"%d " % number + b"x" * 500, partition=0)
    assert producer.flush(WITHIN_S) == 0


def read(broker: Broker, topic: str, offset: int, is_over: Callable[[], bool]) -> int:
    """Reads from an offset until something is so; how many messages came."""
    consumer = Consumer(
        {"bootstrap.servers": broker.bootstrap, "group.id": "-", "enable.auto.commit": False}
    )
    count = 0
    try:
        consumer.assign([TopicPartition(topic, 0, offset)])
        deadline = time.monotonic() + WITHIN_S
        while not is_over():
            count += len(consumer.consume(100, 0.05))
            assert time.monotonic() < deadline
    finally:
        consumer.close()
    return count


def break_length(path: Path, number: int) -> int:
    """Destroys the length of a batch; where that lies."""
    content = bytearray(path.read_bytes())
    position = 0
    for _ in range(number):
        position += 12 + struct.unpack_from(">i", content, position + 8)[0]
    struct.pack_into(">i", content, position + 8, 2**30)
    path.write_bytes(content)
    return position


def test_a_broken_batch_met_by_a_reader_takes_the_partition_offline_loudly(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    broker = Broker(data_dir=tmp_path)
    with broker:
        for topic in ("bad", "good"):
            broker.create_topic(topic, index_interval_bytes=1_000_000)
            fill(broker, topic)
    path = tmp_path / "bad-0" / "00000000000000000000.log"
    position = break_length(path, 10)
    with broker:
        wanted = f"{path}: corrupt at position {position}"

        def is_said() -> bool:
            said = [line for line in caplog.records if line.levelname == "CRITICAL"]
            return any(wanted in line.getMessage() for line in said)

        assert read(broker, "bad", 20, is_said) == 0
        errors: list[int] = []

        def delivered(error: KafkaError | None, _: Message) -> None:
            errors.extend([error.code()] if error is not None else [])

        producer = Producer({"bootstrap.servers": broker.bootstrap, "retries": 0})
        producer.produce("bad", b"x", on_delivery=delivered)
        producer.produce("good", b"x", on_delivery=delivered)
        assert producer.flush(WITHIN_S) == 0
        assert errors == [KafkaError.KAFKA_STORAGE_ERROR]


def test_a_partition_that_lost_its_metadata_file_keeps_its_messages(tmp_path: Path) -> None:
    broker = Broker(data_dir=tmp_path)
    with broker:
        broker.create_topic("t")
        fill(broker, "t")
    metadata = tmp_path / "t-0" / "partition.metadata"
    before = metadata.read_bytes()
    metadata.write_bytes(b"")
    with broker:
        consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "-"})
        ends = consumer.get_watermark_offsets(TopicPartition("t", 0), timeout=WITHIN_S)
        consumer.close()
        assert ends == (0, 30)
    assert metadata.read_bytes() == before


def test_the_log_of_a_deleted_topic_that_a_power_failure_brings_back_is_not_that_of_a_new_one(
    tmp_path: Path,
) -> None:
    data = tmp_path / "data"
    broker = Broker(data_dir=data)
    with broker:
        broker.create_topic("t")
        fill(broker, "t")
        shutil.copytree(data / "t-0", tmp_path / "t-0")
        with Client(broker) as client:
            client.ask(Api.DELETE_TOPICS, topics=[{"name": "t"}])
        broker.create_topic("t")
    # Neither that its folder was renamed was forced to disk, nor whose it was.
    shutil.rmtree(data / "t-0")
    shutil.move(tmp_path / "t-0", data / "t-0")
    (data / "t-0" / "partition.metadata").write_bytes(b"")
    (data / ".kafka_cleanshutdown").unlink()
    with broker:
        consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "-"})
        ends = consumer.get_watermark_offsets(TopicPartition("t", 0), timeout=WITHIN_S)
        consumer.close()
        assert ends == (0, 0)
        assert len(list(data.glob("t-0.*-stray"))) == 1
        fill(broker, "t", 3)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_long_start_draws_a_bar_on_a_terminal_and_removes_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = [100.0]
    monkeypatch.setattr("moldau.broker.upkeep.start_progress.time.monotonic", lambda: clock[0])
    out = Terminal()
    with StartProgress(out) as progress:
        progress(1, 10, 0)
        assert out.getvalue() == ""
        clock[0] += 1.5
        progress(2.5, 10, 30_000_000)
        assert " 25%  2 of 10 logs, 30 MB checked" in out.getvalue()
    assert out.getvalue().endswith("\r\x1b[K")


def test_a_long_start_without_a_terminal_says_a_line_now_and_then(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    clock = [100.0]
    monkeypatch.setattr("moldau.broker.upkeep.start_progress.time.monotonic", lambda: clock[0])
    caplog.set_level("INFO")
    with StartProgress(io.StringIO()) as progress:
        for _ in range(100):
            clock[0] += 0.1
            progress(5, 10, 0)
    # A broker that other tests share may say something meanwhile.
    said = [each for each in caplog.messages if each.startswith("opening")]
    assert said == ["opening the data folder: 50%, 5 of 10 logs, 0 MB checked"] * 2
