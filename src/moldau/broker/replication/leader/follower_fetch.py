"""Fetch responses to followers, each parked until its session has something to send."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from moldau.broker.net.responses import LongPoll
from moldau.wire.fetch.codec import FetchCodec
from moldau.wire.fetch.request import FetchRequest
from moldau.wire.fetch.response import FetchedPartition
from moldau.wire.primitives import TopicKey

if TYPE_CHECKING:
    from moldau.broker.net.connection import Connection
    from moldau.broker.replication.leader.follower_session import FollowerSession
    from moldau.broker.server import Broker


class FollowerFetchResponse(LongPoll):
    """The response to one Fetch request of a follower."""

    __slots__ = ("_broker", "_codec", "_correlation_id", "_session", "_timer", "request")

    def __init__(
        self,
        broker: Broker,
        connection: Connection,
        codec: FetchCodec,
        correlation_id: int,
        request: FetchRequest,
        session: FollowerSession,
    ) -> None:
        super().__init__(connection)
        self.request = request
        self._broker = broker
        self._codec = codec
        self._correlation_id = correlation_id
        self._session = session
        self._timer: asyncio.TimerHandle | None = None

    def park(self) -> None:
        self._timer = self._broker.loop.call_later(self.request.max_wait_ms / 1000, self.complete)

    def complete(self) -> None:
        """Answer with what there is: time is up."""
        self._session.try_answer(now=True)

    def release(self) -> None:
        """Answer with nothing: a later request will be answered instead."""
        self._session.unpark()
        self.answer([])

    def abandon(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._session.abandoned(self)

    def answer(self, topics: list[tuple[TopicKey, list[FetchedPartition]]]) -> None:
        parts = self._codec.encode_response(self._correlation_id, 0, self._session.id, topics)
        if self._timer is None:
            # Its place is taken and its turn has not come yet.
            self.parts = parts
        else:
            self._timer.cancel()
            self._timer = None
            self.connection.respond(self, parts)
