"""The answers of a connection, which leave in the order of its requests."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from moldau.broker.metrics import Metrics
from moldau.broker.net.outputs.output import Output
from moldau.broker.net.request import Request

# Answers that may be under way before no further request of the connection is read, and the bytes
# that they may take, with the requests that they belong to.
_MOST = 4096
_MOST_HELD = 4 << 20
# Of bytes that are already in the log, only one in this many counts.
_WRITTEN_COUNTS = 4


class Response:
    """The place of one answer in the order of its connection; empty until it is known.

    `held` is what it and its request take meanwhile, as far as that counts; `reserve` sets it.
    """

    __slots__ = ("held", "parts", "request")

    held: int

    def __init__(self, request: Request) -> None:
        self.request = request
        self.parts: list[Any] | None = None

    def encode(self, throttle_ms: int) -> list[Any]:
        """Return the whole answer in the parts that it is sent in. Only `Exit.leave` calls this."""
        raise NotImplementedError

    def errors(self) -> Iterator[int]:
        """Return the codes of all errors that the answer tells of."""
        raise NotImplementedError

    def tally(self, metrics: Metrics) -> None:
        """Count what is special about the answer, which has left: errors, and bytes of topics."""
        for code in self.errors():
            metrics.errors[self.request.api, code] += 1

    def waited_for(self) -> str | None:
        """Return what the answer waited for; None if the client asked for the wait."""
        return "its handler took that long"

    @property
    def throttle_ms(self) -> int:
        """How long the client has to wait for other reasons than this broker's quotas."""
        return 0

    @property
    def volume(self) -> int:
        """The bytes of records in the answer."""
        return 0

    def withhold(self) -> None:
        """Answer without the records: who asked has had too many already."""

    def mute(self, seconds: float) -> None:
        """Stop reading from who asked for a while."""
        connection = getattr(self, "connection", None)
        if connection is not None:
            connection.mute(seconds)

    def abandon(self) -> None:
        """The connection is gone: lets go of whatever the answer was waiting for."""


class LongPoll(Response):
    """An answer that may only be waiting for news."""

    __slots__ = ()

    def waited_for(self) -> str | None:
        return None

    def complete(self) -> None:
        """Answer now, with what is there."""
        raise NotImplementedError


class Responses:
    """The order of one connection's answers, and the bytes that they take. Event loop only.

    `held` counts the bytes of requests and answers that wait, `unsent` those among them that the
    output has been given. When there are too many, `on_full` is called; `is_full` says so.
    """

    __slots__ = ("_on_full", "_output", "_queue", "held", "unsent")

    def __init__(self, output: Output, on_full: Callable[[], None]) -> None:
        self._output = output
        self._on_full = on_full
        self._queue: deque[Response] = deque()
        self.held = 0
        self.unsent = 0

    def __bool__(self) -> bool:
        """Return whether any answer has not been given to the output."""
        return bool(self._queue)

    @property
    def is_full(self) -> bool:
        return self.held > _MOST_HELD or self.are_many

    @property
    def are_many(self) -> bool:
        return len(self._queue) >= _MOST

    @property
    def any_known(self) -> bool:
        """Whether an answer is known that waits for those before it."""
        return any(response.parts is not None for response in self._queue)

    def reserve(self, response: Response, held: int = 0) -> None:
        """Take the next place in the order of answers; `held` bytes are kept until it is given."""
        response.held = held
        self.held += held
        self._queue.append(response)
        if self.held > _MOST_HELD or len(self._queue) >= _MOST:
            self._on_full()

    def hold(self, response: Response, held: int) -> None:
        """Count bytes of an answer that has to wait after all.

        A writer whose replicas cannot keep up is read from no further: otherwise it would put the
        leader ever further ahead of them. What it wrote takes no memory, so it may be more.
        """
        held //= _WRITTEN_COUNTS
        response.held += held
        self.held += held
        if self.held > _MOST_HELD:
            self._on_full()

    def answer(self, response: Response, frame: bytes) -> None:
        """Give the answer to the request at hand, which has no place yet."""
        size = len(frame)
        if self._queue:
            response.parts = [frame]
            self.reserve(response, size)
            return
        self.held += size
        self.unsent += size
        self._output.put(frame)
        if self.held > _MOST_HELD:
            self._on_full()

    def settle(self) -> None:
        """Give the output what is known and has nothing unknown before it."""
        queue = self._queue
        put = self._output.put_all
        while queue and (parts := queue[0].parts) is not None:
            self.held -= queue.popleft().held
            put(parts)

    def count_sent(self) -> None:
        """Take note that the output has nothing left."""
        self.held -= self.unsent
        self.unsent = 0

    def release_long_polls(self) -> None:
        """Answer what is only waiting for news."""
        for response in list(self._queue):
            if isinstance(response, LongPoll) and response.parts is None:
                response.complete()

    def abandon(self) -> None:
        """Let go of everything: the connection is gone."""
        queue, self._queue = self._queue, deque()
        for response in queue:
            response.abandon()
