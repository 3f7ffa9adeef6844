"""`moldau up`: a whole cluster in one process tree."""

from __future__ import annotations

import importlib.util
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.machinery import ModuleSpec
from pathlib import Path

import httpx
import pytest

from moldau.testing.waiting import until
from tests.cli.conftest import Run

SOON_S = 60.0
NO_ZOOKEEPER = importlib.util.find_spec("pyspark") is None


class Up:
    """A `moldau up` that runs, and what it has printed so far."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.lines: list[str] = []
        self._threads = [
            threading.Thread(target=self._read, args=(stream,), daemon=True)
            for stream in (process.stdout, process.stderr)
        ]
        for thread in self._threads:
            thread.start()

    def _read(self, stream: Iterator[str]) -> None:
        self.lines.extend(line.rstrip("\n") for line in stream)

    def wait_for(self, pattern: str) -> re.Match[str]:
        deadline = time.monotonic() + SOON_S
        while time.monotonic() < deadline:
            for line in list(self.lines):
                if found := re.search(pattern, line):
                    return found
            if self.process.poll() is not None:
                break
            time.sleep(0.05)
        raise AssertionError("\n".join([f"{pattern} is not among:", *self.lines]))

    def end(self) -> int:
        self.process.send_signal(signal.SIGINT)
        status = self.process.wait(SOON_S)
        for thread in self._threads:
            thread.join(SOON_S)
        return status


@contextmanager
def up(folder: Path, *words: str) -> Iterator[Up]:
    process = subprocess.Popen(
        [sys.executable, "-m", "moldau", "up", "--data-dir", str(folder), "--port", "0", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield Up(process)
    finally:
        process.kill()
        process.wait(SOON_S)


def _wait_for_problems(page: str, *parts: str) -> None:
    """Wait until the console's first page says this."""

    def are_told() -> bool:
        overview = httpx.get(f"{page}api/overview", timeout=SOON_S).json()
        said = "\n".join(each["what"] for each in overview["problems"])
        return all(part in said for part in parts)

    until(are_told, "the console tells of it", SOON_S)


@pytest.mark.skipif(NO_ZOOKEEPER, reason="no clusters without pyspark, which brings ZooKeeper")
@pytest.mark.timeout(400)
@pytest.mark.slow
def test_a_cluster_runs_reports_a_death_stops_and_goes_on_later(
    moldau: Run, tmp_path: Path
) -> None:
    folder = tmp_path / "cluster"
    with up(folder, "--ensemble", "1") as cluster:
        bootstrap = cluster.wait_for(r"^moldau cluster of 3 ready on (\S+)$")[1]
        assert len(bootstrap.split(",")) == 3
        assert moldau("topics", "create", "orders", "--bootstrap", bootstrap).status == 0
        copied = ("copied", "--replication-factor", "3", "--bootstrap", bootstrap)
        assert moldau("topics", "create", *copied).status == 0
        described = moldau("cluster", "describe", "--bootstrap", bootstrap, "--json").json
        assert [each["id"] for each in described["brokers"]] == [0, 1, 2]
        assert described["offline"] == []

        urls = cluster.wait_for(r"HTTP: (.*)$")[1].split(", ")
        assert len(urls) == 3
        for url in urls:
            assert httpx.get(f"{url}/readyz", timeout=SOON_S).status_code == 200
            assert "kafka_server_brokertopicmetrics" in httpx.get(f"{url}/metrics", timeout=60).text

        page = cluster.wait_for(r"console: (http://\S+/console/)$")[1]
        assert httpx.get(f"{page}api/cluster", timeout=SOON_S).json()["brokers"][2]["id"] == 2

        refused = moldau("up", "--data-dir", str(folder), "--port", "0")
        assert refused.status == 1
        assert "another `moldau up` is running in" in refused.err

        pids = [int(cluster.wait_for(rf"broker {i} \| .*, pid (\d+)")[1]) for i in range(3)]
        os.kill(pids[1], signal.SIGKILL)
        cluster.wait_for(r"broker 1 ended with signal 9")
        cluster.wait_for(r"start it again: moldau broker --id 1 ")
        _wait_for_problems(page, "broker 1 is gone", "of copied: not all replicas are in sync")
        assert cluster.end() == 0, cluster.lines
    assert not [pid for pid in pids if Path(f"/proc/{pid}").exists()]

    other_size = moldau("up", "--data-dir", str(folder), "--port", "0", "--ensemble", "3")
    assert other_size.status == 1
    assert "--ensemble 1" in other_size.err

    with up(folder, "--ensemble", "1", "--brokers", "2") as cluster:
        bootstrap = cluster.wait_for(r"^moldau cluster of 2 ready on (\S+)$")[1]
        assert "orders" in moldau("topics", "list", "--bootstrap", bootstrap).out
        assert cluster.end() == 0, cluster.lines


def test_without_pyspark_the_extra_is_named(
    moldau: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    find_spec = importlib.util.find_spec

    def without_pyspark(name: str, package: str | None = None) -> ModuleSpec | None:
        return None if name == "pyspark" else find_spec(name, package)

    monkeypatch.setattr(importlib.util, "find_spec", without_pyspark)
    ended = moldau("up", "--data-dir", str(tmp_path), "--port", "0")
    assert ended.status == 1
    assert "PySpark is not installed" in ended.err
    assert "pip install 'moldau[spark]'" in ended.err
    assert "--zookeeper HOSTS" in ended.err


@pytest.mark.parametrize(
    ("servers", "said"),
    [("2", "use an odd number"), ("4", "no more failures than 3"), ("9", "more than 7 ZooKeeper")],
)
def test_unwise_ensembles_are_warned_of(
    moldau: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, servers: str, said: str
) -> None:
    # The warning comes before anything is started, so there need be nothing to start.
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, package=None: None)
    ended = moldau("up", "--data-dir", str(tmp_path), "--port", "0", "--ensemble", servers)
    assert "warning: " in ended.err
    assert said in ended.err


def test_a_port_that_is_taken_is_named_before_anything_starts(moldau: Run, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ended = moldau("up", "--data-dir", str(tmp_path), "--port", str(port))
    assert ended.status == 1
    assert f"127.0.0.1:{port} cannot be used" in ended.err


@pytest.mark.parametrize(
    "words",
    [
        ("--ensemble", "1", "--zookeeper", "127.0.0.1:2181"),
        ("--brokers", "0"),
        ("--ensemble", "0"),
        ("--set", "nothing"),
        ("--port", "65000", "--brokers", "100", "--port", "70000"),
    ],
)
def test_wrong_usage_is_refused(moldau: Run, tmp_path: Path, words: tuple[str, ...]) -> None:
    assert moldau("up", "--data-dir", str(tmp_path), *words).status == 2
