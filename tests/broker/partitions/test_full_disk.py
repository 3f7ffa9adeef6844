"""A disk that is really full, and then is not."""

from __future__ import annotations

import errno
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Message, Producer
from confluent_kafka import TopicPartition as Place

from moldau.log.inspections.inspection import check_log
from moldau.testing import Broker
from moldau.wire.errors import Error
from tests.broker.wire_client import Client, make_batch

WITHIN_S = 60.0
DISK_MIB = 16
MESSAGE = b"m" * 60_000


def _run(*words: str) -> str | None:
    """What a command complains about; None if it worked."""
    if shutil.which(words[0]) is None:
        return f"there is no {words[0]}"
    ended = subprocess.run(words, capture_output=True, text=True, timeout=WITHIN_S, check=False)
    return None if ended.returncode == 0 else ended.stderr.strip() or f"{words[0]} failed"


@pytest.fixture(params=["tmpfs", "ext4"])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """A file system of its own, with half of it taken by `ballast`."""
    mounted = tmp_path / "disk"
    mounted.mkdir()
    if request.param == "tmpfs":
        refused = _run("mount", "-t", "tmpfs", "-o", f"size={DISK_MIB}m", "none", str(mounted))
    else:
        image = tmp_path / "image"
        with image.open("wb") as file:
            file.truncate(DISK_MIB << 20)
        refused = _run("mkfs.ext4", "-q", "-F", str(image))
        refused = refused or _run("mount", "-o", "loop", str(image), str(mounted))
    if refused is not None:
        pytest.skip(f"cannot mount a small {request.param}: {refused}")
    try:
        (mounted / "ballast").write_bytes(b"b" * (DISK_MIB << 19))
        yield mounted
    finally:
        # Lazily: what pytest keeps of log lines may still hold a file open.
        assert _run("umount", "-l", str(mounted)) is None


class Sender:
    """Sends one message at a time and does not try again."""

    def __init__(self, bootstrap: str) -> None:
        self._producer = Producer({"bootstrap.servers": bootstrap, "retries": 0, "acks": "all"})
        self.delivered = 0
        self.errors: list[int] = []

    def send(self, topic: str, content: bytes = MESSAGE) -> None:
        self._producer.produce(topic, content, partition=0, on_delivery=self._done)
        assert self._producer.flush(WITHIN_S) == 0

    def _done(self, error: KafkaError | None, _: Message) -> None:
        if error is None:
            self.delivered += 1
        else:
            self.errors.append(error.code())


def read_all(bootstrap: str, topic: str) -> list[bytes | None]:
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "-", "enable.auto.commit": False}
    )
    place = Place(topic, 0, OFFSET_BEGINNING)
    values: list[bytes | None] = []
    try:
        end = consumer.get_watermark_offsets(place, timeout=WITHIN_S)[1]
        consumer.assign([place])
        deadline = time.monotonic() + WITHIN_S
        while len(values) < end:
            for message in consumer.consume(100, 0.2):
                assert message.error() is None
                values.append(message.value())
            assert time.monotonic() < deadline
    finally:
        consumer.close()
    return values


@pytest.mark.parametrize("policy", [{}, {"flush_messages": 1}], ids=["no policy", "flush"])
def test_a_full_disk_refuses_writes_serves_reads_and_recovers_without_a_restart(
    disk: Path, policy: dict[str, int]
) -> None:
    with Broker(data_dir=disk / "data") as broker:
        broker.create_topic("t", segment_bytes=2_000_000, **policy)
        sender = Sender(broker.bootstrap)
        while not sender.errors:
            sender.send("t")
            assert sender.delivered < 1000, "the disk does not get full"
        assert sender.errors == [KafkaError.KAFKA_STORAGE_ERROR]
        taken = sender.delivered
        assert taken > 10
        assert read_all(broker.bootstrap, "t") == [MESSAGE] * taken
        for _ in range(3):
            sender.send("t")
        assert set(sender.errors) == {KafkaError.KAFKA_STORAGE_ERROR}
        assert read_all(broker.bootstrap, "t") == [MESSAGE] * taken

        (disk / "ballast").unlink()
        for number in range(20):
            sender.send("t", b"after %d" % number)
        assert sender.delivered == taken + 20
        expected = [MESSAGE] * taken + [b"after %d" % number for number in range(20)]
        assert read_all(broker.bootstrap, "t") == expected
        assert check_log(str(disk / "data" / "t-0")).damage == []
    assert check_log(str(disk / "data" / "t-0")).damage == []
    with Broker(data_dir=disk / "data") as broker:
        assert read_all(broker.bootstrap, "t") == expected


def test_a_disk_that_fills_at_a_segments_end_refuses_no_more_than_it_must(disk: Path) -> None:
    """A new segment needs new files, and those may be what there is no room for."""
    with Broker(data_dir=disk / "data") as broker:
        broker.create_topic("t", segment_bytes=100_000, flush_messages=1)
        sender = Sender(broker.bootstrap)
        while not sender.errors:
            sender.send("t")
        taken = sender.delivered
        assert read_all(broker.bootstrap, "t") == [MESSAGE] * taken
        (disk / "ballast").unlink()
        sender.send("t")
        assert sender.delivered == taken + 1
        assert read_all(broker.bootstrap, "t") == [MESSAGE] * (taken + 1)


def fill(file: Path) -> None:
    """Takes all the room that is left."""
    with file.open("wb", buffering=0) as filler:
        try:
            while filler.write(bytes(4096)):
                pass
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise


def test_what_follows_a_first_batch_that_found_no_room_waits_for_it(disk: Path) -> None:
    """The disk has room again when the second batch of an idempotent producer arrives."""

    def batch(sequence: int) -> bytearray:
        value = b"%d" % sequence + MESSAGE
        return make_batch(value, producer_id=7, producer_epoch=0, base_sequence=sequence)

    with Broker(data_dir=disk / "data") as broker, Client(broker) as client:
        broker.create_topic("t")
        fill(disk / "filler")
        assert client.produce("t", batch(0)).error_code == Error.KAFKA_STORAGE_ERROR
        (disk / "filler").unlink()
        (disk / "ballast").unlink()
        blocked = client.produce("t", batch(1))
        assert blocked.error_code == Error.KAFKA_STORAGE_ERROR
        for sequence in range(3):
            assert client.produce("t", batch(sequence)).base_offset == sequence
        assert client.values("t") == [b"%d" % sequence + MESSAGE for sequence in range(3)]
