"""Several pipelines in one process: each goes on, whatever happens to the others or to Java."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import httpx
import pytest

from moldau.local.ports import free_ports
from moldau.testing import Broker
from moldau.testing.waiting import until
from tests.cli.commands.test_pipeline import TEXT, command, needs_spark, rows_in, send
from tests.cli.conftest import Run
from tests.processes import started

pytestmark = needs_spark


def pipeline(folder: Path, name: str, topic: str, more: str = "") -> Path:
    path = folder / f"{name}.toml"
    text = TEXT.format(topic=topic).replace('"lake"', f'"{name}"')
    path.write_text(f'{more}trigger = "100 milliseconds"\n{text}', "utf-8")
    return path


def java_of(pid: int) -> int | None:
    """The process of Java that this one has started."""
    found = subprocess.run(
        ["ps", "-o", "pid=,comm=", "--ppid", str(pid)], capture_output=True, text=True, check=False
    )
    lines = [line.split() for line in found.stdout.splitlines()]
    return next((int(words[0]) for words in lines if words[1] == "java"), None)


@pytest.mark.slow
def test_pipelines_of_one_process_outlive_java_and_each_other(
    moldau_session_broker: Broker, topic: str, tmp_path: Path, moldau: Run
) -> None:
    broker = moldau_session_broker
    files = [pipeline(tmp_path, name, topic) for name in ("odra", "vistula")]
    send(broker, topic, 30)
    (port,) = free_ports(1)
    lakes = [tmp_path / "odra", tmp_path / "vistula"]

    def states() -> dict[str, str]:
        health = httpx.get(f"http://127.0.0.1:{port}/readyz", timeout=60).json()
        found: dict[str, str] = health["pipelines"]
        return found

    def have(rows: int) -> bool:
        return all(lake.exists() and rows_in(lake) == rows for lake in lakes)

    errors = tmp_path / "errors"
    with (
        errors.open("w") as written,
        started(
            command(
                *("run", *files, "--json", "--log-format", "json"),
                *("--http", f"127.0.0.1:{port}"),
            ),
            env=os.environ | {"MOLDAU_BOOTSTRAP": broker.bootstrap},
            stdout=subprocess.PIPE,
            stderr=written,
        ) as running,
    ):
        assert running.stdout is not None
        first: dict[str, Any] = json.loads(running.stdout.readline())
        assert first["pipeline"] in ("odra", "vistula")
        until(lambda: have(30), "all rows", 200)
        java = java_of(running.pid)
        assert java is not None
        os.kill(java, signal.SIGKILL)
        until(lambda: java_of(running.pid) not in (None, java), "another Java", 200)
        send(broker, topic, 12)
        until(lambda: have(42), "what came after", 200)
        until(lambda: states() == {"odra": "running", "vistula": "running"}, "both", 100)

        stopped = moldau("pipeline", "stop", "odra", "--timeout", "100")
        assert stopped.status == 0, stopped.err
        assert states() == {"odra": "stopped", "vistula": "running"}
        send(broker, topic, 5)
        until(lambda: rows_in(lakes[1]) == 47, "rows of the one that goes on", 200)
        running.send_signal(signal.SIGTERM)
        running.communicate(timeout=100)
    assert running.returncode == 0, errors.read_text()
    assert rows_in(lakes[0]) == 42
    lines = [json.loads(line) for line in errors.read_text("utf-8").splitlines()]
    assert all({"time", "level", "logger", "message"} <= line.keys() for line in lines)
    again = [each for each in lines if "(1 of at most 10 in a row)" in each["message"]]
    assert "starting it again in 1 s" in again[0]["message"]
    shown = moldau("pipeline", "status", "vistula", "--json").json
    assert (shown["state"], shown["restarts"]) == ("stopped", 1)
    assert "Java process has ended" in shown["last_error"]["message"]


def test_two_pipelines_of_one_name_are_refused(moldau: Run, tmp_path: Path, topic: str) -> None:
    files = [pipeline(tmp_path, name, topic, 'name = "same"\n') for name in ("one", "two")]
    refused = moldau("pipeline", "run", *map(str, files))
    assert refused.status == 1
    assert "are both named 'same'; give one of them another 'name'" in refused.err


def test_a_failure_is_a_log_line_where_programs_read_these(
    moldau: Run, tmp_path: Path, topic: str
) -> None:
    files = [pipeline(tmp_path, name, topic, 'name = "same"\n') for name in ("one", "two")]
    refused = moldau("pipeline", "run", *map(str, files), "--log-format", "json")
    assert refused.status == 1
    lines = [json.loads(line) for line in refused.err.splitlines()]
    # The broker of the tests logs in the same process.
    (line,) = (each for each in lines if each["logger"] == "moldau.cli")
    assert line["level"] == "error"
    assert "are both named 'same'" in line["message"]


def test_settings_of_spark_that_contradict_are_refused(
    moldau: Run, tmp_path: Path, topic: str
) -> None:
    files = [pipeline(tmp_path, name, topic) for name in ("one", "two")]
    files[1].write_text(files[1].read_text().replace("512m", "1g"))
    refused = moldau("pipeline", "run", *map(str, files))
    assert refused.status == 1
    assert "spark.driver.memory is 1g here and 512m in" in refused.err
