"""Retention deletes whole old segments in the background, while clients read and write."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from moldau.testing import Broker
from moldau.testing.waiting import until
from tests.clients.client import NOON_MS, Message, Received, read_all
from tests.clients.confluent import ConfluentClient
from tests.clients.conftest import CLIENTS
from tests.clients.segments import segments, stored_bytes
from tests.clients.topics import alter

HOUR_MS = 3_600_000


def now_ms() -> int:
    return int(time.time() * 1000)


@pytest.fixture
def tidy_broker() -> Iterator[Broker]:
    """A broker that looks for old segments all the time, and keeps what no topic lets go."""
    with Broker({"log.retention.check.interval.ms": 20, "log.retention.ms": -1}) as broker:
        yield broker


@pytest.mark.parametrize("kind", CLIENTS)
def test_retention_bytes_deletes_old_segments_under_a_reader(
    tidy_broker: Broker, kind: str
) -> None:
    """The reader goes on while segments are deleted behind it and a writer goes on writing."""
    tidy_broker.create_topic("t", segment_bytes=50_000, retention_bytes=100_000)
    client = ConfluentClient(tidy_broker.bootstrap)
    messages = [Message(b"%06d" % number + b"x" * 1000) for number in range(1000)]
    client.produce("t", messages[:40])
    with CLIENTS[kind](tidy_broker.bootstrap).reader("t") as reader:
        read: list[Received] = reader.read(1)
        for start in range(40, 1000, 40):
            client.produce("t", messages[start : start + 40])
            read += reader.read(40)
        read += reader.read(1000 - len(read))
    assert [each.offset for each in read] == list(range(1000))
    assert [each.message for each in read] == messages

    def tidied() -> bool:
        return stored_bytes(tidy_broker.data_dir / "t-0") < 150_000

    until(tidied, "old segments are gone")
    first, end = client.watermarks("t")
    assert end == 1000
    assert 800 < first < 1000
    with client.reader("t") as reader:
        again = reader.read(end - first)
    assert again[0].offset == first
    assert [each.message for each in again] == messages[first:]


def test_retention_ms_deletes_what_is_old_and_keeps_what_is_not(tidy_broker: Broker) -> None:
    tidy_broker.create_topic("t", segment_bytes=10_000)
    client = ConfluentClient(tidy_broker.bootstrap)
    old = [Message(b"x" * 3000, timestamp_ms=now_ms() - 11 * HOUR_MS) for _ in range(9)]
    new = [Message(b"y" * 3000, timestamp_ms=now_ms() - 9 * HOUR_MS) for _ in range(9)]
    for message in old + new:
        client.produce("t", [message])
    alter(tidy_broker, "t", {"retention.ms": str(10 * HOUR_MS)})
    until(lambda: client.watermarks("t") == (9, 18), "the old ones are gone")
    assert [each.message for each in read_all(client, "t", 9)] == new
    assert [int(file.stem) for file in segments(tidy_broker, "t")] == [9, 12, 15]


def test_offsets_go_on_when_everything_has_expired(tidy_broker: Broker) -> None:
    tidy_broker.create_topic("t", retention_ms=HOUR_MS)
    client = ConfluentClient(tidy_broker.bootstrap)
    client.produce("t", [Message(b"x", timestamp_ms=NOON_MS)] * 10)
    until(lambda: client.watermarks("t") == (10, 10), "all are gone")
    assert client.produce("t", [Message(b"new", timestamp_ms=now_ms())]) == [10]
    (read,) = read_all(client, "t", 1)
    assert (read.offset, read.message.value) == (10, b"new")


def test_a_smaller_retention_of_a_live_topic_takes_effect(tidy_broker: Broker) -> None:
    tidy_broker.create_topic("t", segment_bytes=10_000)
    client = ConfluentClient(tidy_broker.bootstrap)
    for _ in range(9):
        client.produce("t", [Message(b"x" * 3000, timestamp_ms=now_ms())])
    assert client.watermarks("t") == (0, 9)
    alter(tidy_broker, "t", {"retention.bytes": "9000"})
    until(lambda: client.watermarks("t") == (6, 9), "only the last segment is left")


def test_segment_ms_rolls_a_segment_that_is_old(tidy_broker: Broker) -> None:
    tidy_broker.create_topic("t", segment_ms=1)
    client = ConfluentClient(tidy_broker.bootstrap)
    for offset in range(3):
        client.produce("t", [Message(b"x", timestamp_ms=NOON_MS + offset)])
        newest = tidy_broker.data_dir / "t-0" / f"{offset + 1:020}.log"
        until(newest.exists, f"a segment after offset {offset}")
    assert [each.offset for each in read_all(client, "t", 3)] == [0, 1, 2]
