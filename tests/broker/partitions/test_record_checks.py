"""Records that a topic looks into: in small steps, the long ones aside, in order all the same."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

import pytest

from moldau.broker.errors import code_and_message
from moldau.broker.partitions.record_checks import Checks, finish_checks
from moldau.log.config import LogConfig
from moldau.log.record_check import RECORDS_A_STEP, RecordCheck
from moldau.records.batch import NotChecked
from moldau.records.compression import Codec
from moldau.records.record import Record, build_batch
from moldau.testing import Broker
from moldau.testing.waiting import until
from moldau.wire.apis import Api
from moldau.wire.errors import Error
from moldau.wire.produce import ProduceCodec, ProduceRequest
from tests.broker.wire_client import Client, inside, make_batch, now_ms, produce_values

COMPACTED = LogConfig.parse({"cleanup.policy": "compact"}, LogConfig())


def tiny_records(count: int, codec: Codec = Codec.ZSTD, keyless: int = -1) -> bytearray:
    stamp = now_ms()
    return build_batch(
        (Record(n, stamp, None if n == keyless else b"k", b"") for n in range(count)), codec
    )


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> list[tuple[RecordCheck, str, bool]]:
    """Each step of every check: on which thread it was done, and whether it was a long one."""
    found: list[tuple[RecordCheck, str, bool]] = []
    step: Callable[[RecordCheck], bool] = RecordCheck.step

    def note(self: RecordCheck) -> bool:
        found.append((self, threading.current_thread().name, self.is_long))
        return step(self)

    monkeypatch.setattr(RecordCheck, "step", note)
    return found


def test_a_step_looks_into_a_bounded_number_of_records() -> None:
    check = RecordCheck(memoryview(tiny_records(100_000)), COMPACTED)
    count = 0
    while check.step():
        count += 1
    assert check.error is None
    assert count >= 100_000 // RECORDS_A_STEP
    assert check.most_records <= RECORDS_A_STEP


def test_large_batches_are_looked_into_aside_and_small_ones_at_once(
    moldau_broker: Broker, steps: list[tuple[RecordCheck, str, bool]]
) -> None:
    moldau_broker.create_topic("t", cleanup_policy="compact")
    with Client(moldau_broker) as client:
        assert client.produce("t", make_batch(b"small", key=b"k")).base_offset == 0
        assert {name for _, name, _ in steps} == {"moldau-broker"}
        steps.clear()
        large = make_batch(bytes(30 << 20), key=b"k", codec=Codec.ZSTD)
        assert client.produce("t", large).base_offset == 1
        for _, name, is_long in steps:
            # Decompressing takes a thread; the loop does no long step itself.
            assert is_long == (name != "moldau-broker")
        assert any(is_long for _, _, is_long in steps)
        steps.clear()
        assert client.produce("t", tiny_records(50_000)).base_offset == 2
        assert max(check.most_records for check, _, _ in steps) <= RECORDS_A_STEP


def test_a_request_whose_records_are_looked_into_is_decoded_once(
    moldau_broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Aside it is decoded anew, once: by then it lies elsewhere."""
    decoded: list[int] = []
    decode = ProduceCodec.decode

    def note(self: ProduceCodec, frame: memoryview, position: int) -> ProduceRequest:
        decoded.append(len(frame))
        return decode(self, frame, position)

    monkeypatch.setattr(ProduceCodec, "decode", note)
    moldau_broker.create_topic("plain")
    moldau_broker.create_topic("compacted", cleanup_policy="compact")
    with Client(moldau_broker) as client:
        for topic in ("plain", "compacted"):
            assert client.produce(topic, make_batch(b"small", key=b"k")).base_offset == 0
        assert len(decoded) == 2
        decoded.clear()
        assert client.produce("compacted", tiny_records(5000)).base_offset == 1
        assert len(decoded) == 2


def test_small_batches_by_the_dozen_in_one_request_are_looked_into_aside_too(
    moldau_broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A few bytes each, but together more records than the loop may look into at once."""
    aside: list[int] = []

    async def note(checks: Checks, slots: asyncio.Semaphore) -> None:
        aside.append(len(checks))
        await finish_checks(checks, slots)

    monkeypatch.setattr("moldau.broker.partitions.record_checks.finish_checks", note)
    moldau_broker.create_topic("t", partitions=40, cleanup_policy="compact")
    batch = tiny_records(RECORDS_A_STEP - 1)
    with Client(moldau_broker) as client:
        wanted = {"t": dict.fromkeys(range(40), batch)}
        answer = client.ask(Api.PRODUCE, 9, **produce_values(wanted))
        results = answer.responses[0].partition_responses
        assert [result.error_code for result in results] == [0] * 40
    assert aside == [40]


def test_requests_around_a_large_one_keep_their_order(moldau_broker: Broker) -> None:
    """Idempotent, pipelined on one connection: small, large, small, and a read behind them."""
    moldau_broker.create_topic("t", cleanup_policy="compact")
    many = 20_000

    def batch(count: int, sequence: int) -> bytearray:
        stamp = now_ms()
        records = (Record(n, stamp, b"k%d" % n, b"v") for n in range(count))
        return build_batch(
            records, Codec.LZ4, producer_id=7, producer_epoch=0, base_sequence=sequence
        )

    with Client(moldau_broker) as client:
        frames, offsets, sequence = [], [], 0
        for count in (1, many, 2, many, 3, many, 1):
            values = produce_values({"t": {0: batch(count, sequence)}})
            frames.append(client.frame(Api.PRODUCE, 9, **values))
            offsets.append(sequence)
            sequence += count
        wanted = {"partition_index": 0, "timestamp": -1, "current_leader_epoch": -1}
        frames.append(
            client.frame(Api.LIST_OFFSETS, topics=[{"name": "t", "partitions": [wanted]}])
        )
        client.send_bytes(b"".join(frames))
        for offset in offsets:
            result = client.receive().responses[0].partition_responses[0]
            assert (result.error_code, result.base_offset) == (0, offset)
        assert client.receive().topics[0].partitions[0].offset == sequence


def test_others_are_served_while_a_large_batch_is_looked_into(
    moldau_broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_go_on = threading.Event()
    step: Callable[[RecordCheck], bool] = RecordCheck.step

    def wait(self: RecordCheck) -> bool:
        if self.is_long:
            assert may_go_on.wait(60)
        return step(self)

    monkeypatch.setattr(RecordCheck, "step", wait)
    moldau_broker.create_topic("t", cleanup_policy="compact")
    with Client(moldau_broker) as slow, Client(moldau_broker) as gone, Client(moldau_broker) as b:
        large = make_batch(bytes(3 << 20), key=b"k", codec=Codec.ZSTD)
        slow.send_produce("t", large)
        gone.send_produce("t", large)
        # Written before it, though it came after.
        assert b.produce("t", make_batch(b"x", key=b"k")).base_offset == 0
        slow.expect_nothing()
        gone.reset()
        may_go_on.set()
        assert slow.receive().responses[0].partition_responses[0].error_code == 0
        assert slow.produce("t", make_batch(b"x", key=b"k")).error_code == 0
        until(lambda: inside(moldau_broker, lambda s: len(s.connections)) == 2, "it to be gone")
        # Who left had sent the whole request, so it may have been carried out.
        assert b.end_of("t") in (3, 4)


def test_a_record_without_a_key_deep_in_a_large_batch_is_named(moldau_broker: Broker) -> None:
    moldau_broker.create_topic("t", cleanup_policy="compact")
    with Client(moldau_broker) as client:
        result = client.produce("t", tiny_records(20_000, keyless=19_998))
        assert result.error_code == Error.INVALID_RECORD
        assert [each.batch_index for each in result.record_errors] == [19_998]
        corrupt = tiny_records(20_000)
        corrupt[-1] ^= 1
        assert client.produce("t", corrupt).error_code == Error.CORRUPT_MESSAGE
        assert client.end_of("t") == 0


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd", "uncompressed"])
def test_large_batches_are_compressed_anew_aside(moldau_broker: Broker, codec: str) -> None:
    moldau_broker.create_topic("t", compression_type=codec, max_message_bytes=10 << 20)
    value = bytes(range(256)) * 16_000
    with Client(moldau_broker) as client:
        before = Codec.ZSTD if codec != "zstd" else Codec.GZIP
        assert client.produce("t", make_batch(value, codec=before)).base_offset == 0
        assert client.values("t") == [value]


def test_a_batch_that_nobody_could_check_is_to_be_sent_again() -> None:
    """The worst: the setting comes, or the broker takes the lead, while the batch is on its way."""
    config = LogConfig.parse({"moldau.value.schema.validation": "true"}, LogConfig())
    with pytest.raises(NotChecked) as refused:
        RecordCheck(memoryview(tiny_records(1)), config).finish()
    assert code_and_message(refused.value)[0] is Error.NOT_ENOUGH_REPLICAS
