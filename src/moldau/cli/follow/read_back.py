"""Reading back: the topic itself tells what a dead collector delivered.

Every record of a collector has the header `moldau.position` with `ID:START:LENGTH:CRC`: the id that
its state file gave to the content of a file, the bytes of the line, and their CRC-32 in hex digits.
"""

from __future__ import annotations

import re
import time
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, cast

from moldau.cli.clients import REQUEST_TIMEOUT_S, failure_of, failures
from moldau.cli.follow.source import Arrived

if TYPE_CHECKING:
    from confluent_kafka import Consumer, Message

FILE_HEADER = "moldau.file"
POSITION_HEADER = "moldau.position"
POSITION = re.compile(rb"([0-9a-f]{1,32}):(\d{1,19}):(\d{1,19}):([0-9a-f]{8})")

# The last request of a process that was killed may still be on its way to the broker, or in it.
SETTLE_S = 1.0
POLL_S = 0.1

EARLIEST, LATEST = -2, -1


def position_header(id: str, start: int, length: int, checksum: int) -> bytes:
    return f"{id}:{start}:{length}:{checksum:08x}".encode()


def parse_position(value: bytes) -> tuple[str, int, int, int] | None:
    """(id, start, length, checksum) of a header; None for anything that is none."""
    found = POSITION.fullmatch(value)
    if found is None:
        return None
    id, start, length, checksum = found.groups()
    return id.decode(), int(start), int(length), int(checksum, 16)


def partition_ends(consumer: Consumer, topic: str, partitions: Collection[int]) -> dict[int, int]:
    """Return the end offset of every partition."""
    return _look_up(consumer, topic, partitions, LATEST)


def read_back(
    consumer: Consumer, topic: str, offsets: Mapping[int, int], ids: Collection[str]
) -> dict[str, Arrived]:
    """Return the lines of these files that lie in the topic at or behind the offsets, by file.

    Reads to the end, which the consumer has to tell of, and until no such line has come for a
    while.
    """
    from confluent_kafka import KafkaError, TopicPartition

    first = _look_up(consumer, topic, offsets, EARLIEST)
    ends = _look_up(consumer, topic, offsets, LATEST)
    # An offset beyond the end is of a topic of this name that was deleted since.
    starts = {
        p: max(offset, first[p]) if offset <= ends[p] else first[p] for p, offset in offsets.items()
    }
    consumer.assign([TopicPartition(topic, p, offset) for p, offset in starts.items()])
    found: dict[str, Arrived] = {id: {} for id in ids}
    left = {p for p, start in starts.items() if start < ends[p]}
    last_own = time.monotonic()
    while left or time.monotonic() < last_own + SETTLE_S:
        message = consumer.poll(POLL_S)
        if message is None:
            continue
        error = message.error()
        if error is not None and error.code() != KafkaError._PARTITION_EOF:
            raise failure_of(error, topic)
        position = _position_of(message) if error is None else None
        if position is not None and position[0] in found:
            id, start, length, checksum = position
            found[id][start] = (length, checksum)
            last_own = time.monotonic()
        partition, offset = message.partition(), message.offset()
        assert partition is not None
        assert offset is not None
        # The last offsets may be those of markers or of aborted records, which do not come.
        if error is not None or offset + 1 >= ends[partition]:
            left.discard(partition)
    consumer.unassign()
    return found


def _position_of(message: Message) -> tuple[str, int, int, int] | None:
    headers = cast("list[tuple[str, bytes | None]]", message.headers() or [])
    for name, value in headers:
        if name == POSITION_HEADER and value is not None:
            return parse_position(value)
    return None


def _look_up(
    consumer: Consumer, topic: str, partitions: Collection[int], which: int
) -> dict[int, int]:
    from confluent_kafka import TopicPartition

    asked = [TopicPartition(topic, partition, which) for partition in partitions]
    if not asked:
        return {}
    with failures():
        found = consumer.offsets_for_times(asked, timeout=REQUEST_TIMEOUT_S)
    for place in found:
        if place.error is not None:
            raise failure_of(place.error, topic)
    return {place.partition: place.offset for place in found}
