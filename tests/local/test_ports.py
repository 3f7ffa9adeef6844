"""Ports that stay claimed while nobody listens on them."""

from __future__ import annotations

import socket
import subprocess
import sys

import pytest

from moldau.local import ports
from moldau.local.ports import HOST, free_ports

_ASK = (
    "from moldau.local import ports; ports.PORTS = range({0}, {0} + 1); print(ports.free_ports(1))"
)


def _asked_by_another_process(port: int) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", _ASK.format(port)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_ports_are_different_and_can_be_listened_on() -> None:
    found = free_ports(5)
    assert len(set(found)) == 5
    for port in found:
        with socket.create_server((HOST, port)):
            pass


def test_a_claimed_port_is_given_to_nobody_else_though_nobody_listens() -> None:
    (port,) = free_ports(1)
    asked = _asked_by_another_process(port)
    assert asked.returncode == 1
    assert "fewer than 1 ports are free" in asked.stderr


def test_a_port_that_somebody_listens_on_is_not_given(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server((HOST, 0)) as server:
        port = server.getsockname()[1]
        monkeypatch.setattr(ports, "PORTS", range(port, port + 1))
        with pytest.raises(OSError, match="fewer than 1 ports are free"):
            free_ports(1)


def test_claims_end_with_their_process() -> None:
    (port,) = free_ports(1)
    ports._claims.pop().close()
    # Twice: the first process that asked is gone.
    for _ in range(2):
        assert _asked_by_another_process(port).stdout.strip() == f"[{port}]"


def test_the_oldest_claims_are_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    (first,) = free_ports(1)
    monkeypatch.setattr(ports, "_MOST_CLAIMS", len(ports._claims))
    held = len(ports._claims)
    free_ports(held)
    assert len(ports._claims) == held
    assert _asked_by_another_process(first).stdout.strip() == f"[{first}]"
