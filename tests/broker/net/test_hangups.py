"""Bad frames by the thousand are counted, and told in a few lines."""

from __future__ import annotations

import logging

import pytest

from moldau.broker.net.hangups import Hangups
from moldau.testing import Broker
from moldau.wire.primitives import INT32
from tests.broker.wire_client import Client, inside


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What was told of hang-ups; a busy machine may have the broker tell of stalls, too."""
    told = [each.getMessage() for each in caplog.records if each.name == "moldau.broker"]
    return [line for line in told if line.startswith(("closing ", "closed "))]


def test_bad_frames_that_are_alike_are_told_once_and_then_counted(
    moldau_broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "moldau.broker"):
        for size in range(-300, 0):
            with Client(moldau_broker) as client:
                client.send_bytes(INT32.pack(size))
                assert client.is_closed()
        with Client(moldau_broker) as client:
            client.send_bytes(INT32.pack(10) + bytes([0x7F] * 8 + [0xFF] * 2))
            assert client.is_closed()
        first, other = lines(caplog)
        assert "closing connection from 127.0.0.1:" in first
        assert "a request claims -300 bytes" in first
        assert "no API has the key" in other
        inside(moldau_broker, lambda server: server.connections.hangups.tell())
        (summary,) = lines(caplog)[2:]
        assert "closed 299 more connections from 127.0.0.1" in summary
        assert "a request claims -1 bytes" in summary


def test_a_stop_tells_what_was_only_counted(
    moldau_broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "moldau.broker"):
        for _ in range(3):
            with Client(moldau_broker) as client:
                client.send_bytes(INT32.pack(-1))
                assert client.is_closed()
        moldau_broker.stop()
    assert any("closed 2 more connections" in line for line in lines(caplog))


def test_hosts_and_reasons_without_number_take_a_bounded_number_of_lines(
    moldau_broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    hangups: Hangups = inside(moldau_broker, lambda server: server.connections.hangups)

    def note(place: int) -> bool:
        return inside(
            moldau_broker, lambda server: hangups.note(f"10.0.0.{place}", "is no request")
        )

    with caplog.at_level(logging.WARNING, "moldau.broker"):
        assert sum(note(place) for place in range(500)) == 100
        inside(moldau_broker, lambda server: hangups.tell())
    (line,) = lines(caplog)
    assert "closed 400 more connections from other hosts" in line
