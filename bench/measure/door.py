"""Clients at the door, and what they cost everybody else: half-sent requests, clients that never
read, large batches, compressed or not, thousands of partitions.

Each is done to a broker of its own while a producer sends small requests at a steady rate. Its
answer times are the figures, and the longest stall that the broker reports of itself.
"""

from __future__ import annotations

import re
import select
import socket
import struct
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack

from bench.scale import amounts_of
from bench.tasks import PacedRequests, RoundTrips
from moldau.bench.broker import BrokerUnderTest
from moldau.bench.errors import BenchFailed
from moldau.bench.frames import CLIENT_ID, produce_batch_request, produce_error
from moldau.bench.results import Figure, Row, Target, figure, percentile
from moldau.bench.workbench import Workbench
from moldau.records.compression import Codec
from moldau.records.record import Record, build_batch
from moldau.wire.apis import VERSIONS, Api
from moldau.wire.headers import request_frame
from moldau.wire.messages import encode_request

RATE = 500
_MESSAGE_SIZE = 100
_TIMEOUT_S = 120
_MOST_MS = Target(50)
_STALL = re.compile(r"longest stall of the event loop: (\d+) ms")

Attack = Callable[[Workbench, BrokerUnderTest], list[Figure]]


def measure_door(bench: Workbench) -> Iterator[Row]:
    scale, amounts = bench.scale, amounts_of(bench.scale)
    clients, claimed = amounts.door_senders, amounts.door_request_bytes
    yield _besieged(bench, f"{clients} half-sent requests of {_mb(claimed)}", _half_sent)
    yield _besieged(bench, f"{amounts.door_readers} clients that never read", _never_read, _widen)
    size = _mb(amounts.door_batch_bytes)
    yield _besieged(bench, f"batches of {size}, decompressed in a compacted topic", _expanding)
    yield _besieged(bench, f"Produce requests of {size}", _large)
    count = amounts.door_records
    yield _besieged(bench, f"a batch of {count:,} tiny records in a compacted topic", _tiny)
    yield _besieged(bench, f"creating and deleting {scale.partitions:,} partitions", _partitions)
    yield _besieged(bench, f"{amounts.door_topics:,} topics and what describes them", _topics)
    yield _stop(bench)


def _besieged(
    bench: Workbench, title: str, attack: Attack, prepare: Attack = lambda bench, broker: []
) -> Row:
    bench.say(f"door: {title}")
    with bench.broker() as broker:
        prepare(bench, broker)
        topic = bench.new_topic()
        broker.create_topic(topic)
        paced = bench.children.begin(
            PacedRequests(broker.host, broker.port, topic, _MESSAGE_SIZE, RATE)
        )
        paced.line(timeout_s=30)
        started = time.monotonic()
        own = attack(bench, broker)
        # What it leaves behind counts as well.
        time.sleep(max(0.0, started + amounts_of(bench.scale).door_s - time.monotonic()))
        paced.close_input()
        took = [seconds * 1000 for seconds in paced.answer(RoundTrips, _TIMEOUT_S).took_s]
        paced.stop()
        _, highest = broker.memory_mib()
        return Row(
            "door",
            title,
            (
                figure("others' answers, p50", "ms", [percentile(took, 50)]),
                figure("others' answers, p99", "ms", [percentile(took, 99)], _MOST_MS),
                figure("others' answers, worst", "ms", [max(took)]),
                figure("longest stall", "ms", [_longest_stall(broker)], _MOST_MS),
                figure("highest RSS", "MiB", [highest]),
                *own,
            ),
        )


def _longest_stall(broker: BrokerUnderTest) -> float:
    """What the broker says of itself when it stops."""
    broker.stop_cleanly()
    found = _STALL.search(broker.child.log_tail())
    if found is None:
        raise BenchFailed(f"the broker tells of no stall:\n{broker.child.log_tail()}")
    return float(found[1])


# What is done to it


def _half_sent(bench: Workbench, broker: BrokerUnderTest) -> list[Figure]:
    size = amounts_of(bench.scale).door_request_bytes
    piece = bytes(1 << 20)
    with ExitStack() as stack:
        left: dict[socket.socket, int] = {}
        for _ in range(amounts_of(bench.scale).door_senders):
            sock = stack.enter_context(_connected(broker))
            sock.sendall(struct.pack(">i", size))
            sock.setblocking(False)
            # All but a little: nobody ever gets to handle it.
            left[sock] = size - len(piece)
        deadline = time.monotonic() + amounts_of(bench.scale).door_s
        sent = 0
        while left and time.monotonic() < deadline:
            for sock in select.select([], list(left), [], 0.1)[1]:
                try:
                    count = sock.send(piece[: left[sock]])
                except OSError:
                    # It was too slow, and others waited.
                    count = left[sock]
                sent += count
                left[sock] -= count
                if not left[sock]:
                    del left[sock]
    return [figure("taken of them", "MB", [sent / 1e6])]


def _widen(bench: Workbench, broker: BrokerUnderTest) -> list[Figure]:
    """A topic whose description is long."""
    broker.create_topic(bench.new_topic(), min(500, bench.scale.partitions))
    return []


def _never_read(bench: Workbench, broker: BrokerUnderTest) -> list[Figure]:
    question = _request(Api.METADATA, topics=None)
    with ExitStack() as stack:
        socks = [
            stack.enter_context(_connected(broker))
            for _ in range(amounts_of(bench.scale).door_readers)
        ]
        for sock in socks:
            sock.setblocking(False)
        deadline = time.monotonic() + amounts_of(bench.scale).door_s
        sent = 0
        while time.monotonic() < deadline:
            ready = select.select([], socks, [], 0.1)[1]
            for sock in ready:
                sent += sock.send(question * 1000)
    return [figure("taken of them", "MB", [sent / 1e6])]


def _expanding(bench: Workbench, broker: BrokerUnderTest) -> list[Figure]:
    value = bytes(range(256)) * (amounts_of(bench.scale).door_batch_bytes // 256)
    batch = build_batch([Record(0, _now_ms(), b"key", value)], Codec.ZSTD)
    return [_produced(bench, broker, bytes(batch), bench.scale.repeats * 2)]


def _large(bench: Workbench, broker: BrokerUnderTest) -> list[Figure]:
    value = bytes(amounts_of(bench.scale).door_batch_bytes)
    batch = build_batch([Record(0, _now_ms(), None, value)])
    return [_produced(bench, broker, bytes(batch), bench.scale.repeats * 2, policy="delete")]


def _tiny(bench: Workbench, broker: BrokerUnderTest) -> list[Figure]:
    stamp = _now_ms()
    records = (Record(n, stamp, b"k", b"") for n in range(amounts_of(bench.scale).door_records))
    return [_produced(bench, broker, bytes(build_batch(records, Codec.ZSTD)), 1)]


def _produced(
    bench: Workbench, broker: BrokerUnderTest, batch: bytes, times: int, policy: str = "compact"
) -> Figure:
    topic = bench.new_topic()
    configs = {"cleanup.policy": policy, "max.message.bytes": "100000000"}
    broker.create_topic(topic, configs=configs)
    request = produce_batch_request(topic, batch)
    took = []
    with _connected(broker) as sock:
        for _ in range(times):
            started = time.monotonic()
            sock.sendall(request)
            answer = _answer(sock)
            took.append(time.monotonic() - started)
            if produce_error(answer, topic):
                raise BenchFailed(f"error {produce_error(answer, topic)} for a batch")
    return figure("its own answer", "s", took)


def _partitions(bench: Workbench, broker: BrokerUnderTest) -> list[Figure]:
    topic = bench.new_topic()
    started = time.monotonic()
    broker.create_topic(topic, bench.scale.partitions)
    created = time.monotonic() - started
    started = time.monotonic()
    broker.delete_topic(topic)
    deleted = time.monotonic() - started
    _until_removed(broker, [topic])
    return [figure("creation", "s", [created]), figure("deletion", "s", [deleted])]


def _topics(bench: Workbench, broker: BrokerUnderTest) -> list[Figure]:
    names = [bench.new_topic() for _ in range(amounts_of(bench.scale).door_topics)]
    wanted = [{"name": name, "num_partitions": 1, "replication_factor": 1} for name in names]
    resources = [{"resource_type": 2, "resource_name": name} for name in names]
    offsets = [
        {"name": name, "partitions": [{"partition_index": 0, "timestamp": 0}]} for name in names
    ]
    steps = {
        "creation": _request(Api.CREATE_TOPICS, topics=wanted),
        "metadata": _request(Api.METADATA, topics=None),
        "configs": _request(Api.DESCRIBE_CONFIGS, resources=resources),
        "log dirs": _request(Api.DESCRIBE_LOG_DIRS, topics=None),
        "offsets": _request(Api.LIST_OFFSETS, topics=offsets),
        "deletion": _request(Api.DELETE_TOPICS, topics=[{"name": name} for name in names]),
    }
    figures = []
    with _connected(broker) as sock:
        for name, request in steps.items():
            started = time.monotonic()
            sock.sendall(request)
            _answer(sock)
            figures.append(figure(name, "s", [time.monotonic() - started]))
    _until_removed(broker, names)
    return figures


def _until_removed(broker: BrokerUnderTest, topics: Sequence[str]) -> None:
    """Until nothing is left of what the topics had on disk."""
    starts = tuple(f"{topic}-" for topic in topics)
    deadline = time.monotonic() + _TIMEOUT_S
    while any(path.name.startswith(starts) for path in broker.data_dir.iterdir()):
        if time.monotonic() > deadline:
            raise BenchFailed(f"deleted topics are still there after {_TIMEOUT_S} s")
        time.sleep(0.05)


def _stop(bench: Workbench) -> Row:
    """Stops and starts with many partitions."""
    count = amounts_of(bench.scale).door_partitions
    bench.say(f"door: stopping with {count:,} partitions")
    per_topic = min(count, 10_000)
    with bench.broker() as broker:
        for _ in range(count // per_topic):
            broker.create_topic(bench.new_topic(), per_topic)
        now, _ = broker.memory_mib()
        stopped = broker.stop_cleanly()
        started = time.monotonic()
        again = bench.start_broker(data_dir=broker.data_dir)
        again.wait_ready()
        began = time.monotonic() - started
        stopped_again = again.stop_cleanly()
    return Row(
        "door",
        f"{count:,} partitions: stop and start",
        (
            figure("RSS", "MiB", [now]),
            figure("clean stop", "s", [stopped], Target(10)),
            figure("exec to ready line", "s", [began]),
            figure("clean stop after that", "s", [stopped_again], Target(10)),
        ),
    )


# Sockets


def _connected(broker: BrokerUnderTest) -> socket.socket:
    return socket.create_connection((broker.host, broker.port), _TIMEOUT_S)


def _answer(sock: socket.socket) -> bytes:
    """The next answer, whole with its length."""
    size = sock.recv(4, socket.MSG_WAITALL)
    if len(size) < 4:
        raise BenchFailed("the broker closed the connection")
    left = int.from_bytes(size, "big")
    answer = bytearray(size)
    while left:
        piece = sock.recv(min(left, 1 << 20))
        if not piece:
            raise BenchFailed("the broker closed the connection")
        answer += piece
        left -= len(piece)
    return bytes(answer)


def _request(api: Api, **values: object) -> bytes:
    version = VERSIONS[api].last
    return request_frame(api, version, 1, CLIENT_ID.decode(), encode_request(api, version, values))


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _mb(size: int) -> str:
    return f"{size / 1e6:,.0f} MB"
