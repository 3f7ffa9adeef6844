"""Batches that are damaged, lie or blow up: refused whole, and nobody else notices."""

from __future__ import annotations

import functools
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cramjam
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from moldau.broker.api import registry
from moldau.records.batch import (
    CONTROL_BIT,
    CRC_POSITION,
    CRC_START,
    HEADER_SIZE,
    BatchHeader,
    read_header,
)
from moldau.records.compression import Codec, compress
from moldau.records.record import assemble
from moldau.wire.apis import Api
from moldau.wire.errors import Error
from tests.broker.broker_process import BrokerProcess
from tests.broker.net.bad_input import a_broker, memory_flat, others_are_served
from tests.broker.wire_client import Client, make_batch, produce_values

pytestmark = pytest.mark.skipif(
    not Path("/proc/self/clear_refs").exists(), reason="memory is read from /proc"
)


registry.load()


BAD = {Error.CORRUPT_MESSAGE, Error.INVALID_RECORD}


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with a_broker(tmp_path_factory.mktemp("bad-input") / "data") as process:
        yield process


@pytest.fixture(autouse=True)
def healthy(process: BrokerProcess) -> Iterator[None]:
    with others_are_served(process):
        yield


# Batches


def altered(batch: bytearray, **changes: int) -> bytearray:
    """The batch with other header fields and a right CRC; its length is set as it is."""
    return assemble(read_header(batch)._replace(**changes), bytes(batch[HEADER_SIZE:]))


def with_length(batch: bytearray, length: int) -> bytearray:
    out = bytearray(batch)
    struct.pack_into(">i", out, 8, length)
    return out


def bad_batches() -> dict[str, bytearray]:
    good = make_batch(b"one", b"two", b"three")
    header: BatchHeader = read_header(good)
    flipped = bytearray(good)
    flipped[-1] ^= 1
    wrong_crc = bytearray(good)
    wrong_crc[CRC_POSITION] ^= 0x80
    bad = {
        "a flipped bit": flipped,
        "a wrong crc": wrong_crc,
        "two batches": good + make_batch(b"four"),
        "half a second batch": good + make_batch(b"four")[:30],
        "bytes after the end": good + b"\x00",
        "a control batch": altered(good, attributes=CONTROL_BIT),
        "an unknown codec": altered(good, attributes=7),
        "no records": altered(good, count=0, last_offset_delta=-1),
        "a negative count": altered(good, count=-3, last_offset_delta=-4),
        "a count without offsets": altered(good, count=3, last_offset_delta=0),
        "offsets without a count": altered(good, count=1, last_offset_delta=2),
        "a huge count": altered(good, count=2**31 - 1, last_offset_delta=2**31 - 2),
        "a count too large for its bytes": altered(good, count=30, last_offset_delta=29),
        "a header only": assemble(header, b""),
        "an offset of its own": altered(good, base_offset=1000),
    }
    for size in (1, 12, 17, CRC_START, HEADER_SIZE - 1, HEADER_SIZE, len(good) - 1):
        bad[f"the first {size} bytes"] = good[:size]
    for length in (-1, 0, 48, header.length - 1, header.length + 1, 2**31 - 1, -(2**31)):
        bad[f"a length of {length}"] = with_length(good, length)
    for magic in (0, 1, 3, -1, 127):
        out = bytearray(good)
        struct.pack_into(">b", out, 16, magic)
        bad[f"magic {magic}"] = out
    return bad


@pytest.mark.parametrize("topic", ["plain", "recompressed", "compacted"])
def test_bad_batches_are_refused_and_nothing_is_written(process: BrokerProcess, topic: str) -> None:
    with Client(process.address) as client:
        end = client.end_of(topic)
        for what, batch in bad_batches().items():
            answer = client.produce(topic, batch)
            assert answer.error_code in BAD, (what, answer)
            assert answer.base_offset == -1
        assert client.end_of(topic) == end
        good = client.produce(topic, make_batch(b"good", key=b"k"))
        assert (good.error_code, good.base_offset) == (0, end)


def test_a_bad_batch_does_not_spoil_the_good_ones_beside_it(process: BrokerProcess) -> None:
    with Client(process.address) as client:
        end = client.end_of("plain")
        frames = [
            client.frame(Api.PRODUCE, 9, **produce_values({"plain": {0: batch}}))
            for batch in (make_batch(b"a"), make_batch(b"b")[:-1], make_batch(b"c"))
        ]
        client.send_bytes(b"".join(frames))
        answers = [client.receive().responses[0].partition_responses[0] for _ in frames]
        assert [each.base_offset for each in answers] == [end, -1, end + 1]
        records = client.fetch("plain", end)
        assert records.high_watermark == end + 2


@pytest.mark.parametrize("topic", ["recompressed", "unpacked", "compacted"])
@pytest.mark.parametrize("codec", [codec for codec in Codec if codec])
def test_records_that_lie_are_refused_where_the_broker_looks(
    process: BrokerProcess, topic: str, codec: Codec
) -> None:
    good = make_batch(b"value" * 10, b"value" * 10, key=b"k", codec=codec)
    header = read_header(good)
    nonsense = {
        "not the codec's format": assemble(header, b"\x00nonsense" * 5),
        "cut short": assemble(header, bytes(good[HEADER_SIZE:-8])),
        "more records than there are": altered(good, count=3, last_offset_delta=2),
        "fewer records than there are": altered(good, count=1, last_offset_delta=0),
        "nothing": assemble(header, b""),
    }
    other = make_batch(b"v", key=b"k")
    for body in (b"\xff" * 30, bytes(30), b"\x01" * 30, bytes(other[HEADER_SIZE:]) + b"\x00"):
        packed = make_batch(b"v", b"w", key=b"k", codec=codec)
        squeezed = _squeeze(codec, body)
        nonsense[f"records of {body[:4]!r}"] = assemble(read_header(packed), squeezed)
    with Client(process.address) as client:
        end = client.end_of(topic)
        for what, batch in nonsense.items():
            if topic == "recompressed" and codec is Codec.ZSTD:
                # Already in the topic's codec, so it is kept as it came.
                continue
            answer = client.produce(topic, batch)
            assert answer.error_code in BAD, (what, answer)
        assert client.end_of(topic) == end


def _squeeze(codec: Codec, body: bytes) -> bytes:

    return compress(codec, body)


@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_mutated_batches_are_taken_whole_or_refused(
    process: BrokerProcess, data: st.DataObject
) -> None:
    codec = data.draw(st.sampled_from(Codec))
    topic = data.draw(st.sampled_from(["plain", "recompressed", "unpacked", "compacted"]))
    batch = make_batch(b"one" * 5, b"two" * 5, key=b"k", codec=codec)
    body = bytearray(batch[HEADER_SIZE:])
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(0, len(body)))
        body[place : place + data.draw(st.integers(0, 4))] = data.draw(st.binary(max_size=4))
    # The CRC is right, so that whatever is inside is really looked at.
    broken = assemble(read_header(batch), body)
    with Client(process.address) as client:
        end = client.end_of(topic)
        answer = client.produce(topic, broken)
        if answer.error_code:
            assert answer.error_code in BAD | {Error.MESSAGE_TOO_LARGE}
            assert client.end_of(topic) == end
        else:
            assert client.end_of(topic) == end + 2


# Bombs


@functools.cache
def bomb(codec: Codec, mib: int) -> bytes:
    """Zeros, so many of them."""
    chunk = bytes(1 << 20)
    stream: Any
    if codec is Codec.GZIP:
        stream = cramjam.gzip.Compressor(level=9)
    elif codec is Codec.ZSTD:
        stream = cramjam.zstd.Compressor(level=3)
    else:
        stream = cramjam.lz4.Compressor(level=9, block_linked=True)
    for _ in range(mib):
        stream.compress(chunk)
    return bytes(stream.finish())


@pytest.mark.parametrize("topic", ["recompressed", "unpacked", "compacted"])
@pytest.mark.parametrize(("codec", "mib"), [(Codec.GZIP, 250), (Codec.ZSTD, 250), (Codec.LZ4, 220)])
def test_a_bomb_does_not_go_off(process: BrokerProcess, codec: Codec, mib: int, topic: str) -> None:
    if topic == "recompressed" and codec is Codec.ZSTD:
        pytest.skip("already in the topic's codec, so nobody looks inside")
    header = read_header(make_batch(b"x", key=b"k", codec=codec))
    batch = assemble(header, bomb(codec, mib))
    assert len(batch) < 1 << 20
    with Client(process.address) as client, memory_flat(process, 300):
        end = client.end_of(topic)
        answer = client.produce(topic, batch)
        assert answer.error_code in BAD | {Error.MESSAGE_TOO_LARGE}
        assert client.end_of(topic) == end


def test_a_snappy_block_that_claims_gigabytes_does_not_go_off(process: BrokerProcess) -> None:
    header = read_header(make_batch(b"x", key=b"k", codec=Codec.SNAPPY))
    lies = [
        b"\xff\xff\xff\xff\x0f\x00\x00",
        b"\x80\x80\x80\x80\x04" + b"\xfe\x01\x00" * 1000,
        b"\x82SNAPPY\x00" + struct.pack(">iii", 1, 1, 2**31 - 1) + bytes(10),
        b"\x82SNAPPY\x00" + struct.pack(">iii", 1, 1, 7) + b"\xff\xff\xff\xff\x0f\x00\x00",
    ]
    with Client(process.address) as client, memory_flat(process, 20):
        for lie in lies:
            for topic in ("recompressed", "unpacked", "compacted"):
                answer = client.produce(topic, assemble(header, lie))
                assert answer.error_code in BAD | {Error.MESSAGE_TOO_LARGE}


def test_a_bomb_that_was_stored_unseen_does_not_go_off_when_a_time_is_looked_up(
    process: BrokerProcess,
) -> None:
    header = read_header(make_batch(b"x", key=b"k", codec=Codec.ZSTD))
    batch = assemble(header, bomb(Codec.ZSTD, 250))
    with Client(process.address) as client, memory_flat(process, 300):
        assert client.produce("plain", batch).error_code == 0
        wanted = {"partition_index": 0, "timestamp": header.max_timestamp}
        wanted["current_leader_epoch"] = -1
        answer = client.ask(Api.LIST_OFFSETS, topics=[{"name": "plain", "partitions": [wanted]}])
        assert answer.topics[0].partitions[0].error_code in (0, *BAD)
