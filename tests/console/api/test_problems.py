"""Problems: transactions that hold readers back are among them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from moldau.console.settings import ConsoleSettings
from moldau.testing import Broker
from moldau.testing.waiting import until
from tests.broker.api.transactions.producing import Producer
from tests.broker.wire_client import append_open
from tests.console.consoles import RunningConsole


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


def problems(console: RunningConsole, kind: str) -> list[dict[str, Any]]:
    def found() -> list[dict[str, Any]]:
        overview = console.get("api/overview")["problems"]
        return [each for each in overview if each["where"]["kind"] == kind]

    return until(found, f"a problem of a {kind}")


def test_a_transaction_that_hangs_is_a_problem_with_the_command_that_ends_it(
    broker: Broker,
) -> None:
    broker.create_topic("orders")
    append_open(broker, "orders", b"nobody knows")
    with RunningConsole(ConsoleSettings(broker.bootstrap, sample_every_s=0.2)) as console:
        (problem,) = problems(console, "topic")
    assert problem["severity"] == "error"
    assert problem["where"] == {"kind": "topic", "name": "orders"}
    assert "a transaction of producer 9 hangs in partition 0 of orders" in problem["what"]
    assert "1 message after it are not shown" in problem["what"]
    assert "moldau transactions abort --topic orders --partition 0" in problem["hint"]


def test_a_transaction_that_is_open_for_long_is_a_problem(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.create_topic("orders")
    producer = Producer(broker, id="ledger/one").init()
    producer.produce("orders", b"x")
    with RunningConsole(ConsoleSettings(broker.bootstrap, sample_every_s=0.2)) as console:
        until(lambda: console.console.watch.sample, "a sample")
        assert console.get("api/overview")["problems"] == []
    monkeypatch.setattr("moldau.peer.hanging.LONG_S", 0)
    with RunningConsole(ConsoleSettings(broker.bootstrap, sample_every_s=0.2)) as console:
        (problem,) = problems(console, "transaction")
    assert problem["severity"] == "warning"
    assert problem["where"] == {"kind": "transaction", "name": "ledger/one"}
    assert "the transaction of ledger/one has been open for" in problem["what"]
    assert "partition 0 of orders" in problem["what"]
    assert problem["since_ms"]
    producer.end(commits=False)
    producer.client.close()


def test_nobody_is_told_to_abort_a_transaction_of_the_sink(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.create_topic("orders")
    producer = Producer(broker, id="moldau-sink/query/orders/run/1").init()
    producer.produce("orders", b"x")
    monkeypatch.setattr("moldau.peer.hanging.LONG_S", 0)
    with RunningConsole(ConsoleSettings(broker.bootstrap, sample_every_s=0.2)) as console:
        (problem,) = problems(console, "transaction")
    assert "abort" not in problem["hint"]
    assert "moldau transactions recover" in problem["hint"]
    producer.end(commits=False)
    producer.client.close()
