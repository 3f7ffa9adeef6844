"""Large requests over a bare socket: batches are built once and never looked into.

What a real client spends on every message is left out, so that the broker is the limit.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from bench.tasks import BulkFetch, BulkProduce
from moldau.bench.errors import BenchFailed
from moldau.bench.frames import one_batch, produce_batch_request, produce_error
from moldau.bench.load.requests import Sender
from moldau.bench.proc import cpu_seconds
from moldau.bench.tasks import Flow
from moldau.peer.connection import Connection
from moldau.peer.view import ClusterView
from moldau.records.batch import HEADER_SIZE, read_header
from moldau.security.client import ClientSecurity
from moldau.wire.apis import Api
from moldau.wire.fetch.request import FetchPartition, FetchRequest

_BATCH_BYTES = 1_000_000
_IN_FLIGHT = 3
_FETCH_BYTES = 4 << 20


def bulk_produce(task: BulkProduce) -> Flow:
    batch = one_batch(task.size, _BATCH_BYTES)
    messages = read_header(batch).count
    request = produce_batch_request(task.topic, batch)
    sender = Sender(
        task.host,
        task.port,
        request,
        lambda answer: produce_error(answer, task.topic),
        trusted=task.trusted,
    )
    requests = -(-task.count // messages)
    sender.repeat(requests // 3, _IN_FLIGHT)
    return _timed(task.broker_pid, requests * messages, lambda: sender.repeat(requests, _IN_FLIGHT))


def bulk_fetch(task: BulkFetch) -> Flow:
    reader = _Reader(task)
    reader.read()
    return _timed(task.broker_pid, task.count, reader.read)


class _Reader:
    """Fetches from the first offset on, one answer after another."""

    def __init__(self, task: BulkFetch) -> None:
        self._task = task
        security = None
        if task.trusted:
            given = {"security.protocol": "SSL", "ssl.truststore.location": task.trusted}
            security = ClientSecurity.parse(given)
        self._connection = Connection(task.host, task.port, "bench", security=security)
        metadata = self._connection.ask(Api.METADATA, {"topics": [{"name": task.topic}]})
        topic_id = ClusterView.of(metadata).topics[task.topic].id
        self._key = self._connection.fetch_key(task.topic, topic_id)
        self._room = memoryview(bytearray(_FETCH_BYTES))

    def read(self) -> None:
        offset, count = 0, self._task.count
        asked = self._connection.send_fetch(self._request(offset))
        while offset < count:
            stream = self._connection.receive_fetch(asked)
            error, records = stream.partition.error, self._room[: stream.size]
            if error or len(records) < stream.size:
                raise BenchFailed(f"a fetch brought error {error} and {stream.size} bytes")
            stream.fill(records)
            offset = _end_of(records)
            if not offset:
                raise BenchFailed("a fetch brought no messages")
            if offset < count:
                asked = self._connection.send_fetch(self._request(offset))

    def _request(self, offset: int) -> FetchRequest:
        wanted = FetchPartition(0, fetch_offset=offset, max_bytes=_FETCH_BYTES)
        return FetchRequest(
            [(self._key, [wanted])],
            max_bytes=_FETCH_BYTES,
            isolation_level=int(self._task.read_committed),
        )


def _end_of(records: memoryview) -> int:
    """The offset after the last whole batch; 0 if there is none."""
    position = end = 0
    while position + HEADER_SIZE <= len(records):
        header = read_header(records, position)
        position += header.size
        if position <= len(records):
            end = header.last_offset + 1
    return end


def _timed(broker_pid: int, messages: int, run: Callable[[], None]) -> Flow:
    broker_cpu, client_cpu = cpu_seconds(broker_pid), time.process_time()
    started = time.monotonic()
    run()
    ended = time.monotonic()
    return Flow(
        messages=messages,
        seconds=ended - started,
        broker_cpu_s=cpu_seconds(broker_pid) - broker_cpu,
        client_cpu_s=time.process_time() - client_cpu,
        started=started,
        ended=ended,
    )
