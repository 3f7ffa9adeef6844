"""Outboxes: what is to be asked of one broker, in one request at a time.

While the broker answers, the next questions are collected, so that many of them cost few requests.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Sequence
from typing import Generic, TypeVar

from moldau.broker.coordination.host import Host
from moldau.peer.aio import AsyncConnection
from moldau.peer.peers import Lane

Q = TypeVar("Q")
A = TypeVar("A")

# A broker that is frozen loses what it leads sooner or later: then another has to be asked.
WITHIN_S = 5.0


class Outbox(Generic[Q, A]):
    """Questions to one broker. Event loop only.

    `exchange` asks some of them and returns their answers in the same order. Two with the same
    `key` never travel together: their answers could not be told apart.
    """

    def __init__(
        self,
        host: Host,
        lane: Lane,
        key: Callable[[Q], Hashable],
        exchange: Callable[[AsyncConnection, Sequence[Q]], Awaitable[Sequence[A]]],
    ) -> None:
        self._host = host
        self._lane = lane
        self._key = key
        self._exchange = exchange
        self._waiting: list[tuple[Q, asyncio.Future[A]]] = []
        self._is_sending = False

    def put(self, question: Q) -> asyncio.Future[A]:
        """Return what the broker answers; PeerError or TimeoutError if it does not."""
        answer: asyncio.Future[A] = self._host.loop.create_future()
        self._waiting.append((question, answer))
        if not self._is_sending:
            self._is_sending = True
            self._host.spawn(self._send_all())
        return answer

    async def _send_all(self) -> None:
        try:
            while self._waiting:
                batch: dict[Hashable, tuple[Q, asyncio.Future[A]]] = {}
                later: list[tuple[Q, asyncio.Future[A]]] = []
                for each in self._waiting:
                    key = self._key(each[0])
                    if key in batch:
                        later.append(each)
                    else:
                        batch[key] = each
                self._waiting = later
                await self._send(list(batch.values()))
        finally:
            self._is_sending = False

    async def _send(self, batch: Sequence[tuple[Q, asyncio.Future[A]]]) -> None:
        try:
            async with asyncio.timeout(WITHIN_S):
                connection = await self._lane.connection()
                answers = await self._exchange(connection, [question for question, _ in batch])
        except BaseException as problem:
            for _, waiting in batch:
                if not waiting.done():
                    waiting.set_exception(problem)
                    # Whoever waited may be gone.
                    waiting.exception()
            if not isinstance(problem, Exception):
                raise
            return
        for (_, waiting), answer in zip(batch, answers, strict=True):
            if not waiting.done():
                waiting.set_result(answer)
