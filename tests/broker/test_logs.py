"""Log lines: the same fields in text and in JSON, and causes by name."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from moldau.broker.logs import JsonFormatter, TextFormatter
from moldau.testing import Broker
from moldau.testing.waiting import until
from tests.broker.broker_process import BrokerProcess
from tests.broker.wire_client import Client, inside, make_batch


class Kept(logging.Handler):
    """Keeps the lines about slow requests, whether or not others see them."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.getMessage().startswith("slow request"):
            self.records.append(record)


@pytest.fixture
def slow_lines() -> Iterator[list[logging.LogRecord]]:
    kept, logger = Kept(), logging.getLogger("moldau.broker")
    logger.addHandler(kept)
    yield kept.records
    logger.removeHandler(kept)


def record(**given: object) -> logging.LogRecord:
    logger = logging.getLogger("moldau.broker")
    return logger.makeRecord(
        logger.name, logging.WARNING, "f", 1, "it took %d ms", (5,), None, extra=dict(given)
    )


def test_a_json_line_has_the_fields_of_a_text_line_and_those_given_by_name() -> None:
    line = json.loads(JsonFormatter({"broker": 3}).format(record(cause="the disk", took_ms=5)))
    assert line.pop("time") > 0
    assert line == {
        "level": "warning",
        "logger": "moldau.broker",
        "message": "it took 5 ms",
        "broker": 3,
        "cause": "the disk",
        "took_ms": 5,
    }
    assert TextFormatter(False).format(record()).endswith(" WARNING moldau.broker  it took 5 ms")


def test_an_exception_is_one_line_of_json() -> None:
    try:
        raise ValueError("bad\nnews")
    except ValueError:
        logger = logging.getLogger("moldau.http")
        failed = logger.makeRecord(
            logger.name, logging.ERROR, "f", 1, "it failed", (), sys.exc_info()
        )
    text = JsonFormatter({}).format(failed)
    assert "\n" not in text
    assert "ValueError: bad" in json.loads(text)["exception"]


def test_every_line_of_a_broker_that_logs_json_is_an_object_with_its_fields(
    tmp_path: Path,
) -> None:
    with BrokerProcess(tmp_path / "data", ["log.format=json", "http.listen=127.0.0.1:0"]) as broker:
        with Client(broker.address) as client:
            client.send_bytes(b"\x7f\xff\xff\xff")
            assert client.is_closed()
        assert broker.stop() == 0
        lines = [json.loads(line) for line in broker.log.splitlines()]
    assert len(lines) > 2
    for line in lines:
        assert {"time", "level", "logger", "message", "broker"} <= line.keys()
        assert line["broker"] == 0


OTHERS = """
import logging, threading, warnings
from moldau.broker.logs import configure

configure("json", "INFO", broker=7)
logging.getLogger("asyncio").error("Task exception was never retrieved")
logging.getLogger("kazoo.client").info("nobody wants to know")
warnings.warn("this is old")
thread = threading.Thread(target=lambda: 1 / 0, name="busy")
thread.start()
thread.join()
logging.getLogger("moldau.broker").info("moldau's own")
"""


def test_what_libraries_and_failing_threads_say_is_json_too() -> None:
    done = subprocess.run(
        [sys.executable, "-c", OTHERS], stderr=subprocess.PIPE, text=True, timeout=60, check=True
    )
    lines = [json.loads(line) for line in done.stderr.splitlines()]
    assert [(line["logger"], line["level"], line["broker"]) for line in lines] == [
        ("asyncio", "error", 7),
        ("py.warnings", "warning", 7),
        ("moldau", "error", 7),
        ("moldau.broker", "info", 7),
    ]
    assert lines[2]["message"] == "the thread busy failed"
    assert "ZeroDivisionError" in lines[2]["exception"]


def test_a_slow_write_is_logged_with_what_it_waited_for(
    slow_lines: list[logging.LogRecord],
) -> None:
    held = threading.Event()
    with Broker({"log.slow.request.ms": 20}) as broker, Client(broker) as client:
        broker.create_topic("orders", flush_messages=1)
        threads = inside(broker, lambda server: server.partitions.flusher._threads)
        for _ in range(threads._max_workers):
            threads.submit(held.wait, 20)
        client.send_produce("orders", make_batch(b"x"))
        until(lambda: inside(broker, lambda server: server.partitions.flusher._running))
        sent_at = time.monotonic()
        until(lambda: time.monotonic() > sent_at + 0.1)
        held.set()
        client.receive()
        (line,) = until(lambda: slow_lines, "the line, which comes after the answer")
    assert line.getMessage().startswith("slow request: PRODUCE v9 from 127.0.0.1:")
    assert line.getMessage().endswith(": waited for orders-0 to be flushed to disk")
    assert vars(line)["cause"] == "waited for orders-0 to be flushed to disk"
    assert vars(line)["took_ms"] >= 20


def test_a_fetch_that_waits_because_it_was_asked_to_is_not_slow(
    slow_lines: list[logging.LogRecord],
) -> None:
    with Broker({"log.slow.request.ms": 1}) as broker, Client(broker) as client:
        broker.create_topic("orders")
        wanted = [{"partition": 0, "fetch_offset": 0}]
        client.send_fetch({"orders": wanted}, max_wait=50)
        client.receive()
        assert inside(broker, lambda server: server.connections.slow_requests.count) == 0
    assert not slow_lines
