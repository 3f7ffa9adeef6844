"""The schema registry: lookups of schemas, and the check of records against them."""

from __future__ import annotations

import http.client
import io
import json
import re
import socket
import time
from collections.abc import Iterator
from importlib.util import find_spec

import fastavro

from bench.load.bad_schemas import bad_requests
from bench.scale import amounts_of
from moldau.bench.broker import BrokerUnderTest
from moldau.bench.errors import BenchFailed
from moldau.bench.frames import produce_batch_request, produce_error
from moldau.bench.proc import cpu_seconds
from moldau.bench.results import Row, Target, figure
from moldau.bench.workbench import Workbench
from moldau.records.record import Record, build_batch
from moldau.schemas import RegistryClient
from moldau.schemas.header import pack_header

_LOOKUPS = Target(3_000, at_least=True)
_RECORDS = Target(300_000, at_least=True)
_HTTP = re.compile(r"HTTP on (http://(\S+):(\d+))")
_STALL_S = re.compile(r"^moldau_loop_longest_(stall|stall_cpu)_seconds (\S+)$", re.MULTILINE)
_TOO_LARGE = 413
_SCHEMAS = 100
# Requests under way on the one connection.
_DEPTH = 32
_BATCH_RECORDS = 1_000
_TIMEOUT_S = 120
# A hundred bytes with the header, give or take a few.
ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "item", "type": "string"},
        {"name": "price", "type": "double"},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "note", "type": ["null", "string"]},
        {"name": "is_paid", "type": "boolean"},
    ],
}


def measure_registry(bench: Workbench) -> Iterator[Row]:
    broker = bench.start_broker(settings=["http.listen=127.0.0.1:0"])
    try:
        broker.wait_ready()
        found = _HTTP.search(broker.child.log_tail())
        if found is None:
            raise BenchFailed(f"the broker serves no HTTP:\n{broker.child.log_tail()}")
        yield _lookups(bench, broker, found[1], (found[2], int(found[3])))
        yield _bad_input(bench, (found[2], int(found[3])))
        if find_spec("numba") is None:
            raise BenchFailed("the check of records needs moldau[checks]")
        yield _check(bench)
        yield _produced(bench, broker, found[1])
    finally:
        broker.discard()


def _lookups(bench: Workbench, broker: BrokerUnderTest, url: str, address: tuple[str, int]) -> Row:
    bench.say("registry: lookups by id")
    client = RegistryClient(url)
    ids = [client.register(f"s{n}", {**ORDER, "name": f"Order{n}"}).id for n in range(_SCHEMAS)]
    count = amounts_of(bench.scale).registry_lookups
    rates, per_core = [], []
    with socket.create_connection(address, _TIMEOUT_S) as sock, sock.makefile("rb") as answers:
        for _ in range(bench.scale.repeats):
            cpu, started = cpu_seconds(broker.pid), time.monotonic()
            for first in range(0, count, _DEPTH):
                wanted = [ids[(first + n) % _SCHEMAS] for n in range(_DEPTH)]
                sock.sendall(
                    b"".join(
                        b"GET /schemas/ids/%d HTTP/1.1\r\nHost: bench\r\n\r\n" % schema_id
                        for schema_id in wanted
                    )
                )
                for _ in wanted:
                    _read_answer(answers)
            rates.append(count / (time.monotonic() - started))
            per_core.append(count / (cpu_seconds(broker.pid) - cpu))
    return Row(
        "registry",
        "lookups of schemas by id",
        (
            figure("lookups, one core of the broker", "requests/s", per_core, _LOOKUPS),
            figure("lookups, one connection", "requests/s", rates),
        ),
    )


def _bad_input(bench: Workbench, address: tuple[str, int]) -> Row:
    """Measure how long the loop is held by input that no registry wants."""
    bench.say("registry: bad input")
    took = []
    connection = http.client.HTTPConnection(*address, timeout=_TIMEOUT_S)
    for _ in range(bench.scale.repeats):
        for each in bad_requests():
            started = time.monotonic()
            try:
                connection.request(each.method, each.path, each.body)
                answer = connection.getresponse()
                answer.read()
            except ConnectionError:
                # The broker hangs up on who goes on sending what is too large.
                connection.close()
                if each.status != _TOO_LARGE:
                    raise
                continue
            took.append(1000 * (time.monotonic() - started))
            if answer.status != each.status:
                raise BenchFailed(f"{each.name}: {answer.status} instead of {each.status}")
    connection.request("GET", "/metrics?per_partition=false")
    metrics = connection.getresponse().read().decode()
    connection.close()
    stalls = {name: 1000 * float(value) for name, value in _STALL_S.findall(metrics)}
    return Row(
        "registry",
        "bad input: large, deep and cyclic schemas, patterns that explode",
        (
            figure("longest stall", "ms", [stalls["stall"]], Target(50)),
            figure("most CPU time of a stall over 50 ms", "ms", [stalls["stall_cpu"]]),
            figure("the answer that took longest", "ms", [max(took)]),
        ),
    )


def _read_answer(answers: io.BufferedReader) -> None:
    status = answers.readline()
    if b" 200 " not in status:
        raise BenchFailed(f"a lookup was answered with {status!r}")
    length = 0
    while (line := answers.readline()) != b"\r\n":
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            length = int(value)
    answers.read(length)


def _check(bench: Workbench) -> Row:
    """Measure the check alone, as its process does it."""
    from moldau.schemas.door.checking import Checker
    from moldau.schemas.door.messages import CheckBatch, KnownSchema, Table
    from moldau.schemas.schema import Schema

    bench.say("registry: the check of records")
    batch, size = _batch(1)
    checker = Checker()
    table = Table("t-value", [KnownSchema(1, Schema(json.dumps(ORDER)))])
    # Compiled, or read from the disk, before the clock runs.
    checker.check(CheckBatch(batch, None, "t-value", [table]))
    request = CheckBatch(batch, None, "t-value")
    times = amounts_of(bench.scale).registry_batches
    rates = []
    for _ in range(bench.scale.repeats):
        started = time.process_time()
        for _ in range(times):
            if checker.check(request).problems:
                raise BenchFailed("records that are fine were refused")
        rates.append(times * _BATCH_RECORDS / (time.process_time() - started))
    return Row(
        "registry",
        f"the check of Avro records of {size} B",
        (
            figure("records, one core", "records/s", rates, _RECORDS),
            figure("cost of a record", "µs", [1e6 / rate for rate in rates]),
        ),
    )


def _produced(bench: Workbench, broker: BrokerUnderTest, url: str) -> Row:
    """Measure what it costs who writes: the same batches to two topics, one of which checks."""
    bench.say("registry: producing to a topic that checks")
    plain, checked = bench.new_topic(), bench.new_topic()
    broker.create_topic(plain)
    broker.create_topic(checked, configs={"moldau.value.schema.validation": "true"})
    known = RegistryClient(url).register(f"{checked}-value", ORDER).id
    batch, size = _batch(known)
    rates: dict[str, list[float]] = {plain: [], checked: []}
    times = amounts_of(bench.scale).registry_batches // 4
    with socket.create_connection((broker.host, broker.port), _TIMEOUT_S) as sock:
        _send(sock, checked, batch, 1)
        for _ in range(bench.scale.repeats):
            for topic, found in rates.items():
                found.append(times * _BATCH_RECORDS / _send(sock, topic, batch, times))
    costs = [
        1e6 / one - 1e6 / other for one, other in zip(rates[checked], rates[plain], strict=True)
    ]
    return Row(
        "registry",
        f"batches of {_BATCH_RECORDS:,} records of {size} B, one at a time",
        (
            figure("without a check", "records/s", rates[plain]),
            figure("with the check", "records/s", rates[checked]),
            figure("cost of the check", "µs a record", costs),
        ),
    )


def _send(sock: socket.socket, topic: str, batch: bytes, times: int) -> float:
    request = produce_batch_request(topic, batch)
    started = time.monotonic()
    for _ in range(times):
        sock.sendall(request)
        head = sock.recv(4, socket.MSG_WAITALL)
        answer = head + sock.recv(int.from_bytes(head, "big"), socket.MSG_WAITALL)
        error = produce_error(answer, topic)
        if error:
            raise BenchFailed(f"error {error} for a batch")
    return time.monotonic() - started


def _batch(schema_id: int) -> tuple[bytes, int]:
    """Return a batch of values of the schema, and how large one is."""
    parsed = fastavro.parse_schema(ORDER)
    values = []
    for number in range(_BATCH_RECORDS):
        out = io.BytesIO()
        out.write(pack_header(schema_id))
        order = {
            "id": number, "item": "a cup of tea, with milk and sugar", "price": 2.5,
            "tags": ["kitchen", "breakfast"], "note": "to the terrace, please", "is_paid": True,
        }  # fmt: skip
        fastavro.schemaless_writer(out, parsed, order)
        values.append(out.getvalue())
    stamp = time.time_ns() // 1_000_000
    records = [Record(number, stamp, None, value) for number, value in enumerate(values)]
    return bytes(build_batch(records)), len(values[0])
