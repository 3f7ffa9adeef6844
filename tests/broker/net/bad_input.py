"""Bad input, and what brokers answer to it, for tests."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.broker.broker_process import BrokerProcess
from tests.broker.wire_client import Client, make_batch


@contextmanager
def memory_flat(process: BrokerProcess, within_mib: float) -> Iterator[None]:
    before = process.resident_mib()
    process.reset_peak()
    yield
    grown = process.peak_mib() - before
    assert grown < within_mib, f"{grown:.0f} MiB more than before"


@contextmanager
def a_broker(folder: Path) -> Iterator[BrokerProcess]:
    """A broker in a process of its own, with a topic of each kind."""
    with (
        BrokerProcess(folder, ["auto.create.topics.enable=false", "log.level=ERROR"]) as process,
        Client(process.address) as client,
    ):
        client.create("healthy")
        client.create("plain")
        client.create("recompressed", compression_type="zstd")
        client.create("unpacked", compression_type="uncompressed")
        client.create("compacted", cleanup_policy="compact")
        yield process


@contextmanager
def others_are_served(process: BrokerProcess) -> Iterator[None]:
    """A client from before goes on being served, and so does a new one."""
    logged = len(process.log)
    with Client(process.address) as before:
        before.end_of("healthy")
        yield
        assert process.is_alive
        for client in (before, Client(process.address)):
            end = client.produce("healthy", make_batch(b"well")).base_offset
            answer = client.fetch("healthy", end)
            assert (answer.error_code, answer.high_watermark) == (0, end + 1)
            client.close()
    assert "Traceback" not in process.log[logged:]
