"""A proxy that loses answers: what a broken network does to a producer."""

from __future__ import annotations

import socket

from tests.clients.retries.frame_proxy import PRODUCE, FrameProxy, api_key, read_frame


class LossyProxy(FrameProxy):
    """Passes requests one at a time in each connection. An answer that is to be lost is read from
    the broker, so the request has had its effect; then both connections are closed."""

    def __init__(self) -> None:
        super().__init__()
        self.lost = 0
        self._to_lose = 0

    def lose_answers_to_produce(self, count: int) -> None:
        """The next `count` answers to Produce never arrive."""
        with self.lock:
            self._to_lose = count

    def pass_frames(self, client: socket.socket, broker: socket.socket) -> None:
        while (request := read_frame(client)) is not None:
            broker.sendall(request)
            answer = read_frame(broker)
            if answer is None or (api_key(request) == PRODUCE and self._lose()):
                return
            client.sendall(answer)

    def _lose(self) -> bool:
        with self.lock:
            if not self._to_lose:
                return False
            self._to_lose -= 1
            self.lost += 1
            return True
