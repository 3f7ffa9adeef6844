"""`moldau console` in a process of its own."""

from __future__ import annotations

import inspect
import json
import re
import signal
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from moldau.cli.commands import console
from moldau.testing import Broker
from tests.cli.conftest import Run

pytest.importorskip("starlette")

SOON_S = 60.0


def test_a_console_says_where_it_is_shows_the_cluster_and_ends_with_a_signal(
    moldau_session_broker: Broker, tmp_path: Path
) -> None:
    words = ["console", "--listen", "127.0.0.1:0", "--bootstrap", moldau_session_broker.bootstrap]
    log = tmp_path / "log"
    with (
        log.open("w") as err,
        subprocess.Popen(
            [sys.executable, "-m", "moldau", *words, "--log-format", "json"],
            stdout=subprocess.PIPE,
            stderr=err,
            text=True,
        ) as process,
    ):
        try:
            assert process.stdout is not None
            found = re.fullmatch(
                r"moldau console ready on (http://127\.0\.0\.1:\d+)\n", process.stdout.readline()
            )
            assert found is not None
            answer = httpx.get(f"{found[1]}/api/cluster", timeout=SOON_S)
            assert answer.json()["brokers"][0]["port"] == moldau_session_broker.port
            process.send_signal(signal.SIGTERM)
            assert process.wait(SOON_S) == 0
        finally:
            process.kill()
    for line in log.read_text("utf-8").splitlines():
        assert {"time", "level", "logger", "message"} <= json.loads(line).keys()


def test_a_console_listens_on_loopback_unless_told() -> None:
    assert inspect.signature(console.console).parameters["listen"].default == "127.0.0.1:8080"


@pytest.mark.parametrize("words", [("console",), ("mcp",), ("pipeline", "run", "none.toml")])
def test_a_form_of_log_lines_that_is_none_is_refused(moldau: Run, words: tuple[str, ...]) -> None:
    refused = moldau(*words, "--log-format", "xml")
    assert refused.status == 2
    assert "text or json" in refused.err


@pytest.mark.parametrize("listen", ["8080", ":8080", "127.0.0.1:port", "127.0.0.1:70000"])
def test_an_address_that_is_none_is_refused(moldau: Run, listen: str) -> None:
    refused = moldau("console", "--listen", listen)
    assert refused.status == 2
    assert "is not HOST:PORT" in refused.err
