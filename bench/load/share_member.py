"""A member of a share group over a bare connection: requests by hand, so that it costs little."""

from __future__ import annotations

from struct import Struct
from typing import Any
from uuid import UUID

from bench.load.consumer_groups import CLIENT_ID, Link
from moldau.bench.errors import BenchFailed
from moldau.wire.apis import Api
from moldau.wire.errors import Error
from moldau.wire.headers import request_frame
from moldau.wire.messages import decode_response, encode_request
from moldau.wire.primitives import count, read_count, read_string, read_uvarint, string

_VERSION = 2
_HEARTBEAT_VERSION = 1
_ACCEPT = 1
_LIMITS = Struct(">iiiiiibb")
_HEAD = Struct(">ih")
_PARTITION = Struct(">ih")
_ACQUIRED = Struct(">qqhx")
_RANGE = Struct(">qqBb")
_PASSING = (
    Error.COORDINATOR_LOAD_IN_PROGRESS,
    Error.COORDINATOR_NOT_AVAILABLE,
    Error.NOT_COORDINATOR,
)
Ranges = list[tuple[int, int]]


class ShareMember:
    """Reads partition 0 of one topic. `held` are the ranges that it has yet to acknowledge."""

    def __init__(self, link: Link, group: str, name: str, topic: str) -> None:
        self.held: Ranges = []
        self._link = link
        self._group = group
        self._name = name
        self._topic = topic
        self._topic_id: UUID | None = None
        self._epoch = 0
        self._who = string(group, True) + string(name, True)

    async def join(self) -> None:
        """Beat until the partition is this member's to read."""
        epoch = 0
        while self._topic_id is None:
            values: dict[str, Any] = {
                "group_id": self._group,
                "member_id": self._name,
                "member_epoch": epoch,
                "subscribed_topic_names": [self._topic],
            }
            told = await self._beat(values)
            code = int(told.error_code)
            if code and code not in _PASSING:
                raise BenchFailed(f"{self._name} was told {told}")
            if not code:
                epoch = int(told.member_epoch)
                if told.assignment is not None:
                    for topic in told.assignment.topic_partitions:
                        self._topic_id = topic.topic_id

    async def leave(self) -> None:
        values = {"group_id": self._group, "member_id": self._name, "member_epoch": -1}
        await self._beat({**values, "subscribed_topic_names": None})
        self._link.close()

    async def fetch(self, *, most: int, wait_ms: int = 500) -> memoryview:
        """Accept what is held and ask for more; return the records, and hold what was acquired."""
        body = bytearray(self._who)
        body += _LIMITS.pack(self._epoch, wait_ms, 1, 1 << 24, most, most, 0, 0)
        body += self._said(self.held)
        body += b"\x01\x00"
        answer = await self._ask(Api.SHARE_FETCH, body)
        position = self._read_head(answer)
        # One topic, one partition, or nothing at all.
        topics, position = read_count(answer, position, True)
        self.held = []
        if not topics:
            return memoryview(b"")
        _, position = read_count(answer, position + 16, True)
        _, error = _PARTITION.unpack_from(answer, position)
        _, position = read_string(answer, position + _PARTITION.size, True)
        said = int.from_bytes(answer[position : position + 2], "big")
        _, position = read_string(answer, position + 2, True)
        if error or said:
            raise BenchFailed(f"{self._name}: a ShareFetch was answered with {error} and {said}")
        size, position = read_uvarint(answer, position + 8 + 1)
        end = position + max(size - 1, 0)
        ranges, at = read_count(answer, end, True)
        for n in range(ranges):
            first, last, _ = _ACQUIRED.unpack_from(answer, at + n * _ACQUIRED.size)
            self.held.append((first, last))
        return answer[position:end]

    async def acknowledge(self, offset: int) -> None:
        """Accept one message."""
        body = bytearray(self._who)
        body += self._epoch.to_bytes(4, "big") + b"\x00" + self._said([(offset, offset)])
        body += b"\x00"
        answer = await self._ask(Api.SHARE_ACKNOWLEDGE, body)
        position = self._read_head(answer)
        _, position = read_count(answer, position, True)
        _, position = read_count(answer, position + 16, True)
        _, error = _PARTITION.unpack_from(answer, position)
        if error:
            raise BenchFailed(f"{self._name}: a ShareAcknowledge was answered with {error}")

    def _said(self, ranges: Ranges) -> bytes:
        assert self._topic_id is not None
        out = bytearray(b"\x02" + self._topic_id.bytes + b"\x02" + bytes(4))
        out += count(len(ranges), True)
        for first, last in ranges:
            out += _RANGE.pack(first, last, 2, _ACCEPT) + b"\x00"
        return bytes(out + b"\x00\x00")

    async def _beat(self, values: dict[str, Any]) -> Any:
        api, version = Api.SHARE_GROUP_HEARTBEAT, _HEARTBEAT_VERSION
        frame = request_frame(api, version, 1, CLIENT_ID, encode_request(api, version, values))
        (answer,) = await self._link.ask(frame)
        return decode_response(api, version, memoryview(answer)[4 + 1 :])

    async def _ask(self, api: Api, body: bytearray) -> memoryview:
        (answer,) = await self._link.ask(request_frame(api, _VERSION, 1, CLIENT_ID, bytes(body)))
        self._epoch += 1
        return memoryview(answer)[4 + 1 :]

    def _read_head(self, answer: memoryview) -> int:
        """Return the position after the time to wait, the error and the length of locks."""
        _, error = _HEAD.unpack_from(answer)
        message, position = read_string(answer, _HEAD.size, True)
        if error:
            raise BenchFailed(f"{self._name} was answered with error {error}: {message}")
        return position + 4
