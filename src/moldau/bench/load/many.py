"""Many producers in one process, each with one request in flight."""

from __future__ import annotations

import selectors
import socket
import time

from moldau.bench.errors import BenchFailed
from moldau.bench.frames import produce_error, produce_request
from moldau.bench.proc import cpu_seconds
from moldau.bench.tasks import ManyProducers, RequestFlow

_TIMEOUT_S = 60


class _Producer:
    """One connection; every answer has the length of the first."""

    def __init__(self, task: ManyProducers, request: bytes) -> None:
        self.socket = socket.create_connection((task.host, task.port), _TIMEOUT_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._request = request
        self.send()
        first = self.socket.recv(4, socket.MSG_WAITALL)
        self._size = 4 + int.from_bytes(first, "big")
        first += self.socket.recv(self._size - 4, socket.MSG_WAITALL)
        code = produce_error(first, task.topic)
        if code != 0:
            raise BenchFailed(f"the broker answered with error {code}")
        self._left = self._size

    def send(self) -> None:
        self.socket.sendall(self._request)

    def is_answered(self) -> bool:
        """Take what has arrived; return whether a response is complete."""
        got = len(self.socket.recv(self._left))
        if not got:
            raise BenchFailed("the broker closed the connection")
        self._left -= got
        if self._left:
            return False
        self._left = self._size
        return True


def many_producers(task: ManyProducers) -> RequestFlow:
    request = produce_request(task.topic, task.size, acks=-1)
    producers = [_Producer(task, request) for _ in range(task.producers)]
    total = len(producers)
    with selectors.DefaultSelector() as selector:
        for producer in producers:
            selector.register(producer.socket, selectors.EVENT_READ, producer)
        total += _exchange(selector, producers, task.warm_up_s)
        broker_cpu, started = cpu_seconds(task.broker_pid), time.monotonic()
        requests = _exchange(selector, producers, task.seconds)
        return RequestFlow(
            requests=requests,
            total_requests=total + requests,
            seconds=time.monotonic() - started,
            broker_cpu_s=cpu_seconds(task.broker_pid) - broker_cpu,
        )


def _exchange(selector: selectors.BaseSelector, producers: list[_Producer], seconds: float) -> int:
    """Send again whenever one is answered; all are answered when this returns."""
    deadline = time.monotonic() + seconds
    for producer in producers:
        producer.send()
    waiting = len(producers)
    answered = 0
    while waiting:
        events = selector.select(_TIMEOUT_S)
        if not events:
            raise BenchFailed(f"no answer for {_TIMEOUT_S} s")
        is_over = time.monotonic() >= deadline
        for key, _ in events:
            if key.data.is_answered():
                answered += 1
                if is_over:
                    waiting -= 1
                else:
                    key.data.send()
    return answered
