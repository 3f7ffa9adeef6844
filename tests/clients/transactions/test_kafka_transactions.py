"""Kafka's own tool for transactions, `kafka-transactions.sh`, every command of it."""

from __future__ import annotations

import subprocess

import pytest

from bench.kafka.broker import java_words
from moldau.bench.errors import Unavailable
from moldau.testing import Broker
from tests.broker.api.transactions.producing import Producer
from tests.broker.wire_client import append_open

_JVM = ("-Xmx128m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto")
_MAIN = "org.apache.kafka.tools.TransactionsCommand"
_TIMEOUT_S = 90
HANGING = "9"


class Tool:
    """Runs the tool; its tables as lists of rows without the heading."""

    def __init__(self, broker: Broker) -> None:
        self._bootstrap = broker.bootstrap

    def __call__(self, *words: str) -> list[list[str]]:
        given = ("--bootstrap-server", self._bootstrap, *words)
        try:
            command = java_words(_MAIN, *given, jvm=_JVM)
        except Unavailable as reason:
            pytest.skip(f"cannot run Kafka's tools: {reason}")
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        lines = [line for line in done.stdout.splitlines() if "WARN" not in line]
        return [line.split() for line in lines[1:]]


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_every_command_of_the_tool_works(moldau_broker: Broker) -> None:
    tool = Tool(moldau_broker)
    moldau_broker.create_topic("orders")
    idle, busy = (
        Producer(moldau_broker, id="idle").init(),
        Producer(moldau_broker, id="busy").init(timeout=600_000),
    )
    busy.produce("orders", b"known")
    append_open(moldau_broker, "orders", b"nobody knows")

    listed = {row[0]: row for row in tool("list")}
    assert listed["idle"] == ["idle", "0", str(idle.producer_id), "Empty"]
    assert listed["busy"] == ["busy", "0", str(busy.producer_id), "Ongoing"]
    (only,) = tool("list", "--transactional-id-pattern", "bu.*")
    assert only[0] == "busy"
    assert tool("list", "--duration-filter", "3600000") == []

    (row,) = tool("describe", "--transactional-id", "busy")
    assert row[:6] == ["0", "busy", str(busy.producer_id), "0", "Ongoing", "600000"]
    assert row[8] == "orders-0"
    (row,) = tool("describe", "--transactional-id", "idle")
    assert row[4] == "Empty"

    producers = {
        row[0]: row for row in tool("describe-producers", "--topic", "orders", "--partition", "0")
    }
    assert producers[HANGING][5] == "1"
    assert producers[str(busy.producer_id)][5] == "0"

    by_topic = ("find-hanging", "--topic", "orders", "--max-transaction-timeout", "0")
    (found,) = tool(*by_topic)
    assert found[:4] == ["orders", "0", HANGING, "0"]
    by_broker = ("find-hanging", "--broker-id", "0", "--max-transaction-timeout", "0")
    assert [row[:3] for row in tool(*by_broker)] == [["orders", "0", HANGING]]

    tool("abort", "--topic", "orders", "--partition", "0", "--start-offset", "1")
    assert tool(*by_topic) == []
    tool("forceTerminateTransaction", "--transactionalId", "busy")
    assert busy.state() == "Empty"
    fetched = idle.client.fetch("orders", 0, isolation_level=1)
    assert fetched.last_stable_offset == fetched.high_watermark == 4
    for each in (idle, busy):
        each.client.close()
