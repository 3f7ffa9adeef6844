"""Damage to segments under running brokers."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

from moldau.testing import Cluster
from moldau.wire.errors import Error
from tests.broker.wire_client import Client

_LENGTH = struct.Struct(">i")
_LENGTH_AT = 8
_PREFIX = 12
_RECORDS_AT = 61


def connect(cluster: Cluster, broker: int) -> Client:
    host, _, port = cluster.address(broker).rpartition(":")
    return Client((host, int(port)))


def batches(segment: Path) -> Iterator[tuple[int, int]]:
    """The position and the first offset of each batch."""
    content = segment.read_bytes()
    position = 0
    while position + _PREFIX <= len(content):
        yield position, int.from_bytes(content[position : position + 8])
        position += _PREFIX + _LENGTH.unpack_from(content, position + _LENGTH_AT)[0]


def damage(segment: Path, position: int) -> bytes:
    """Destroy the length of a batch; what it was."""
    return put(segment, position, _LENGTH.pack(2**30))


def flip(segment: Path, position: int) -> None:
    """Change a byte of a batch's records, which nobody notices who does not read them."""
    at = position + _RECORDS_AT + 10
    with segment.open("r+b") as file:
        file.seek(at)
        (byte,) = file.read(1)
        file.seek(at)
        file.write(bytes([byte ^ 1]))


def put(segment: Path, position: int, length: bytes) -> bytes:
    with segment.open("r+b") as file:
        file.seek(position + _LENGTH_AT)
        before = file.read(len(length))
        file.seek(position + _LENGTH_AT)
        file.write(length)
    return before


def first_segment(cluster: Cluster, broker: int, topic: str, partition: int = 0) -> Path:
    folder = cluster.data_dir(broker) / f"{topic}-{partition}"
    return min(folder.glob("*.log"))


def is_met(client: Client, topic: str, offsets: range, partition: int = 0) -> bool:
    """Whether somebody who reads from these offsets, one after the other, comes upon the damage.

    Those that were read lately are remembered, and not looked for behind it.
    """
    return any(
        client.fetch(topic, offset, partition=partition, partition_max_bytes=1).error_code
        == Error.KAFKA_STORAGE_ERROR
        for offset in offsets
    )


def set_aside(cluster: Cluster, broker: int, topic: str, partition: int = 0) -> list[Path]:
    """What the broker keeps of damaged logs."""
    return list(cluster.data_dir(broker).glob(f"{topic}-{partition}.*-damaged"))
