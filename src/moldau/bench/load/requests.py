"""Small requests over a bare socket: the client costs next to nothing."""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Callable

from moldau.bench.errors import BenchFailed
from moldau.bench.frames import (
    commit_error,
    commit_request,
    produce_error,
    produce_request,
)
from moldau.bench.proc import cpu_seconds
from moldau.bench.tasks import (
    CommitRequests,
    RequestFlow,
    SmallRequests,
)

TIMEOUT_S = 30
# Requests per send while pipelining: a client that sends each on its own would be the limit.
PER_SEND = 10


class Sender:
    """One connection that repeats one request; every answer has the length of the first.

    With a file of authorities to trust it is encrypted.
    """

    def __init__(
        self,
        host: str,
        port: int,
        request: bytes,
        error_of: Callable[[bytes], int],
        trusted: str = "",
    ) -> None:
        self._socket = socket.create_connection((host, port), TIMEOUT_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if trusted:
            context = ssl.create_default_context(cafile=trusted)
            self._socket = context.wrap_socket(self._socket, server_hostname=host)
        self._request = request
        self._buffer = bytearray(1 << 20)
        self._socket.sendall(self._request)
        first = self._read(4)
        self._answer_size = 4 + int.from_bytes(first, "big")
        first += self._read(self._answer_size - 4)
        code = error_of(first)
        if code != 0:
            raise BenchFailed(f"the broker answered with error {code}")
        self.sent = 1

    def _read(self, size: int) -> bytes:
        found = b""
        while len(found) < size:
            piece = self._socket.recv(size - len(found))
            if not piece:
                raise BenchFailed("the broker closed the connection")
            found += piece
        return found

    def round_trip(self) -> None:
        self._socket.sendall(self._request)
        self.sent += 1
        left = self._answer_size
        while left:
            got = self._socket.recv_into(self._buffer, left)
            if got == 0:
                raise BenchFailed("the broker closed the connection")
            left -= got

    def one_at_a_time(self, seconds: float) -> int:
        before, deadline = self.sent, time.monotonic() + seconds
        while time.monotonic() < deadline:
            self.round_trip()
        return self.sent - before

    def repeat(self, count: int, in_flight: int) -> None:
        """Send the request `count` times, that many under way; all are answered at the end."""
        unanswered = 0
        for _ in range(count):
            if unanswered == in_flight:
                unanswered -= self._answers(1)
            self._socket.sendall(self._request)
            self.sent += 1
            unanswered += 1
        while unanswered:
            unanswered -= self._answers(unanswered)

    def pipelined(self, in_flight: int, seconds: float) -> int:
        """Keep `in_flight` requests under way; all are answered when this returns."""
        several = self._request * PER_SEND
        before, deadline = self.sent, time.monotonic() + seconds
        unanswered = 0
        while True:
            if time.monotonic() < deadline:
                while unanswered + PER_SEND <= in_flight:
                    self._socket.sendall(several)
                    self.sent += PER_SEND
                    unanswered += PER_SEND
            elif unanswered == 0:
                return self.sent - before
            unanswered -= self._answers(1 if unanswered < PER_SEND else PER_SEND)

    def _answers(self, at_least: int) -> int:
        """Read `at_least` answers, and as many whole ones as have come with them."""
        size = self._answer_size
        filled = 0
        while filled < at_least * size or filled % size:
            room = size - filled % size if filled >= at_least * size else len(self._buffer)
            got = self._socket.recv_into(self._buffer, min(room, len(self._buffer)))
            if got == 0:
                raise BenchFailed("the broker closed the connection")
            filled += got
        return filled // size


def produce_sender(host: str, port: int, topic: str, size: int) -> Sender:
    """Return a connection that sends one message of that size over and over."""
    request = produce_request(topic, size)
    return Sender(host, port, request, lambda answer: produce_error(answer, topic))


def small_requests(task: SmallRequests) -> RequestFlow:
    return _timed(produce_sender(task.host, task.port, task.topic, task.size), task)


def commit_requests(task: CommitRequests) -> RequestFlow:
    request = commit_request(task.group, task.topic, task.offset)
    return _timed(Sender(task.host, task.port, request, commit_error), task)


def _timed(sender: Sender, task: SmallRequests | CommitRequests) -> RequestFlow:
    def send(seconds: float) -> int:
        if task.in_flight == 1:
            return sender.one_at_a_time(seconds)
        return sender.pipelined(task.in_flight, seconds)

    send(task.warm_up_s)
    broker_cpu, started = cpu_seconds(task.broker_pid), time.monotonic()
    requests = send(task.seconds)
    return RequestFlow(
        requests=requests,
        total_requests=sender.sent,
        seconds=time.monotonic() - started,
        broker_cpu_s=cpu_seconds(task.broker_pid) - broker_cpu,
    )
