"""The pytest plugin; pytest loads it wherever Moldau is installed, so it imports next to nothing.

Settings for the fixture's broker come from the marker: `@pytest.mark.moldau(num_partitions=3)`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from moldau.testing.broker import Broker


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "moldau(settings=None, **more): settings for the broker of `moldau_broker`"
    )


@pytest.fixture
def moldau_broker(request: pytest.FixtureRequest) -> Iterator[Broker]:
    """A broker of this test's own, empty at the start and gone at the end."""
    from moldau.testing.broker import Broker

    marker = request.node.get_closest_marker("moldau")
    arguments, settings = (marker.args, marker.kwargs) if marker else ((), {})
    with Broker(*arguments, **settings) as broker:
        yield broker


@pytest.fixture(scope="session")
def moldau_session_broker() -> Iterator[Broker]:
    """One broker for all tests of the session: give your topics names of their own."""
    from moldau.testing.broker import Broker

    with Broker() as broker:
        yield broker
