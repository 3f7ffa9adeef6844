"""The order in which Java's hash maps go through their keys.

Kafka's assignors give what is left over to whoever comes first, and first is who the JVM's hash
table holds first. The same groups get the same assignments here only in the same order.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import TypeVar
from uuid import UUID

T = TypeVar("T")

_SMALLEST_TABLE = 16
_INT = 0xFFFF_FFFF


@lru_cache(maxsize=65_536)
def string_hash(text: str) -> int:
    """Hash as java.lang.String does."""
    data = text.encode("utf-16-le", "surrogatepass")
    code = 0
    for unit in struct.unpack(f"<{len(data) // 2}H", data):
        code = (31 * code + unit) & _INT
    return code


def uuid_hash(id: UUID) -> int:
    """Hash as Kafka's Uuid does."""
    both = (id.int >> 64) ^ (id.int & 0xFFFF_FFFF_FFFF_FFFF)
    return ((both >> 32) ^ both) & _INT


def hash_order(keys: Iterable[T], code: Callable[[T], int]) -> list[T]:
    """Return the keys in the order of a java.util.HashMap that they were put into one by one.

    Keys that share a place in the table stay in the order in which they are given.
    """
    found = list(keys)
    if len(found) < 2:
        return found
    size = _SMALLEST_TABLE
    while len(found) > size * 3 // 4:
        size *= 2

    mask = size - 1
    places = [(hashed ^ (hashed >> 16)) & mask for hashed in map(code, found)]
    return [found[number] for number in sorted(range(len(found)), key=places.__getitem__)]
