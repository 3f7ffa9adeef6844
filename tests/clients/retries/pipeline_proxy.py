"""A proxy that lets something happen between two requests that a client has under way."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from functools import partial

from tests.clients.retries.frame_proxy import PRODUCE, FrameProxy, api_key, read_frame


class PipelineProxy(FrameProxy):
    """Collects `under_way` Produce requests of the first connection that writes, without an answer,
    passes the first one on, calls `between` once that is answered, and only then passes on the
    others and all answers. So the client learns of the first answer when the rest is already
    decided. Everything else is passed on as it comes, one request at a time.

    `meanwhile` is called with the number of each of these requests when it has been passed on, and
    before its answer is awaited. `collected` counts those that have come.
    """

    def __init__(
        self,
        under_way: int,
        between: Callable[[], None] = lambda: None,
        meanwhile: Callable[[int], None] = lambda number: None,
    ) -> None:
        super().__init__()
        self._under_way = under_way
        self._between = between
        self._meanwhile = meanwhile
        self.collected = 0
        self.has_happened = threading.Event()
        self._is_taken = False

    def pass_frames(self, client: socket.socket, broker: socket.socket) -> None:
        while (request := read_frame(client)) is not None:
            if api_key(request) == PRODUCE and self._take():
                self._interrupt(client, broker, request)
            else:
                client.sendall(_ask(broker, request))

    def _take(self) -> bool:
        with self.lock:
            was_taken, self._is_taken = self._is_taken, True
            return not was_taken

    def _interrupt(self, client: socket.socket, broker: socket.socket, first: bytes) -> None:
        pending = [first]
        self.collected = 1
        while self.collected < self._under_way:
            request = read_frame(client)
            if request is None:
                raise ConnectionError("the client has hung up")
            pending.append(request)
            self.collected += api_key(request) == PRODUCE
        answers = []
        for number, request in enumerate(pending):
            answers.append(_ask(broker, request, partial(self._meanwhile, number)))
            if number == 0:
                self._between()
        self.has_happened.set()
        client.sendall(b"".join(answers))


def _ask(
    broker: socket.socket, request: bytes, meanwhile: Callable[[], None] = lambda: None
) -> bytes:
    broker.sendall(request)
    meanwhile()
    answer = read_frame(broker)
    if answer is None:
        raise ConnectionError("the broker has hung up")
    return answer
