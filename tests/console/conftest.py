"""One broker and one console for the tests that do not need their own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from moldau.console.settings import ConsoleSettings
from moldau.testing import Broker
from tests.console.consoles import RunningConsole


@pytest.fixture(scope="package")
def shared_broker() -> Iterator[Broker]:
    with Broker(http_listen="127.0.0.1:0") as broker:
        yield broker


@pytest.fixture(scope="package")
def console(shared_broker: Broker) -> Iterator[RunningConsole]:
    settings = ConsoleSettings(
        shared_broker.bootstrap, registry=shared_broker.http_url, sample_every_s=1.0
    )
    with RunningConsole(settings) as running:
        yield running
