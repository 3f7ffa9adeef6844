"""Stops, clean and not: what was acknowledged is there afterwards, and nothing torn is served."""

from __future__ import annotations

import signal
import socket
import subprocess
import threading
from pathlib import Path

import pytest

from moldau.testing import Broker
from moldau.testing.waiting import until
from moldau.wire.apis import Api
from tests.broker.broker_process import BrokerProcess
from tests.broker.wire_client import PATIENCE_S, Client, inside, make_batch, until_parked

CLEAN_MARKER = ".kafka_cleanshutdown"


class Writer(threading.Thread):
    """Writes numbered values as fast as they are acknowledged, a few requests in flight."""

    def __init__(self, address: tuple[str, int], topic: str, start: int) -> None:
        super().__init__(daemon=True)
        self._address = address
        self._topic = topic
        self._start = start
        self.acknowledged: list[tuple[int, bytes]] = []
        self.sent = start

    def run(self) -> None:
        try:
            with Client(self._address) as client:
                for _ in range(10):
                    self._send(client)
                while True:
                    result = client.receive().responses[0].partition_responses[0]
                    assert result.error_code == 0
                    place = self._start + len(self.acknowledged)
                    self.acknowledged.append((result.base_offset, _value(place)))
                    self._send(client)
        except OSError:
            return

    def wait_for(self, count: int) -> None:
        """Returns when so many values have been acknowledged."""
        until(lambda: len(self.acknowledged) >= count, f"{count} writes")

    def _send(self, client: Client) -> None:
        client.send_produce(self._topic, make_batch(_value(self.sent)))
        self.sent += 1


def _value(place: int) -> bytes:
    return b"%06d" % place * 100


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_finishes_what_is_in_flight_and_marks_a_clean_stop(
    tmp_path: Path, number: signal.Signals
) -> None:
    folder = tmp_path / "data"
    # Longer than anybody waits here, if it were waited for those who do not read.
    drain = ["shutdown.drain.ms=600000"]
    with BrokerProcess(folder, drain) as process, Client(process.address) as client:
        for topic in ("t", "quiet"):
            client.create(topic)
        writer = Writer(process.address, "t", 0)
        writer.start()
        with Client(process.address) as consumer, Client(process.address) as idle:
            idle.ask(Api.API_VERSIONS, 0)
            consumer.send_fetch({"quiet": [0]}, max_wait=600_000)
            writer.wait_for(50)
            assert process.stop(number) == 0
            # The long poll was answered, not cut off.
            assert consumer.receive().responses[0].partitions[0].error_code == 0
            assert consumer.is_closed()
        writer.join(PATIENCE_S)
        assert "stopped cleanly" in process.log
        assert (folder / CLEAN_MARKER).exists()
    with BrokerProcess(folder) as process, Client(process.address) as client:
        assert "after a clean stop" in process.log
        values = client.values("t")
        for offset, value in writer.acknowledged:
            assert values[offset] == value


def test_a_start_after_a_clean_stop_does_not_read_the_data(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    with BrokerProcess(folder) as process, Client(process.address) as client:
        client.create("t")
        for _ in range(20):
            client.produce("t", make_batch(bytes(1000)))
        assert process.stop() == 0
    segment = folder / "t-0" / "00000000000000000000.log"
    data = bytearray(segment.read_bytes())
    data[5000:6000] = bytes(1000)
    segment.write_bytes(data)
    # A scan would find the damage and cut the log there.
    with BrokerProcess(folder) as process, Client(process.address) as client:
        assert client.end_of("t") == 20
        process.process.kill()
        process.process.wait(PATIENCE_S)


def test_a_client_that_never_reads_does_not_hold_up_a_stop(tmp_path: Path) -> None:
    with (
        BrokerProcess(tmp_path / "data", ["shutdown.drain.ms=300"]) as process,
        Client(process.address) as client,
    ):
        client.create("t")
        for _ in range(8):
            client.produce("t", make_batch(bytes(1_000_000)))
        with Client(process.address) as lazy:
            wanted = {"partition": 0, "partition_max_bytes": 50 << 20}
            for _ in range(5):
                lazy.send_fetch({"t": [wanted]})
            lazy.socket.recv(1)
            assert process.stop() == 0


def test_a_second_signal_changes_nothing(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as process:
        process.process.send_signal(signal.SIGTERM)
        process.process.send_signal(signal.SIGINT)
        assert process.process.wait(PATIENCE_S) == 0


def test_kill_9_loses_nothing_that_was_acknowledged_and_tears_nothing(tmp_path: Path) -> None:
    """The machine lives on, so all that was written is in the page cache, flushed or not."""
    folder = tmp_path / "data"
    acknowledged: dict[int, bytes] = {}
    settings = ["log.flush.offset.checkpoint.interval.ms=20", "log.segment.bytes=100000"]
    sent = 0
    for kill in range(5):
        with BrokerProcess(folder, settings) as process:
            with Client(process.address) as client:
                if not kill:
                    client.create("t")
                values = client.values("t")
                assert {offset: values[offset] for offset in acknowledged} == acknowledged
                # Written but not acknowledged is allowed; twice or out of order is not.
                assert len(set(values)) == len(values)
                assert values == sorted(values, key=lambda value: value or b"")
            writer = Writer(process.address, "t", sent)
            writer.start()
            writer.wait_for(100 + 37 * kill)
            process.process.kill()
            process.process.wait(PATIENCE_S)
            writer.join(PATIENCE_S)
            acknowledged |= dict(writer.acknowledged)
            sent = writer.sent
            assert not (folder / CLEAN_MARKER).exists()
    with BrokerProcess(folder, settings) as process, Client(process.address) as client:
        values = client.values("t")
        assert {offset: values[offset] for offset in acknowledged} == acknowledged
        assert client.produce("t", make_batch(b"on")).base_offset == len(values)
        assert process.stop() == 0
        assert (folder / CLEAN_MARKER).exists()


def test_a_torn_tail_is_cut_and_never_served(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    with BrokerProcess(folder) as process, Client(process.address) as client:
        client.create("t")
        for place in range(10):
            client.produce("t", make_batch(_value(place)))
        process.process.kill()
        process.process.wait(PATIENCE_S)
    segment = folder / "t-0" / "00000000000000000000.log"
    whole = segment.read_bytes()
    segment.write_bytes(whole + whole[:300])
    with BrokerProcess(folder) as process, Client(process.address) as client:
        assert client.values("t") == [_value(place) for place in range(10)]
        assert client.produce("t", make_batch(b"next")).base_offset == 10
        process.process.kill()
        process.process.wait(PATIENCE_S)
    segment.write_bytes(segment.read_bytes()[:-1])
    with BrokerProcess(folder) as process, Client(process.address) as client:
        assert client.values("t") == [_value(place) for place in range(10)]


def test_topics_and_producers_survive_kill_9(tmp_path: Path) -> None:
    folder = tmp_path / "data"

    def numbered(sequence: int) -> bytearray:
        return make_batch(b"x", producer_id=5, producer_epoch=1, base_sequence=sequence)

    with BrokerProcess(folder) as process, Client(process.address) as client:
        client.create("t", partitions=3, retention_ms="12345678")
        topic_id = client.topic_id("t")
        for sequence in range(3):
            assert client.produce("t", numbered(sequence), partition=2).error_code == 0
        process.process.kill()
        process.process.wait(PATIENCE_S)
    with BrokerProcess(folder) as process, Client(process.address) as client:
        assert client.topic_id("t") == topic_id
        again = client.produce("t", numbered(1), partition=2)
        assert (again.error_code, again.base_offset) == (0, 1)
        assert client.produce("t", numbered(3), partition=2).base_offset == 3
        fetched = client.fetch("t", 3, partition=2)
        assert fetched.error_code == 0


# Refused starts


def refused_start(folder: Path, port: int = 0) -> tuple[int, str]:
    """Exit status and stderr of a broker that must not come up."""
    process = BrokerProcess(folder, port=port)
    try:
        out, _ = process.process.communicate(timeout=PATIENCE_S)
    except subprocess.TimeoutExpired:
        process.process.kill()
        raise
    assert out == ""
    return process.process.returncode, process.log


def test_a_second_broker_on_the_same_folder_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    with BrokerProcess(folder) as process, Client(process.address) as client:
        client.create("t")
        status, said = refused_start(folder)
        assert status == 1
        assert f"error: {folder} is in use by another broker" in said
        assert "Traceback" not in said
        assert client.produce("t", make_batch(b"x")).error_code == 0


def test_a_port_in_use_is_refused_and_leaves_the_folder_alone(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        status, said = refused_start(tmp_path / "data", port)
    assert status == 1
    assert f"127.0.0.1:{port} is in use by another process" in said
    assert "--listen" in said
    assert "Traceback" not in said
    with BrokerProcess(tmp_path / "data") as process, Client(process.address) as client:
        assert client.ask(Api.API_VERSIONS, 0).error_code == 0


# In-process


# Longer than a test may take.
FOR_EVER = 3_600_000


@pytest.mark.moldau(shutdown_drain_ms=FOR_EVER)
def test_a_stop_answers_what_waits_and_ends_every_connection(moldau_broker: Broker) -> None:
    moldau_broker.create_topic("t")
    clients = [Client(moldau_broker) for _ in range(20)]
    for client in clients:
        client.send_fetch({"t": [0]}, max_wait=FOR_EVER)
    partition = inside(moldau_broker, lambda server: server.partitions["t", 0])
    until_parked(partition, 20)
    moldau_broker.stop()
    for client in clients:
        assert client.receive().responses[0].partitions[0].error_code == 0
        assert client.is_closed()
        client.close()


@pytest.mark.moldau(shutdown_drain_ms=FOR_EVER)
def test_a_consumer_that_asks_again_and_again_does_not_hold_up_a_stop(
    moldau_broker: Broker,
) -> None:
    moldau_broker.create_topic("t")
    partition = inside(moldau_broker, lambda server: server.partitions["t", 0])

    def consume() -> None:
        try:
            with Client(moldau_broker) as client:
                while True:
                    client.fetch("t", 0, max_wait=500)
        except OSError:
            return

    threads = [threading.Thread(target=consume, daemon=True) for _ in range(3)]
    for thread in threads:
        thread.start()
    until_parked(partition, 3)
    moldau_broker.stop()
    for thread in threads:
        thread.join(PATIENCE_S)
        assert not thread.is_alive()
