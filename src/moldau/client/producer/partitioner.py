"""Partitioners: choose the partition of a message that names none.

Left alone, librdkafka decides: by murmur2 of the key as Java's client does, at random without a
key. A partitioner of one's own is any function of key, value and the number of partitions.
"""

from __future__ import annotations

from typing import Protocol

_M = 0x5BD1E995
_SEED = 0x9747B28C
_MASK = 0xFFFFFFFF


class Partitioner(Protocol):
    """A function that returns a partition below `partitions`, or None to leave it to librdkafka.

    Key and value are the serialized bytes, so that a partition does not depend on a language.
    """

    def __call__(self, key: bytes | None, value: bytes | None, partitions: int) -> int | None: ...


def murmur2(data: bytes) -> int:
    """Return the 32-bit hash that Java's client uses, unsigned."""
    length = len(data)
    h = (_SEED ^ length) & _MASK
    whole = length - length % 4
    for at in range(0, whole, 4):
        k = int.from_bytes(data[at : at + 4], "little") * _M & _MASK
        k = (k ^ k >> 24) * _M & _MASK
        h = (h * _M & _MASK) ^ k
    if length > whole:
        h = (h ^ int.from_bytes(data[whole:], "little")) * _M & _MASK
    h = (h ^ h >> 13) * _M & _MASK
    return h ^ h >> 15


def partition_for_key(key: bytes, partitions: int) -> int:
    """Return the partition on which a key lies, as Java's client and librdkafka's
    murmur2 see it."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions
