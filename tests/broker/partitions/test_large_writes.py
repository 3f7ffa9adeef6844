"""Large requests are written by a thread: others are served meanwhile, and the order is kept."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator

import pytest

from moldau.broker.server import Broker as Server
from moldau.log.segments.prewrite import Prewrite
from moldau.records.checksum import crc32c
from moldau.testing import Broker
from moldau.testing.waiting import until
from moldau.wire.apis import Api
from moldau.wire.errors import Error
from tests.broker.wire_client import Client, inside, make_batch, produce_values

SIZE = 6 << 20
PATIENCE_S = 60


class Gate:
    """Where the thread that writes is stopped, before the first piece."""

    def __init__(self) -> None:
        self.reached, self.opened = threading.Event(), threading.Event()
        self.threads: list[str] = []

    def reach(self) -> None:
        assert self.reached.wait(PATIENCE_S)


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    gate = Gate()
    write = Prewrite.run

    def stop(self: Prewrite) -> None:
        gate.threads.append(threading.current_thread().name)
        gate.reached.set()
        assert gate.opened.wait(PATIENCE_S)
        write(self)

    monkeypatch.setattr(Prewrite, "run", stop)
    yield gate
    gate.opened.set()


def numbered(sequence: int, size: int) -> bytearray:
    return make_batch(bytes(size), producer_id=7, producer_epoch=0, base_sequence=sequence)


def created(client: Client) -> str:
    return client.create(max_message_bytes=str(50 << 20))


def test_others_are_served_and_the_order_is_kept(moldau_broker: Broker, gate: Gate) -> None:
    with (
        Client(moldau_broker) as large,
        Client(moldau_broker) as same,
        Client(moldau_broker) as other,
    ):
        topic, another = created(other), other.create()
        frames = [
            large.frame(Api.PRODUCE, 9, **produce_values({topic: {0: numbered(place, size)}}))
            for place, size in enumerate((10, SIZE, 20, SIZE, 30))
        ]
        sending = threading.Thread(target=large.send_bytes, args=[b"".join(frames)])
        sending.start()
        gate.reach()
        assert large.receive().responses[0].partition_responses[0].base_offset == 0
        same.send_produce(topic, make_batch(b"behind"))
        # The loop goes on: others write elsewhere, and read what is there.
        assert other.produce(another, make_batch(b"x")).base_offset == 0
        assert other.end_of(topic) == 1
        same.expect_nothing()
        gate.opened.set()
        for offset in (1, 2, 3, 4):
            result = large.receive().responses[0].partition_responses[0]
            assert result.error_code == 0
            assert offset <= result.base_offset <= offset + 1
        sending.join(PATIENCE_S)
        assert 1 < same.receive().responses[0].partition_responses[0].base_offset < 6
        sizes = [len(value or b"") for value in other.values(topic)]
        assert [size for size in sizes if size != 6] == [10, SIZE, 20, SIZE, 30]
    assert len(gate.threads) == 2
    assert "moldau-broker" not in gate.threads


@pytest.fixture
def written(moldau_broker: Broker, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """The thread and the bytes of each write below the broker's folder."""
    written: list[tuple[str, int]] = []
    folder = str(moldau_broker.data_dir)

    def watched(name: str) -> Callable[..., int]:
        write: Callable[..., int] = getattr(os, name)

        def call(*given: object) -> int:
            done = write(*given)
            if os.readlink(f"/proc/self/fd/{given[0]}").startswith(folder):
                written.append((threading.current_thread().name, done))
            return done

        return call

    for name in ("write", "writev", "pwrite"):
        monkeypatch.setattr(os, name, watched(name))
    return written


@pytest.mark.parametrize(
    "config", [{}, {"compression_type": "zstd"}, {"cleanup_policy": "compact"}]
)
def test_the_loop_writes_no_more_than_a_header(
    moldau_broker: Broker, written: list[tuple[str, int]], config: dict[str, str]
) -> None:
    """Twice, and once with what another sent before in the same receive."""
    value = os.urandom(20 << 20)
    with Client(moldau_broker) as client:
        topic = client.create(None, 1, max_message_bytes=str(50 << 20), **config)
        large = make_batch(value, key=b"key")
        frames = [
            client.frame(Api.PRODUCE, 9, **produce_values({topic: {0: batch}}))
            for batch in (make_batch(b"x", key=b"small"), large, large)
        ]
        client.send_bytes(b"".join(frames))
        for offset in range(3):
            result = client.receive().responses[0].partition_responses[0]
            assert (result.error_code, result.base_offset) == (0, offset)
        assert client.values(topic) == [b"x", value, value]
    by_loop = [size for thread, size in written if thread == "moldau-broker"]
    assert max(by_loop) < 10_000
    assert sum(size for _, size in written) > 2 * len(value)


def test_the_loop_writes_only_headers_of_batches_that_are_large_in_sum(
    moldau_broker: Broker, written: list[tuple[str, int]]
) -> None:
    batch = make_batch(bytes(20_000))
    with Client(moldau_broker) as client:
        topic = client.create(partitions=250)
        written.clear()
        answer = client.ask(
            Api.PRODUCE, 9, **produce_values({topic: dict.fromkeys(range(250), batch)})
        )
        results = answer.responses[0].partition_responses
        assert [(each.error_code, each.base_offset) for each in results] == [(0, 0)] * 250
        by_loop = sum(size for thread, size in written if thread == "moldau-broker")
        assert by_loop < 250 * 100
        assert len(client.values(topic, 249)) == 1


def test_the_loop_checks_no_large_batch(
    moldau_broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread does; what it finds counts only for what it has read."""
    checked: list[int] = []

    def watched(data: memoryview) -> int:
        checked.append(len(data))
        return crc32c(data)

    monkeypatch.setattr("moldau.log.log.crc32c", watched)
    with Client(moldau_broker) as client:
        topic = created(client)
        assert client.produce(topic, make_batch(b"x")).base_offset == 0
        assert checked.pop() < 100
        large = make_batch(bytes(SIZE))
        assert client.produce(topic, large).base_offset == 1
        assert not checked
        large[-1] ^= 1
        assert client.produce(topic, large).error_code == Error.CORRUPT_MESSAGE
        large[-1] ^= 1
        assert client.produce(topic, large).base_offset == 2
        assert len(client.values(topic)) == 3


def test_many_partitions_in_one_request_are_written_by_the_thread(
    moldau_broker: Broker, gate: Gate
) -> None:
    gate.opened.set()
    with Client(moldau_broker) as client:
        topic = client.create(partitions=12)
        batch = make_batch(bytes(500_000))
        answer = client.ask(
            Api.PRODUCE, 9, **produce_values({topic: dict.fromkeys(range(12), batch)})
        )
        results = answer.responses[0].partition_responses
        assert [each.error_code for each in results] == [0] * 12
        assert [client.end_of(topic, index) for index in range(12)] == [1] * 12
    assert len(gate.threads) == 12


def test_a_repeated_batch_is_not_written_twice(moldau_broker: Broker) -> None:
    with Client(moldau_broker) as client:
        topic = created(client)
        for _ in range(2):
            assert client.produce(topic, numbered(0, SIZE)).base_offset == 0
        assert client.produce(topic, numbered(1, 10)).base_offset == 1
        assert [len(value or b"") for value in client.values(topic)] == [SIZE, 10]


def test_a_topic_is_deleted_and_made_anew_meanwhile(moldau_broker: Broker, gate: Gate) -> None:
    with Client(moldau_broker) as large, Client(moldau_broker) as client:
        topic = created(client)
        large.send_produce(topic, numbered(0, SIZE))
        gate.reach()
        client.ask(Api.DELETE_TOPICS, topics=[{"name": topic}])
        until(lambda: not inside(moldau_broker, lambda server: _has(server, topic)), "deletion")
        gate.opened.set()
        code = large.receive().responses[0].partition_responses[0].error_code
        assert code == Error.UNKNOWN_TOPIC_OR_PARTITION
        client.create(topic)
        assert client.produce(topic, make_batch(b"x")).base_offset == 0
        assert client.values(topic) == [b"x"]


def _has(server: Server, topic: str) -> bool:
    return (topic, 0) in server.logs.logs


def test_leadership_is_lost_meanwhile(moldau_broker: Broker, gate: Gate) -> None:
    with Client(moldau_broker) as large, Client(moldau_broker) as client:
        topic = created(client)
        client.produce(topic, make_batch(b"x"))
        large.send_produce(topic, numbered(0, SIZE))
        gate.reach()
        inside(moldau_broker, lambda server: server.partitions[topic, 0].resign())
        gate.opened.set()
        code = large.receive().responses[0].partition_responses[0].error_code
        assert code == Error.NOT_LEADER_OR_FOLLOWER
        log = inside(moldau_broker, lambda server: server.partitions[topic, 0].log)
        assert os.stat(log.segments[-1].batches.path).st_size == log.segments.size < SIZE


@pytest.mark.parametrize("acks", [0, 1])
def test_whose_connection_ends_meanwhile_has_its_write_all_the_same(
    moldau_broker: Broker, gate: Gate, acks: int
) -> None:
    """Its buffer is not given back while the thread reads from it."""
    with Client(moldau_broker) as large, Client(moldau_broker) as client:
        topic = created(client)
        value = os.urandom(SIZE)
        large.send_produce(topic, make_batch(value), acks=acks)
        gate.reach()
        # Who is not read from is not seen to hang up, so the broker does it.
        inside(moldau_broker, _hang_up)
        until(lambda: inside(moldau_broker, lambda server: len(server.connections)) < 2, "an end")
        gate.opened.set()
        assert client.produce(topic, make_batch(b"x")).base_offset == 1
        assert client.values(topic) == [value, b"x"]
        assert inside(moldau_broker, lambda server: server.connections.request_memory.large) == 0


def _hang_up(server: Server) -> None:
    (busy,) = (each for each in server.connections if each.input.filled > SIZE)
    busy.finish()


def test_a_broker_that_stops_meanwhile_answers_first(tmp_path: object, gate: Gate) -> None:
    broker = Broker(data_dir=tmp_path)  # type: ignore[arg-type]
    broker.start()
    with Client(broker) as large:
        topic = created(large)
        large.send_produce(topic, numbered(0, SIZE))
        gate.reach()
        stopping = threading.Thread(target=broker.stop)
        stopping.start()
        large.expect_nothing()
        gate.opened.set()
        assert large.receive().responses[0].partition_responses[0].base_offset == 0
        stopping.join(PATIENCE_S)
    with Broker(data_dir=tmp_path) as again, Client(again) as client:  # type: ignore[arg-type]
        assert [len(value or b"") for value in client.values(topic)] == [SIZE]
