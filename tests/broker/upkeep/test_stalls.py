"""The broker notices when something holds its event loop, and says what."""

from __future__ import annotations

import itertools
import logging
import time
from collections.abc import Callable
from typing import Any

import pytest

from moldau.broker.server import Broker as Server
from moldau.broker.upkeep.stalls import TOLERATED_S, Stalls
from moldau.testing import Broker
from moldau.testing.waiting import until
from moldau.wire.apis import Api
from tests.broker.wire_client import Client, inside


def stalls(broker: Broker) -> Stalls:
    return inside(broker, lambda server: server.stalls)


def slowly(work: Callable[..., Any]) -> Callable[..., Any]:
    """Longer each time, in the end longer than a busy machine holds up anybody."""
    times = itertools.count(1)

    def slow(*arguments: Any) -> Any:
        # Long enough for the watching thread to look, on a machine with other work to do too.
        time.sleep(10 * TOLERATED_S * next(times))
        return work(*arguments)

    return slow


def tell_the_next(broker: Broker) -> None:
    """Have the next stall told, though there may have been one at the start."""
    inside(broker, lambda server: setattr(server.stalls, "_quiet_until", 0.0))


def test_what_holds_the_loop_is_measured_and_named(
    moldau_broker: Broker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    brokers = inside(moldau_broker, lambda server: server.brokers)
    with caplog.at_level(logging.INFO, "moldau.broker"), Client(moldau_broker) as client:
        until(lambda: not stalls(moldau_broker)._cause, "a quiet moment")
        tell_the_next(moldau_broker)
        monkeypatch.setattr(brokers, "describe", slowly(brokers.describe))

        def is_the_longest() -> bool:
            client.ask(Api.DESCRIBE_CLUSTER)
            found = stalls(moldau_broker)
            return "broker.api.cluster.describe_cluster" in found.longest_cause

        until(is_the_longest, "the stall to be noticed")
        monkeypatch.undo()
        assert stalls(moldau_broker).count >= 1
        told = [r.getMessage() for r in caplog.records if "was blocked for" in r.getMessage()]
        assert told
        moldau_broker.stop()
    last = [r.getMessage() for r in caplog.records if "longest stall" in r.getMessage()][-1]
    assert "broker.api.cluster.describe_cluster" in last


def test_an_idle_loop_beats_less_until_somebody_asks(moldau_broker: Broker) -> None:
    found = stalls(moldau_broker)
    with Client(moldau_broker) as client:
        client.ask(Api.API_VERSIONS)
        until(lambda: found.is_idle, "an idle loop")
        seen: list[bool] = []
        inside(moldau_broker, lambda server: _note_on_answer(server, found, seen))
        client.ask(Api.DESCRIBE_CLUSTER)
    assert seen == [False]


def _note_on_answer(server: Server, found: Stalls, seen: list[bool]) -> None:
    """Have the next request note whether the loop still counts as idle."""
    describe_brokers = server.brokers.describe

    def note(*arguments: Any, **more: Any) -> Any:
        seen.append(found.is_idle)
        return describe_brokers(*arguments, **more)

    server.brokers.describe = note  # type: ignore[method-assign]


def test_stalls_that_follow_each_other_are_counted_and_told_once(
    moldau_broker: Broker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("moldau.broker.upkeep.stalls._QUIET_S", 3600.0)
    with caplog.at_level(logging.WARNING, "moldau.broker"):
        tell_the_next(moldau_broker)
        before = stalls(moldau_broker).count
        for place in range(3):
            inside(moldau_broker, lambda server: time.sleep(3 * TOLERATED_S))
            until(lambda: stalls(moldau_broker).count > before + place, "a stall")  # noqa: B023
        assert len([r for r in caplog.records if "was blocked for" in r.getMessage()]) == 1
