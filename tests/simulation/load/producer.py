"""Producers: idempotent ones that send again until they know, and plain ones that send once."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from moldau.peer.aio import AsyncConnection
from moldau.peer.errors import PeerError
from moldau.records.record import Record, build_batch
from moldau.wire.apis import Api
from moldau.wire.errors import Error
from tests.simulation.checks.history import History, Violation, Written
from tests.simulation.core.world import World
from tests.simulation.load.talker import BACKOFF_S, TIMEOUT_S, Failed, Leader, Talker

_MOST_IN_FLIGHT = 5
# Refused before anything was written, and never to be written later.
_REFUSED = frozenset((Error.NOT_ENOUGH_REPLICAS,))
_LOST_STATE = frozenset(
    (Error.OUT_OF_ORDER_SEQUENCE_NUMBER, Error.UNKNOWN_PRODUCER_ID, Error.INVALID_PRODUCER_EPOCH)
)


@dataclass(eq=False)
class _Batch:
    """A batch that is under way: one record or a few."""

    writes: list[Written]
    sequence: int
    data: bytes


class Producer(Talker):
    """Sends to one partition for as long as it is told to. See `Idempotent`."""

    def __init__(
        self,
        world: World,
        history: History,
        name: str,
        topic: str,
        partition: int,
        acks: int,
        every_s: float,
    ) -> None:
        super().__init__(world, name)
        self._history = history
        self._topic = topic
        self._partition = partition
        self._acks = acks
        self._every_s = every_s
        self._number = 0
        # Values are at least so long.
        self.width = 0
        self.is_done = False

    async def run(self) -> None:
        """Send each record once, and never again."""
        leader: Leader | None = None
        while not self.is_stopping:
            if leader is None:
                leader = await self.find_leader(self._topic, self._partition)
            try:
                if await self.write(leader) is not Error.NONE:
                    leader = None
            except Failed:
                leader = None
                await self.pause(BACKOFF_S)
            await self.pause(self._every_s)
        self.is_done = True

    async def write(self, leader: Leader) -> Error:
        """Send one record; Failed if nobody knows what became of it."""
        (write,) = writes = self._next_writes(leader, 1)
        answer = await self._produce(leader, self._encode(writes))
        if answer is None:
            return Error.NONE
        code = Error(answer.error_code)
        if code is Error.NONE:
            self._history.acknowledged(write, int(answer.base_offset))
        else:
            self._history.count(f"{code.name} for a producer")
            write.was_refused = code in _REFUSED
        return code

    def _next_writes(self, leader: Leader, count: int) -> list[Written]:
        found = []
        for _ in range(count):
            self._number += 1
            write = Written(
                self.name,
                self._number,
                self._topic,
                (leader.topic_id, self._partition),
                f"{self.name}:{self._number}".encode().ljust(self.width, b"."),
                self._acks,
                isinstance(self, Idempotent),
                self.loop.now_s,
            )
            self._history.writes.append(write)
            found.append(write)
        return found

    def _encode(self, writes: list[Written], **more: Any) -> bytes:
        stamp = int(1_767_225_600_000 + self.loop.now_s * 1000)
        records = [Record(place, stamp, None, write.value) for place, write in enumerate(writes)]
        return bytes(build_batch(records, **more))

    async def _produce(self, leader: Leader, data: bytes) -> Any:
        connection = await self.to(leader.broker)
        return await self._await(connection, self._send(connection, leader.topic_id, data))

    def _send(self, connection: AsyncConnection, topic_id: UUID, data: bytes) -> Any:
        values = {
            "transactional_id": None,
            "acks": self._acks,
            "timeout": int(TIMEOUT_S * 1000),
            "topic_data": [
                {
                    "topic_id": topic_id,
                    "partition_data": [{"index": self._partition, "records": data}],
                }
            ],
        }
        dialogue = connection._dialogue
        asked, frame = dialogue.ask(Api.PRODUCE, values)
        if not self._acks:
            if not connection.is_open or connection._transport is None:
                raise Failed("closed")
            connection._transport.write(frame)
            return None
        try:
            answer = connection._exchange(asked, frame, dialogue.answer)
        except PeerError as problem:
            raise Failed(str(problem)) from None
        # Nobody waits for those after the first that fails.
        answer.add_done_callback(lambda done: done.cancelled() or done.exception())
        return answer

    async def _await(self, connection: AsyncConnection, answer: Any) -> Any:
        if answer is None:
            return None
        try:
            async with asyncio.timeout(TIMEOUT_S + 1):
                response = await answer
        except TimeoutError:
            connection.close()
            raise Failed("timed out") from None
        except PeerError as problem:
            raise Failed(str(problem)) from None
        return response.responses[0].partition_responses[0]


class Idempotent(Producer):
    """Keeps up to five batches in flight, and sends all that are open again, in order, when one
    fails: under the same numbers, until each is acknowledged.
    """

    async def run(self) -> None:
        window: deque[_Batch] = deque()
        producer_id, sequence = await self.begin()
        leader = await self.find_leader(self._topic, self._partition)
        while not self.is_stopping or window:
            while len(window) < 1 + self.dice.randrange(_MOST_IN_FLIGHT) and not self.is_stopping:
                writes = self._next_writes(leader, 1 + self.dice.randrange(3))
                data = self._encode(
                    writes, producer_id=producer_id, producer_epoch=0, base_sequence=sequence
                )
                window.append(_Batch(writes, sequence, data))
                sequence += len(writes)
            try:
                problem = await self._send_window(leader, window)
            except Failed:
                problem = Error.NETWORK_EXCEPTION
            if problem is not Error.NONE:
                self._history.count(f"{problem.name} for a producer")
                await self.pause(BACKOFF_S)
                found = await self.find_leader(self._topic, self._partition)
                if found.topic_id != leader.topic_id or problem in _LOST_STATE:
                    if found.topic_id == leader.topic_id and self._acks == -1:
                        raise Violation(
                            f"{self.name} was told {problem.name} for its next number, "
                            f"{window[0].sequence}"
                        )
                    # Another topic, or one that forgot: what is open stays unknown.
                    window.clear()
                    producer_id, sequence = await self.begin()
                leader = found
            await self.pause(self._every_s)
        self.is_done = True

    async def write_once(self, leader: Leader, producer_id: int, sequence: int) -> Error:
        """Send one record under this number, once; Failed if nobody knows what became of it."""
        writes = self._next_writes(leader, 1)
        data = self._encode(
            writes, producer_id=producer_id, producer_epoch=0, base_sequence=sequence
        )
        return Error((await self._produce(leader, data)).error_code)

    async def begin(self) -> tuple[int, int]:
        """Get a producer id, and the first number under it."""
        while True:
            try:
                answer = await self.ask(
                    self.any_broker(),
                    Api.INIT_PRODUCER_ID,
                    transactional_id=None,
                    transaction_timeout=60_000,
                    producer_id=-1,
                    producer_epoch=-1,
                )
                if answer.error_code == Error.NONE:
                    return int(answer.producer_id), 0
            except Failed:
                pass
            await self.pause(BACKOFF_S)

    async def _send_window(self, leader: Leader, window: deque[_Batch]) -> Error:
        """Send all that is open and hear about it; the first problem, if it is the oldest's."""
        connection = await self.to(leader.broker)
        answers = [self._send(connection, leader.topic_id, batch.data) for batch in window]
        problem = Error.NONE
        for answer in answers:
            result = await self._await(connection, answer)
            if problem is not Error.NONE:
                continue
            code = Error(result.error_code)
            if code in (Error.NONE, Error.DUPLICATE_SEQUENCE_NUMBER):
                batch = window.popleft()
                base = int(result.base_offset) if code is Error.NONE else -1
                for place, write in enumerate(batch.writes):
                    self._history.acknowledged(write, base + place if base >= 0 else -1)
            else:
                problem = code
        return problem
