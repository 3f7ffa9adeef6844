"""The background rounds: retention, rolling, checkpoints, and one that fails."""

from __future__ import annotations

import asyncio
import socket
import uuid
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from moldau.broker.upkeep.upkeep import Upkeep
from moldau.cluster.state.changes import TopicDeleted
from moldau.log.errors import StorageError
from moldau.log.flushes.flush import Flush
from moldau.log.log import Log
from moldau.log.retention import delete_expired
from moldau.testing import Broker
from moldau.testing.waiting import until
from moldau.wire.apis import Api
from tests.broker.wire_client import Client, inside, make_batch, now_ms

HOUR_MS = 3_600_000


def run(broker: Broker, work: Callable[[Upkeep], Coroutine[Any, Any, None]]) -> None:
    """One round, now."""
    server = broker._server
    assert server is not None
    broker._call(work(server._upkeep))


def until_flushed(log: Log, offset: int) -> None:
    until(lambda: log.flushed == offset, "a checkpoint")


def earliest(client: Client, topic: str) -> int:
    wanted = {"partition_index": 0, "timestamp": -2, "current_leader_epoch": -1}
    answer = client.ask(Api.LIST_OFFSETS, topics=[{"name": topic, "partitions": [wanted]}])
    offset: int = answer.topics[0].partitions[0].offset
    return offset


def test_old_segments_are_deleted_and_new_ones_kept(moldau_broker: Broker) -> None:
    with Client(moldau_broker) as client:
        client.create("t", retention_ms=str(HOUR_MS), segment_bytes="2000")
        for age in (5, 5, 5, 3, 3, 0, 0):
            batch = make_batch(bytes(900), timestamp=now_ms() - age * HOUR_MS)
            assert client.produce("t", batch).error_code == 0
        run(moldau_broker, Upkeep.delete_expired)
        start = earliest(client, "t")
        assert 4 <= start <= 5
        assert client.fetch("t", 6).error_code == 0


def test_partitions_that_are_too_large_lose_their_oldest_segments(moldau_broker: Broker) -> None:
    with Client(moldau_broker) as client:
        client.create("t", retention_bytes="5000", segment_bytes="2000")
        for _ in range(20):
            client.produce("t", make_batch(bytes(900)))
        run(moldau_broker, Upkeep.delete_expired)
        log = inside(moldau_broker, lambda server: server.partitions["t", 0].log)
        assert 5000 <= log.segments.size < 7000
        assert earliest(client, "t") == log.log_start > 10


def test_a_reader_of_a_segment_that_goes_is_not_disturbed(moldau_broker: Broker) -> None:
    with Client(moldau_broker) as client:
        client.create("t", segment_bytes=str(30 << 20), max_message_bytes=str(2 << 20))
        for place in range(20):
            client.produce("t", make_batch(bytes([place]) * 1_000_000))
        with Client(moldau_broker) as reader:
            reader.send_fetch({"t": [{"partition": 0, "partition_max_bytes": 30 << 20}]})
            reader.socket.recv(1, socket.MSG_PEEK)  # on its way, but most is still in the file
            wanted = {"partition_index": 0, "offset": 20}
            topics = [{"name": "t", "partitions": [wanted]}]
            client.ask(Api.DELETE_RECORDS, topics=topics, timeout=1000)
            client.ask(Api.DELETE_TOPICS, topics=[{"name": "t", "topic_id": None}], timeout=5000)
            records = reader.receive().responses[0].partitions[0].records
            assert len(records) > 20_000_000


def test_a_segment_is_closed_by_its_age(moldau_broker: Broker) -> None:
    with Client(moldau_broker) as client:
        client.create("t", segment_ms="1")
        client.produce("t", make_batch(b"x"))
        log = inside(moldau_broker, lambda server: server.partitions["t", 0].log)

        def rolled() -> bool:
            run(moldau_broker, Upkeep.delete_expired)
            return len(log.segments) == 2

        until(rolled, "a new segment")


def test_one_bad_log_does_not_keep_the_others_from_retention(
    moldau_broker: Broker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(log: Log, now_ms: int) -> Any:
        if log.topic == "bad":
            raise StorageError(log.folder, "no space left on device")
        return delete_expired(log, now_ms)

    monkeypatch.setattr("moldau.broker.upkeep.upkeep.delete_expired", refuse)
    with Client(moldau_broker) as client:
        for topic in ("bad", "good"):
            client.create(topic, retention_ms="1000", segment_bytes="1000")
            for _ in range(3):
                batch = make_batch(bytes(900), timestamp=now_ms() - HOUR_MS)
                assert client.produce(topic, batch).error_code == 0
        run(moldau_broker, Upkeep.delete_expired)
        assert earliest(client, "bad") == 0
        assert earliest(client, "good") == 3
    assert "retention of bad-0 failed" in caplog.text


def test_a_checkpoint_moves_the_recovery_points(moldau_broker: Broker) -> None:
    with Client(moldau_broker) as client:
        client.create("t")
        for _ in range(5):
            client.produce("t", make_batch(b"x"))
        run(moldau_broker, Upkeep.checkpoint)
        log = inside(moldau_broker, lambda server: server.partitions["t", 0].log)
        assert log.flushed == 5
    text = (moldau_broker.data_dir / "recovery-point-offset-checkpoint").read_text()
    assert "t 0 5" in text.splitlines()


def test_one_log_that_cannot_be_flushed_does_not_keep_the_others_from_it(
    moldau_broker: Broker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    flush = Flush.run

    def refuse(self: Flush) -> None:
        if "bad-0" in self._folder:
            raise StorageError(self._folder, "input/output error")
        flush(self)

    monkeypatch.setattr(Flush, "run", refuse)
    with Client(moldau_broker) as client:
        for topic in ("bad", "good"):
            client.create(topic)
            client.produce(topic, make_batch(b"x"))
        run(moldau_broker, Upkeep.checkpoint)
    logs = inside(moldau_broker, lambda server: server.logs.logs)
    assert (logs["bad", 0].flushed, logs["good", 0].flushed) == (0, 1)
    assert "flushing bad-0 failed" in caplog.text
    monkeypatch.undo()


@pytest.mark.moldau({"log.flush.offset.checkpoint.interval.ms": 5})
def test_rounds_come_round_by_themselves(moldau_broker: Broker) -> None:
    with Client(moldau_broker) as client:
        client.create("t")
        for place in range(1, 4):
            client.produce("t", make_batch(b"x"))
            log = inside(moldau_broker, lambda server: server.partitions["t", 0].log)
            until_flushed(log, place)


def test_a_round_that_fails_is_tried_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    rounds = []

    async def fail(upkeep: Upkeep) -> None:
        rounds.append(upkeep)
        raise RuntimeError("nobody has thought of this")

    monkeypatch.setattr(Upkeep, "checkpoint", fail)
    with Broker({"log.flush.offset.checkpoint.interval.ms": 1}):
        until(lambda: len(rounds) >= 3, "three rounds")
    assert "the checkpoint round failed" in caplog.text


def test_a_topic_deleted_in_the_middle_of_a_round_does_no_harm(moldau_broker: Broker) -> None:
    with Client(moldau_broker) as client:
        for place in range(60):
            client.create(f"t{place}")
            client.produce(f"t{place}", make_batch(b"x"))
        server = moldau_broker._server
        assert server is not None

        async def both() -> None:
            rounds = asyncio.gather(server._upkeep.checkpoint(), server._upkeep.delete_expired())
            for place in range(60):
                server.replicas.apply([TopicDeleted(f"t{place}", uuid.uuid4())])
                await asyncio.sleep(0)
            await rounds

        moldau_broker._call(both())


def test_a_quiet_connection_gives_its_buffer_back(
    moldau_broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    moldau_broker.create_topic("t")
    with Client(moldau_broker) as client:
        client.produce("t", make_batch(bytes(900_000)))
        assert inside(moldau_broker, lambda server: server.connections.request_memory.taken) > 0
        # Only now: the broker tends its connections by itself, too.
        monkeypatch.setattr("moldau.broker.upkeep.upkeep._QUIET_MS", -1)
        run(moldau_broker, Upkeep.tend_connections)
        assert inside(moldau_broker, lambda server: server.connections.request_memory.taken) == 0
        assert client.produce("t", make_batch(b"x")).base_offset == 1


@pytest.mark.moldau(log_retention_ms=-1)
def test_old_records_that_are_sent_again_after_a_round_are_not_doubled(
    moldau_broker: Broker,
) -> None:
    """An import of last year's records: its producer has just written, whatever they are dated."""
    moldau_broker.create_topic("t")
    long_ago = now_ms() - 365 * 24 * 3_600_000
    batch = make_batch(b"x", timestamp=long_ago, producer_id=7, producer_epoch=0, base_sequence=0)
    with Client(moldau_broker) as client:
        assert client.produce("t", batch).base_offset == 0
        run(moldau_broker, Upkeep.delete_expired)
        again = client.produce("t", batch)
        assert (again.error_code, again.base_offset) == (0, 0)
        assert client.values("t") == [b"x"]
