"""ShareFetch responses, by hand: their records leave by sendfile, as those of Fetch do."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from struct import Struct
from typing import Any
from uuid import UUID

from moldau.wire.errors import Error
from moldau.wire.primitives import INT16, INT32, Endpoint, count, string, uvarint

_SIZE_AND_CORRELATION = Struct(">ii")
_HEAD = Struct(">ih")
_INDEX_AND_ERROR = Struct(">ih")
_LEADER = Struct(">ii")
_ACQUIRED = Struct(">qqh")


class SharedRecords:
    """The answer for one partition: records, which of them were acquired, and what came of the
    acknowledgements. `records` is anything with a `size`; `leader` a broker id and its epoch."""

    __slots__ = (
        "acquired",
        "error",
        "index",
        "is_acknowledged",
        "leader",
        "message",
        "records",
        "said",
    )

    def __init__(self, index: int, error: int = Error.NONE) -> None:
        self.index = index
        self.error = error
        # What came of the acknowledgements, if there were any.
        self.said: int = Error.NONE
        self.message: str | None = None
        self.is_acknowledged = False
        self.leader: tuple[int, int] | None = None
        self.records: Any = None
        self.acquired: Sequence[tuple[int, int, int]] = ()


def encode_share_fetch(
    correlation_id: int,
    error: int,
    message: str | None,
    lock_ms: int,
    topics: Iterable[tuple[UUID, Sequence[SharedRecords]]],
    endpoints: Sequence[Endpoint] = (),
    throttle_ms: int = 0,
) -> list[Any]:
    """Return the whole response as parts: bytes, and the records objects between them."""
    topics = list(topics)
    data = bytearray(8)
    parts: list[Any] = [data]
    payload = 0
    data += b"\x00" + _HEAD.pack(throttle_ms, error) + string(message, True) + INT32.pack(lock_ms)
    data += count(len(topics), True)
    for topic_id, partitions in topics:
        data += topic_id.bytes + count(len(partitions), True)
        for each in partitions:
            data += _INDEX_AND_ERROR.pack(each.index, each.error) + b"\x00"
            data += INT16.pack(each.said) + string(each.message, True)
            data += _LEADER.pack(*(each.leader or (0, 0))) + b"\x00"
            if each.records is None:
                data += b"\x01"
            else:
                data += uvarint(each.records.size + 1)
                payload += each.records.size
                data = bytearray()
                parts += (each.records, data)
            data += count(len(each.acquired), True)
            for acquired in each.acquired:
                data += _ACQUIRED.pack(*acquired) + b"\x00"
            data += b"\x00"
        data += b"\x00"
    data += count(len(endpoints), True)
    for node_id, host, port, rack in endpoints:
        data += INT32.pack(node_id) + string(host, True) + INT32.pack(port)
        data += string(rack, True) + b"\x00"
    data += b"\x00"
    size = payload - 4 + sum(len(part) for part in parts if part.__class__ is bytearray)
    _SIZE_AND_CORRELATION.pack_into(parts[0], 0, size, correlation_id)
    return parts
