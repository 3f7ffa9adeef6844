"""The embedded protocol: what consumers write into JoinGroup and read from SyncGroup.

In classic groups the bytes are the clients' affair. In a consumer group the coordinator takes the
place of the leader, for members that use the classic protocol beside others that do not.

    subscription    version, topics, user data; since 1 owned partitions, 2 generation, 3 rack
    assignment      version, assigned partitions, user data
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from moldau.broker.coordination.records import Fields, InvalidRecord
from moldau.wire.primitives import INT16, INT32, count, string

_OWNED, _GENERATION, _RACK = 1, 2, 3
_LAST = 3
_NO_DATA = INT32.pack(-1)

Partitions = Mapping[str, frozenset[int]]


class Subscription(NamedTuple):
    """What a consumer wants, and has."""

    version: int
    topics: frozenset[str]
    owned: Partitions
    rack: str | None


def read_subscription(data: bytes) -> Subscription:
    """Read a subscription of any version; InvalidRecord where the bytes are something else."""
    fields = Fields(data)
    version = _version(fields)
    topics = frozenset(fields.text() for _ in range(fields.count()))
    _skip_data(fields)
    owned = _read_partitions(fields) if version >= _OWNED else {}
    if version >= _GENERATION:
        fields.fixed(INT32)
    rack = fields.nullable_text() if version >= _RACK else None
    return Subscription(version, topics, owned, rack)


def read_assignment(data: bytes) -> Partitions:
    """Read an assignment; no bytes are none. InvalidRecord where they are something else."""
    if not data:
        return {}
    fields = Fields(data)
    _version(fields)
    return _read_partitions(fields)


def write_assignment(partitions: Partitions, version: int) -> bytes:
    """Write an assignment in the version of the consumer's subscription."""
    out = bytearray(INT16.pack(version) + count(len(partitions), False))
    for topic in sorted(partitions):
        out += string(topic, False) + count(len(partitions[topic]), False)
        out += b"".join(map(INT32.pack, sorted(partitions[topic])))
    return bytes(out + _NO_DATA)


def _version(fields: Fields) -> int:
    version = fields.fixed(INT16)
    if version < 0:
        raise InvalidRecord(f"a subscription or assignment of version {version}")
    # Later versions only add fields.
    return min(version, _LAST)


def _skip_data(fields: Fields) -> None:
    size = fields.fixed(INT32)
    if size != -1:
        fields.raw(size)


def _read_partitions(fields: Fields) -> Partitions:
    found: dict[str, frozenset[int]] = {}
    for _ in range(fields.count()):
        topic = fields.text()
        partitions = frozenset(fields.fixed(INT32) for _ in range(fields.count()))
        found[topic] = found.get(topic, frozenset()) | partitions
    return found
