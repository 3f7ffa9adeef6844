"""Jobs: messages of a queue, which want to be settled one by one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from enum import Enum
from typing import Any

from moldau.client.errors import ClientError, DecodeError
from moldau.client.message import ConsumedMessage


class Outcome(Enum):
    """What became of a job."""

    DONE = "done"
    RETRY = "retry"
    REJECTED = "rejected"


class Job:
    """A message that was taken from a queue. It is nobody else's until its lock runs out.

    `done` finishes it. `retry` gives it back at once: it is delivered again, as long as it has
    tries left. `reject` gives it up: it becomes a dead letter if the group has a topic for those.
    The last word counts until the queue passes it on, with the next messages that it takes.

    Of a renewable queue, `renew` begins the lock anew, at once and from any thread.
    """

    __slots__ = ("_is_sent", "_message", "_renew", "deliveries", "outcome", "problem")

    def __init__(
        self, message: ConsumedMessage, deliveries: int, renew: Callable[[Job], None]
    ) -> None:
        self._message = message
        self._renew = renew
        # How often it was delivered, this time included.
        self.deliveries = deliveries
        self.outcome: Outcome | None = None
        # Why the deserializers could make nothing of it, if they could not.
        self.problem: DecodeError | None = None
        self._is_sent = False

    def done(self) -> None:
        """The work is done."""
        self._say(Outcome.DONE)

    def retry(self) -> None:
        """Somebody is to try again."""
        self._say(Outcome.RETRY)

    def reject(self) -> None:
        """Nobody can do this."""
        self._say(Outcome.REJECTED)

    def renew(self) -> None:
        """The work takes longer: begin the lock anew. ClientError if it is lost already."""
        self._check_unsettled()
        self._renew(self)

    def _say(self, outcome: Outcome) -> None:
        self._check_unsettled()
        self.outcome = outcome

    def _check_unsettled(self) -> None:
        if self._is_sent:
            raise ClientError(f"{self!r} is already settled: {self.outcome}")

    def settle(self, otherwise: Outcome) -> Outcome:
        """Return what became of it, which cannot be changed any more. For the queue."""
        if self.outcome is None:
            self.outcome = otherwise
        self._is_sent = True
        return self.outcome

    @property
    def value(self) -> Any:
        return self._message.value

    @property
    def key(self) -> Any:
        return self._message.key

    @property
    def topic(self) -> str:
        return self._message.topic

    @property
    def partition(self) -> int:
        return self._message.partition

    @property
    def offset(self) -> int:
        return self._message.offset

    @property
    def timestamp(self) -> int | None:
        return self._message.timestamp

    @property
    def headers(self) -> list[tuple[str, bytes | None]]:
        return self._message.headers

    @property
    def raw(self) -> Any:
        """librdkafka's own message; of a renewable queue, ours, with the same methods."""
        return self._message.raw

    def payload(self) -> bytes | None:
        return self._message.payload()

    def __repr__(self) -> str:
        return f"<job {self.topic} [{self.partition}] at {self.offset}: {self.value!r}>"


class AsyncJob(Job):
    """A message of an `AsyncQueue`."""

    __slots__ = ()

    async def renew(self) -> None:  # type: ignore[override]
        """The work takes longer: begin the lock anew. ClientError if it is lost already."""
        await asyncio.to_thread(super().renew)
