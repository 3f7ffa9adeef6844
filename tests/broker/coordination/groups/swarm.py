"""Many group members in one process: no threads, no client library, one small task each."""

from __future__ import annotations

import asyncio
import itertools
from struct import Struct
from typing import Any

from moldau.testing import Broker
from moldau.wire.apis import VERSIONS, Api, is_flexible
from moldau.wire.errors import Error
from moldau.wire.headers import request_frame
from moldau.wire.messages import decode_response, encode_request

_SIZE = Struct(">i")


class Line:
    """A connection on which one request is in flight at a time."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._ids = itertools.count(1)

    @classmethod
    async def open(cls, broker: Broker) -> Line:
        return cls(*await asyncio.open_connection(broker.host, broker.port))

    async def ask(self, api: Api, **values: Any) -> Any:
        version = VERSIONS[api].last
        body = encode_request(api, version, values)
        self._writer.write(request_frame(api, version, next(self._ids), "swarm", body))
        (size,) = _SIZE.unpack(await self._reader.readexactly(4))
        frame = await self._reader.readexactly(size)
        return decode_response(
            api, version, memoryview(frame)[5 if is_flexible(api, version) else 4 :]
        )

    def close(self) -> None:
        self._writer.close()


class Member:
    """A member that does as it is told: joins again whenever the coordinator says so."""

    def __init__(self, line: Line, group: str) -> None:
        self.line = line
        self.group = group
        self.id = ""
        self.generation = -1
        self.size = 0
        self.assignment = b""
        self.joins = 0

    async def join(self) -> None:
        """Joins until it has an assignment."""
        while True:
            self.joins += 1
            joined = await self.line.ask(
                Api.JOIN_GROUP,
                group_id=self.group,
                session_timeout=30_000,
                rebalance_timeout=30_000,
                member_id=self.id,
                protocol_type="consumer",
                protocols=[{"name": "range", "metadata": b""}],
            )
            self.id = joined.member_id
            if joined.error_code == Error.MEMBER_ID_REQUIRED:
                continue
            assert joined.error_code == 0, joined
            self.generation = joined.generation_id
            members = [member.member_id for member in joined.members]
            shares = [
                {"member_id": member, "assignment": str(place).encode()}
                for place, member in enumerate(members)
            ]
            synced = await self.line.ask(
                Api.SYNC_GROUP,
                group_id=self.group,
                generation_id=self.generation,
                member_id=self.id,
                assignments=shares,
                protocol_type=joined.protocol_type,
                protocol_name=joined.protocol_name,
            )
            if synced.error_code == 0:
                self.assignment = synced.assignment
                return
            assert synced.error_code == Error.REBALANCE_IN_PROGRESS, synced

    async def heartbeat(self) -> bool:
        """Whether the member may go on as it is."""
        answer = await self.line.ask(
            Api.HEARTBEAT,
            group_id=self.group,
            generation_id=self.generation,
            member_id=self.id,
        )
        assert answer.error_code in (0, Error.REBALANCE_IN_PROGRESS), answer
        return bool(answer.error_code == 0)

    async def commit(self, topic_id: Any, offset: int) -> int:
        partition = {"partition_index": 0, "committed_offset": offset, "committed_metadata": ""}
        answer = await self.line.ask(
            Api.OFFSET_COMMIT,
            group_id=self.group,
            generation_id_or_member_epoch=self.generation,
            member_id=self.id,
            topics=[{"topic_id": topic_id, "partitions": [partition]}],
        )
        return int(answer.topics[0].partitions[0].error_code)
