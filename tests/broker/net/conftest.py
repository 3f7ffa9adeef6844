"""Everything here is tried with each form of output: sendfile, and the transport's own writes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from moldau.testing import Broker

FORMS = [
    pytest.param("true", id="sendfile"),
    pytest.param("false", id="transport"),
]


@pytest.fixture(params=FORMS, scope="session")
def sendfile(request: pytest.FixtureRequest) -> str:
    """What `socket.sendfile.enable` is."""
    return str(request.param)


@pytest.fixture
def moldau_broker(request: pytest.FixtureRequest, sendfile: str) -> Iterator[Broker]:
    """As the plugin's, with this form of output."""
    marker = request.node.get_closest_marker("moldau")
    settings = {**marker.args[0]} if marker and marker.args else {}
    more = marker.kwargs if marker else {}
    with Broker({**settings, "socket.sendfile.enable": sendfile}, **more) as broker:
        yield broker


@pytest.fixture(scope="session")
def moldau_session_broker(sendfile: str) -> Iterator[Broker]:
    with Broker({"socket.sendfile.enable": sendfile}) as broker:
        yield broker
