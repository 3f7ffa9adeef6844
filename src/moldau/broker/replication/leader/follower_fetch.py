"""Fetch responses to followers, each parked until its session has something to send."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any, Protocol

from moldau.broker.metrics import Metrics
from moldau.broker.net.connection import Connection
from moldau.broker.net.request import Request
from moldau.broker.net.responses import LongPoll
from moldau.wire.fetch.codec import FetchCodec
from moldau.wire.fetch.request import FetchRequest
from moldau.wire.fetch.response import Fetched


class Session(Protocol):
    """The session of the follower that asks."""

    id: int

    def try_answer(self, *, now: bool = False) -> bool:
        """Give the answer if it is worth it, or `now`; whether it did."""
        ...

    def unpark(self) -> None:
        """Let go of the request that waits."""

    def abandoned(self, response: FollowerFetchResponse) -> None:
        """The connection of a request is gone."""


class FollowerFetchResponse(LongPoll):
    """The response to one Fetch request of a follower."""

    __slots__ = ("_codec", "_loop", "_session", "_timer", "_topics", "connection", "wanted")

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        connection: Connection,
        request: Request,
        codec: FetchCodec,
        wanted: FetchRequest,
        session: Session,
    ) -> None:
        super().__init__(request)
        self.connection = connection
        self.wanted = wanted
        self._loop = loop
        self._codec = codec
        self._session = session
        self._topics: Fetched = []
        self._timer: asyncio.TimerHandle | None = None

    def park(self) -> None:
        self._timer = self._loop.call_later(self.wanted.max_wait_ms / 1000, self.complete)

    def complete(self) -> None:
        """Answer with what is there: time is up."""
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

    def answer(self, topics: Fetched) -> None:
        self._topics = topics
        parts = self.connection.exit.leave(self)
        if self._timer is None:
            # Its place is taken and its turn has not come yet.
            self.parts = parts
        else:
            self._timer.cancel()
            self._timer = None
            self.connection.respond(self, parts)

    def encode(self, throttle_ms: int) -> list[Any]:
        return self._codec.encode_response(
            self.request.correlation_id, 0, self._session.id, self._topics, None, throttle_ms
        )

    def errors(self) -> Iterator[int]:
        return (each.error for _, found in self._topics for each in found if each.error)

    def tally(self, metrics: Metrics) -> None:
        for key, found in self._topics:
            for each in found:
                if each.records is not None:
                    metrics.replicated_out[metrics.topic(key)] += each.records.size
                elif each.error:
                    metrics.failed(self.request.api, key, each.error)
