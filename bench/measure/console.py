"""The console: a search through a large topic, the page in a browser, and its memory."""

from __future__ import annotations

import json
import os
import re
import socket
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import msgspec

from bench.measure.console_page import measure_page
from bench.scale import amounts_of
from bench.tasks import PacedRequests, RoundTrips
from moldau.bench.broker import READY_TIMEOUT_S, BrokerUnderTest, moldau_command
from moldau.bench.child import Child
from moldau.bench.errors import BenchFailed, Unavailable
from moldau.bench.frames import produce_batch_request, produce_error
from moldau.bench.proc import cpu_seconds, memory_mib, wait_quiet
from moldau.bench.results import Row, Target, figure, percentile
from moldau.bench.workbench import Workbench
from moldau.records.record import Record, build_batch

_RATE = Target(1_000_000, at_least=True)
_FIRST_S = Target(1.0)
_BESIDE = Target(2.0)
_MEMORY_MIB = Target(150)
_VALUE_SIZE = 200
# One record of each batch is looked for.
_BATCH_RECORDS = 4_000
_FILTER = f"value.order.number = {_BATCH_RECORDS // 2}"
_PACED_SIZE = 100
# Far from what one producer can do: a queue of its own would show what the machine does besides.
_PACED_RATE = 1_000
_TIMEOUT_S = 600
_READY = re.compile(r"^moldau console ready on (\S+)$")
_HEADERS = {"Content-Type": "application/json", "X-Moldau-Console": "1"}
_TOPICS_AT_ONCE = 500


class Searched(msgspec.Struct, frozen=True):
    """A search: when its first results came, and how many records it read at which cost."""

    first_s: float
    rate: float
    per_core: float


def measure_console(bench: Workbench) -> Iterator[Row]:
    missing = [name for name in ("duckdb", "numba", "pyarrow") if find_spec(name) is None]
    if missing:
        raise Unavailable(f"{', '.join(missing)} not installed: pip install 'moldau[console]'")
    yield from _searches(bench)
    yield _memory(bench)
    yield measure_page(bench, _console)


def _searches(bench: Workbench) -> Iterator[Row]:
    count = amounts_of(bench.scale).console_records
    bench.say(f"console: writing {count:,} records")
    with bench.broker() as broker:
        topic = bench.new_topic()
        broker.create_topic(topic)
        count = _fill(broker, topic, count)
        bench.say("console: searching")
        with _console(bench, broker) as (child, url):
            # As the page does while people write what they look for.
            _post(f"{url}/api/searches/ready", {"topic": topic})
            _made_ready(child.pid)
            first = _search(child.pid, url, topic, count)
            warm = []
            for _ in range(bench.scale.repeats):
                _made_ready(child.pid)
                warm.append(_search(child.pid, url, topic, count))
            yield Row(
                "console",
                f"a search through {count:,} records of {_VALUE_SIZE} B by a field of their JSON",
                (
                    figure("records, one core", "records/s", [s.per_core for s in warm], _RATE),
                    figure("records read", "records/s", [s.rate for s in warm]),
                    figure("first results, a console's first", "s", [first.first_s], _FIRST_S),
                    figure("first results, later ones", "s", [s.first_s for s in warm], _FIRST_S),
                ),
            )
            yield _beside(bench, broker, child.pid, url, topic, count)


def _value(number: int) -> bytes:
    """Return a value of 200 bytes in JSON."""
    order = {"number": number, "customer": f"c-{number % 977}", "is_paid": number % 3 == 0}
    content = {"id": f"{number:08}", "order": order, "note": ""}
    size = len(json.dumps(content))
    return json.dumps(content | {"note": "n" * (_VALUE_SIZE - size)}).encode()


def _fill(broker: BrokerUnderTest, topic: str, count: int) -> int:
    """Write at least so many records, and return how many."""
    stamp = time.time_ns() // 1_000_000
    values = [_value(number) for number in range(_BATCH_RECORDS)]
    batch = build_batch(Record(at, stamp, b"key", value, ()) for at, value in enumerate(values))
    request = produce_batch_request(topic, bytes(batch))
    times = -(-count // _BATCH_RECORDS)
    with socket.create_connection((broker.host, broker.port), _TIMEOUT_S) as sock:
        for _ in range(times):
            sock.sendall(request)
            head = sock.recv(4, socket.MSG_WAITALL)
            answer = head + sock.recv(int.from_bytes(head, "big"), socket.MSG_WAITALL)
            if error := produce_error(answer, topic):
                raise BenchFailed(f"error {error} for a batch")
    return times * _BATCH_RECORDS


@contextmanager
def _console(bench: Workbench, broker: BrokerUnderTest) -> Iterator[tuple[Child, str]]:
    """A console of its own process for a broker, and its address."""
    words = ["console", "--listen", "127.0.0.1:0", "--bootstrap", broker.bootstrap]
    child = bench.children.start([*moldau_command(), *words])
    try:
        line = child.line(READY_TIMEOUT_S)
        found = _READY.match(line)
        if found is None:
            raise BenchFailed(f"the console's first line is {line!r}")
        yield child, found[1]
    finally:
        child.stop()


def _search(pid: int, url: str, topic: str, count: int) -> Searched:
    """Search as the page does, up to the end; BenchFailed if it does not find what is there."""
    began = time.monotonic()
    asked = {"topic": topic, "filter": _FILTER, "limit": 10_000}
    search = _post(f"{url}/api/searches", asked)["id"]
    first_s, found, worker = 0.0, 0, 0
    # What it had read, and how long it had worked, when first and last heard of.
    marks: list[tuple[int, float]] = []
    scanned = elapsed_ms = 0
    for event, data in _events(f"{url}/api/searches/{search}/events"):
        if event == "found":
            first_s = first_s or time.monotonic() - began
            found += len(data)
        elif event == "progress" and data["scanned"]:
            scanned, elapsed_ms = data["scanned"], data["elapsed_ms"]
            worker = worker or _worker_of(pid)
            try:
                marks.append((scanned, cpu_seconds(worker)))
            except OSError:
                # It has ended, and this was its last word.
                pass
        elif event == "failed":
            raise BenchFailed(f"the search failed: {data}")
        elif event == "done":
            break
    if (found, scanned) != (count // _BATCH_RECORDS, count):
        raise BenchFailed(f"{found} found in {scanned:,} of {count:,} records")
    (before, cpu_before), (after, cpu_after) = marks[0], marks[-1]
    used = cpu_after - cpu_before
    rate = scanned / (elapsed_ms / 1000)
    return Searched(first_s, rate, (after - before) / used if used > 0 and after > before else rate)


def _post(url: str, body: dict[str, Any]) -> Any:
    ask = urllib.request.Request(url, json.dumps(body).encode(), _HEADERS)
    with urllib.request.urlopen(ask, timeout=_TIMEOUT_S) as answer:
        return json.load(answer)


def _made_ready(pid: int) -> None:
    """Wait until a console has a process for its next search that has nothing left to do."""
    deadline = time.monotonic() + _TIMEOUT_S
    while time.monotonic() < deadline:
        children = _children_of(pid)
        try:
            wait_quiet([pid, *children])
        except OSError:
            # That of the search before has ended.
            continue
        if children and children == _children_of(pid):
            return
    raise BenchFailed("the console has no process for the next search")


def _worker_of(pid: int) -> int:
    """Return the process that searches for a console: the one that works most."""
    return max(_children_of(pid), key=cpu_seconds)


def _children_of(pid: int) -> list[int]:
    found: list[int] = []
    for listing in Path(f"/proc/{pid}/task").glob("*/children"):
        found += map(int, listing.read_text().split())
    return found


def _events(url: str) -> Iterator[tuple[str, Any]]:
    with urllib.request.urlopen(url, timeout=_TIMEOUT_S) as answer:
        name = ""
        for line in answer:
            key, _, rest = line.decode().rstrip("\n").partition(": ")
            if key == "event":
                name = rest
            elif key == "data":
                yield name, json.loads(rest)


def _beside(
    bench: Workbench, broker: BrokerUnderTest, pid: int, url: str, topic: str, count: int
) -> Row:
    """Measure a producer at a steady rate, without a search and beside one, in turns.

    The figures are of the requests of all turns together: one hiccup of the machine is as long as
    a hundredth of one turn. How much halves of the time without a search differ says how far they
    can be trusted.
    """
    # What was written before should not be flushed now.
    os.sync()
    hot = bench.new_topic()
    broker.create_topic(hot)
    seconds = bench.scale.requests_s
    halves: tuple[list[float], list[float]] = ([], [])
    busy: list[float] = []
    for sample in range(bench.scale.repeats):
        bench.say(f"console: a search beside a producer, {sample + 1} of {bench.scale.repeats}")
        _made_ready(pid)
        paced = bench.children.begin(
            PacedRequests(broker.host, broker.port, hot, _PACED_SIZE, _PACED_RATE)
        )
        paced.line(timeout_s=30)
        started = time.monotonic()
        time.sleep(2 * seconds)
        begun = time.monotonic()
        _search(pid, url, topic, count)
        ended = time.monotonic()
        paced.close_input()
        trips = paced.answer(RoundTrips, timeout_s=60)
        paced.stop()
        middle = (started + begun) / 2
        for sent, took in zip(trips.sent_s, trips.took_s, strict=True):
            if sent < begun:
                halves[sent >= middle].append(took)
            elif sent < ended:
                busy.append(took)
    first, second = (percentile(each, 99) for each in halves)
    quiet, beside = percentile([*halves[0], *halves[1]], 99), percentile(busy, 99)
    return Row(
        "console",
        f"Produce of {_PACED_SIZE} B, {_PACED_RATE:,} a second, beside such a search",
        (
            figure("p99 without a search", "ms", [quiet * 1000]),
            figure("p99 beside a search", "ms", [beside * 1000]),
            figure("beside to without", "x", [beside / quiet], _BESIDE),
            figure("one half without to the other", "x", [max(first, second) / min(first, second)]),
        ),
    )


def _memory(bench: Workbench) -> Row:
    """Measure a console that has sampled many topics, and shown all of them."""
    from confluent_kafka.admin import NewTopic

    amounts = amounts_of(bench.scale)
    count = amounts.console_topics
    bench.say(f"console: {count:,} topics")
    with bench.broker() as broker:
        for first in range(0, count, _TOPICS_AT_ONCE):
            last = min(first + _TOPICS_AT_ONCE, count)
            topics = [NewTopic(f"load.topic-{number:04}", 1) for number in range(first, last)]
            made = broker.admin.create_topics(topics, request_timeout=_TIMEOUT_S)
            for future in made.values():
                future.result(_TIMEOUT_S)
        with _console(bench, broker) as (child, url):
            samples = 0
            for event, _ in _events(f"{url}/api/events"):
                samples += event == "series"
                if samples >= amounts.console_samples:
                    break
            took = []
            for _ in range(5):
                began = time.monotonic()
                with urllib.request.urlopen(f"{url}/api/topics", timeout=_TIMEOUT_S) as answer:
                    shown = len(json.load(answer)["topics"])
                took.append((time.monotonic() - began) * 1000)
            if shown != count:
                raise BenchFailed(f"the console shows {shown} of {count} topics")
            now, highest = memory_mib(child.pid)
    return Row(
        "console",
        f"a console of {count:,} topics, after {samples} samples and 5 lists of all",
        (
            figure("memory, at its highest", "MiB", [highest], _MEMORY_MIB),
            figure("memory", "MiB", [now]),
            figure("time until all are listed", "ms", took),
        ),
    )
