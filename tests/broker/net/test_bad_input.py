"""Bad input: the sender gets an error or is hung up on, and everybody else is served.

All of it goes to one broker process, which has to be alive and well after each test.
"""

from __future__ import annotations

import random
import resource
import socket
import struct
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from moldau.broker.api import registry
from moldau.broker.api.cluster.api_versions import served_versions
from moldau.wire.apis import VERSIONS, Api
from moldau.wire.headers import request_frame
from moldau.wire.messages import encode_request
from moldau.wire.primitives import INT32, uvarint
from moldau.wire.schemas import element_type, is_array, request_schema
from tests.broker.broker_process import BrokerProcess
from tests.broker.net.bad_input import a_broker, memory_flat, others_are_served
from tests.broker.wire_client import Client, make_batch, produce_values

pytestmark = pytest.mark.skipif(
    not Path("/proc/self/clear_refs").exists(), reason="memory is read from /proc"
)


registry.load()


SERVED = [
    (Api(api), version)
    for api in served_versions()
    for version in range(VERSIONS[Api(api)].first, VERSIONS[Api(api)].last + 1)
]


# What changes clusters is not sent at random.
HARMLESS = [each for each in SERVED if each[0] not in (Api.CREATE_TOPICS, Api.DELETE_TOPICS)]


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with a_broker(tmp_path_factory.mktemp("bad-input") / "data") as process:
        yield process


@pytest.fixture(autouse=True)
def healthy(process: BrokerProcess) -> Iterator[None]:
    with others_are_served(process):
        yield


def send_and_see_closed(process: BrokerProcess, data: bytes) -> None:
    with Client(process.address) as client:
        try:
            client.send_bytes(data)
        except ConnectionError:
            return
        assert client.is_closed(), data[:40]


# Frames


@pytest.mark.parametrize(
    "size", [2**31 - 1, (100 << 20) + 1, 0, -1, -(2**31), 0x47455420, 0x16030100]
)
def test_a_size_that_cannot_be_closes_the_connection(process: BrokerProcess, size: int) -> None:
    with memory_flat(process, 5):
        send_and_see_closed(process, INT32.pack(size))
        send_and_see_closed(process, INT32.pack(size) + bytes(1000))


def test_other_protocols_are_hung_up_on(process: BrokerProcess) -> None:
    for hello in (
        b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(500),
        b"SSH-2.0-OpenSSH_9.6\r\n",
        b"\xff" * 5000,
    ):
        send_and_see_closed(process, hello)


@pytest.mark.parametrize("size", range(1, 14))
def test_a_frame_too_short_for_a_header_closes_the_connection(
    process: BrokerProcess, size: int
) -> None:
    for filling in (b"\x00", b"\x7f", b"\xff"):
        data = filling * size
        if size >= 10:
            # Api 3, version 12: a client id or tags that reach beyond the end.
            data = struct.pack(">hhih", 3, 12, 1, 30) + data[10:]
        send_and_see_closed(process, INT32.pack(size) + data)


def test_large_claims_take_no_memory(process: BrokerProcess) -> None:
    with ExitStack() as stack, memory_flat(process, 20):
        for _ in range(50):
            client = stack.enter_context(Client(process.address))
            client.send_bytes(INT32.pack(100 << 20) + bytes(20_000))
        for _ in range(20):
            client.expect_nothing(0.005)


def test_half_frames_hold_nobody_up(process: BrokerProcess) -> None:
    with ExitStack() as stack:
        for size in range(1, 60):
            client = stack.enter_context(Client(process.address))
            client.send_bytes(client.frame(Api.METADATA, topics=[{"name": "healthy"}])[:size])
        # The test's own client is served while they wait; some of them go on.
        with Client(process.address) as other:
            assert other.ask(Api.API_VERSIONS, 0).error_code == 0


def test_slow_senders_are_served_as_slowly_as_they_like(process: BrokerProcess) -> None:
    with ExitStack() as stack, memory_flat(process, 20):
        clients = [stack.enter_context(Client(process.address)) for _ in range(100)]
        frames = [client.frame(Api.METADATA, topics=[{"name": "healthy"}]) for client in clients]
        for place in range(len(frames[0])):
            for client, frame in zip(clients, frames, strict=True):
                client.send_bytes(frame[place : place + 1])
        for client in clients:
            assert client.receive().topics[0].error_code == 0


# Requests


@pytest.mark.parametrize("api", [-1, 4, 5, 6, 7, 17, 36, 71, 72, 1000, 32767, -32768])
def test_an_unknown_api_closes_the_connection(process: BrokerProcess, api: int) -> None:
    for version in (0, 1, 5, 99, -1):
        header = struct.pack(">hhih", api, version, 1, 4) + b"test"
        send_and_see_closed(process, INT32.pack(len(header)) + header)


def test_an_unknown_version_closes_the_connection(process: BrokerProcess) -> None:
    for api in served_versions():
        if api == Api.API_VERSIONS:
            continue
        first, last, _ = VERSIONS[Api(api)]
        for version in {first - 1, last + 1, 32767, -1, -32768}:
            header = struct.pack(">hhih", api, version, 1, 4) + b"test" + bytes(50)
            send_and_see_closed(process, INT32.pack(len(header)) + header)


def sample(schema: type, depth: int = 0) -> dict[str, Any]:
    """Values for every field of a request, arrays with two elements each."""
    values: dict[str, Any] = {}
    for field in fields(schema):
        inner = element_type(field.type)
        value: Any
        if is_dataclass(inner):
            value = sample(inner, depth + 1)  # type: ignore[arg-type]
        else:
            kind = field.metadata["kafka_type"]
            value = {
                "string": "abc",
                "uuid": UUID(int=5),
                "bytes": b"abc",
                "records": b"abc",
                "bool": False,
            }.get(kind, 0)
        values[field.name] = [value, value] if is_array(field.type) else value
    return values


def requests() -> dict[tuple[Api, int], bytes]:
    """A body for every version of everything that does no harm."""
    return {
        (api, version): encode_request(api, version, sample(request_schema(api, version)))
        for api, version in HARMLESS
    }


def test_counts_and_lengths_that_lie_do_not_end_the_process(process: BrokerProcess) -> None:
    """kio's reader would take a count at its word and abort; nothing of the kind may reach it."""
    absurd = [
        b"\x7f\xff\xff\xff",
        b"\xff\xff\xff\xfe",
        b"\x80\x00\x00\x00",
        b"\x00\xff\xff\xff",
        b"\xff\xff\xff\xff\x07",
        b"\xff\xff\xff\xff\x0f",
        b"\x80\x80\x80\x80\x08",
        b"\xfe\xff\xff\xff\x7f",
        b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
    ]
    rng = random.Random(2)
    with memory_flat(process, 40):
        for (api, version), body in requests().items():
            for place in rng.sample(range(len(body)), min(len(body), 4)):
                lie = rng.choice(absurd)
                for rest in (body[place + len(lie) :], b""):
                    broken = body[:place] + lie + rest
                    with Client(process.address) as client:
                        try:
                            client.send_bytes(request_frame(api, version, 1, "test", broken))
                        except ConnectionError:
                            continue
                        client.socket.shutdown(socket.SHUT_WR)
                        client.is_closed()
    assert process.is_alive


@pytest.mark.parametrize("api", sorted({api for api, _ in HARMLESS}))
def test_every_request_cut_short_closes_the_connection(process: BrokerProcess, api: Api) -> None:
    last = VERSIONS[api].last
    body = encode_request(api, last, sample(request_schema(api, last)))
    for size in sorted({0, 1, len(body) // 2, len(body) - 2}):
        if size < len(body) - 1:
            send_and_see_closed(process, request_frame(api, last, 1, "test", body[:size]))


def test_lists_without_end_are_refused_before_they_take_memory(process: BrokerProcess) -> None:
    """Honest counts, but millions of elements of a byte or two, which are objects once read."""
    count = 3_000_000
    many = uvarint(count + 1)
    with memory_flat(process, 90):
        for api, version, body in (
            (Api.METADATA, 9, many + b"\x01\x00" * count + b"\x00\x00\x00\x00"),
            (Api.METADATA, 0, INT32.pack(count) + bytes(2) * count),
            (Api.DELETE_TOPICS, 5, many + b"\x01" * count + bytes(5)),
            (Api.PRODUCE, 9, b"\x00" + struct.pack(">hi", -1, 1) + many + b"\x01\x01\x00" * count),
            (
                Api.PRODUCE,
                9,
                b"\x00" + struct.pack(">hi", -1, 1) + b"\x02\x01" + many + bytes(6) * count,
            ),
            (Api.FETCH, 12, bytes(25) + many + b"\x01\x01\x00" * count + b"\x01\x01\x00"),
            # Forgotten partitions
            (Api.FETCH, 7, bytes(25) + INT32.pack(0) + INT32.pack(1) + b"\0\1a" + INT32.pack(count)
                + bytes(4) * count),
            # Tagged fields in the body and in the header
            (Api.METADATA, 9, b"\x00\x00\x00\x00" + uvarint(count) + b"\x10\x00" * count),
        ):  # fmt: skip
            send_and_see_closed(process, request_frame(api, version, 1, "test", body))
        header = struct.pack(">hhih", 3, 9, 1, -1) + uvarint(count) + b"\x10\x00" * count
        send_and_see_closed(process, INT32.pack(len(header)) + header)


def test_null_where_an_array_must_be_is_refused(process: BrokerProcess) -> None:
    for api, version, body in (
        (Api.METADATA, 0, INT32.pack(-1)),
        (Api.LIST_OFFSETS, 1, INT32.pack(-1) + INT32.pack(-1)),
        (Api.LIST_OFFSETS, 10, INT32.pack(-1) + b"\x00\x00" + INT32.pack(0) + b"\x00"),
        (Api.DELETE_RECORDS, 2, b"\x00" + INT32.pack(0) + b"\x00"),
        (Api.DESCRIBE_CONFIGS, 4, b"\x00\x00\x00\x00"),
    ):
        send_and_see_closed(process, request_frame(api, version, 1, "test", body))


def test_long_strings_are_refused(process: BrokerProcess) -> None:
    name = uvarint(5_000_001) + b"x" * 5_000_000
    produce = b"\x00" + struct.pack(">hi", -1, 1) + b"\x02" + name + b"\x01\x00\x00"
    with memory_flat(process, 60):
        send_and_see_closed(process, request_frame(Api.PRODUCE, 9, 1, "test", produce))
        metadata = b"\x02" + name + b"\x00\x00\x00\x00\x00"
        send_and_see_closed(process, request_frame(Api.METADATA, 9, 1, "test", metadata))


def test_strings_that_are_not_utf8_are_refused(process: BrokerProcess) -> None:
    for api, version, body in (
        (Api.METADATA, 1, INT32.pack(1) + b"\x00\x02\xff\xfe"),
        (Api.METADATA, 9, b"\x02\x03\xff\xfe\x00\x00\x00\x00\x00"),
        (Api.PRODUCE, 9, b"\x03\xff\xfe" + struct.pack(">hi", -1, 1) + b"\x01\x00"),
    ):
        send_and_see_closed(process, request_frame(api, version, 1, "test", body))
    # A client's name is only for the log.
    header = struct.pack(">hhih", 18, 0, 7, 3) + b"\xff\xfe\xfd"
    with Client(process.address) as client:
        client.send_bytes(INT32.pack(len(header)) + header)
        assert client.receive_frame()[:6] == INT32.pack(7) + b"\x00\x00"


def test_what_came_before_nonsense_is_answered(process: BrokerProcess) -> None:
    with Client(process.address) as client:
        good = client.frame(Api.PRODUCE, 9, **produce_values({"plain": {0: make_batch(b"x")}}))
        client.send_bytes(good + b"\xff" * 100)
        assert client.receive().responses[0].partition_responses[0].error_code == 0
        assert client.is_closed()


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_mutated_requests_are_answered_or_hung_up_on(
    process: BrokerProcess, data: st.DataObject
) -> None:
    api, version = data.draw(st.sampled_from(HARMLESS))
    body = bytearray(encode_request(api, version, sample(request_schema(api, version))))
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(body)))
        cut = data.draw(st.integers(0, 8))
        body[place : place + cut] = data.draw(st.binary(max_size=8))
    with Client(process.address) as client:
        client.send_bytes(request_frame(api, version, 1, "test", bytes(body)))
        client.socket.shutdown(socket.SHUT_WR)
        assert client.is_closed()
    assert process.is_alive


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(junk=st.binary(min_size=1, max_size=300), framed=st.booleans())
def test_junk_is_answered_or_hung_up_on(process: BrokerProcess, junk: bytes, framed: bool) -> None:
    with Client(process.address) as client:
        client.send_bytes(INT32.pack(len(junk)) + junk if framed else junk)
        client.socket.shutdown(socket.SHUT_WR)
        assert client.is_closed()
    assert process.is_alive


# Many connections


def test_a_thousand_idle_connections_cost_little(process: BrokerProcess) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 3000:
        pytest.skip("too few files allowed")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 3000), hard))
    try:
        with ExitStack() as stack, memory_flat(process, 60):
            for place in range(1000):
                client = stack.enter_context(Client(process.address))
                if place % 2:
                    client.send(Api.API_VERSIONS, 0)
                if place % 100 == 0:
                    assert client.ask(Api.API_VERSIONS, 0).error_code == 0
            with Client(process.address) as other:
                for _ in range(20):
                    assert other.produce("plain", make_batch(b"x")).error_code == 0
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
