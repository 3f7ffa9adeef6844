"""Start-up: the time from exec to the first response, and the memory of an idle broker."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator

from moldau.bench.broker import READY_TIMEOUT_S
from moldau.bench.errors import BenchFailed
from moldau.bench.frames import api_versions_request
from moldau.bench.results import Row, Target, figure
from moldau.bench.workbench import Workbench

_SETTLE_S = 1.0


def measure_startup(bench: Workbench) -> Iterator[Row]:
    answers: list[float] = []
    ready: list[float] = []
    idle: list[float] = []
    # The first start fills the page cache with the code, as any start but the very first finds it.
    for sample in range(bench.scale.starts + 1):
        bench.say(f"start-up: {sample} of {bench.scale.starts}")
        answered = _first_answer(bench)
        broker_ready, memory = _ready_line(bench, settle=sample in (0, bench.scale.starts))
        if memory:
            idle.append(memory)
        if sample > 0:
            answers.append(answered * 1000)
            ready.append(broker_ready * 1000)
    yield Row(
        "startup",
        "start and idle",
        (
            figure("exec to first answer", "ms", answers, Target(300)),
            figure("exec to ready line", "ms", ready, Target(300)),
            figure("idle RSS", "MiB", idle, Target(60)),
        ),
    )


def _first_answer(bench: Workbench) -> float:
    """Seconds until an ApiVersions request on a fresh connection is answered."""
    port = _free_port()
    request = api_versions_request()
    started = time.monotonic()
    broker = bench.start_broker(f"127.0.0.1:{port}")
    try:
        while time.monotonic() < started + READY_TIMEOUT_S:
            try:
                with socket.create_connection(("127.0.0.1", port), READY_TIMEOUT_S) as sock:
                    sock.sendall(request)
                    if len(sock.recv(4, socket.MSG_WAITALL)) == 4:
                        return time.monotonic() - started
            except ConnectionError:
                time.sleep(0.001)
        raise BenchFailed(f"no answer {READY_TIMEOUT_S} s after start:\n{broker.child.log_tail()}")
    finally:
        broker.discard()


def _ready_line(bench: Workbench, *, settle: bool) -> tuple[float, float]:
    """Seconds until the ready line, and memory in MiB a second later (0 unless `settle`)."""
    started = time.monotonic()
    broker = bench.start_broker()
    try:
        broker.wait_ready()
        seconds = time.monotonic() - started
        if not settle:
            return seconds, 0.0
        time.sleep(_SETTLE_S)
        return seconds, broker.memory_mib()[0]
    finally:
        broker.discard()


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port: int = probe.getsockname()[1]
        return port
