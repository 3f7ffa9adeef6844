"""Unix sockets between Java and its workers: in a folder that goes with the process."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from moldau.spark.runtime import sockets
from moldau.testing import Broker
from tests.spark.topics import fresh_topic, numbered, produce

DRIVER = """
import sys
from pathlib import Path
from moldau.spark import session

bootstrap, topic = sys.argv[1:]
spark = session("sockets", master="local[2]", config={"spark.driver.memory": "512m"})
folder = Path(spark.conf.get("spark.python.unix.domain.socket.dir"))
frame = spark.read.format("moldau").option("kafka.bootstrap.servers", bootstrap)
frame = frame.option("subscribe", topic).load()
for _ in range(5):
    # Java has enough before the worker is done, and closes the connection.
    assert len(frame.limit(1).collect()) == 1
assert frame.count() == 50_000
assert any(folder.iterdir())
print(folder)
sys.stdout.flush()
"""


@pytest.fixture
def short_folder() -> Iterator[Path]:
    """A folder whose path leaves room for the names of sockets."""
    with tempfile.TemporaryDirectory(prefix="m-") as folder:
        yield Path(folder)


HOLDER = """
import time
from moldau.spark.runtime.sockets import socket_settings

print(socket_settings()["spark.python.unix.domain.socket.dir"], flush=True)
time.sleep(60)
"""


def test_folders_of_dead_processes_are_removed(
    short_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment = os.environ | {"TMPDIR": str(short_folder)}
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(short_folder))
    others = short_folder / "moldau-others"
    others.mkdir()
    sockets._folder.cache_clear()
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER], env=environment, stdout=subprocess.PIPE, text=True
    ) as holder:
        try:
            assert holder.stdout is not None
            held = Path(holder.stdout.readline().strip())
            ours = Path(sockets.socket_settings()["spark.python.unix.domain.socket.dir"])
            assert set(short_folder.iterdir()) == {held, others, ours}
            assert ours.stat().st_mode & 0o077 == 0
            holder.kill()
            holder.wait(30)
            sockets._folder.cache_clear()
            again = Path(sockets.socket_settings()["spark.python.unix.domain.socket.dir"])
        finally:
            holder.kill()
            sockets._folder.cache_clear()
    assert set(short_folder.iterdir()) == {others, ours, again}


def test_a_cluster_after_a_local_session_has_no_use_for_its_sockets(
    short_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(short_folder))
    sockets._folder.cache_clear()
    try:
        assert sockets.tcp_settings() == {}
        sockets.socket_settings()
        assert sockets.tcp_settings() == {"spark.python.unix.domain.socket.enabled": "false"}
    finally:
        sockets._folder.cache_clear()


def test_a_path_that_is_too_long_for_sockets_means_tcp(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path / ("x" * 80)))
    sockets._folder.cache_clear()
    try:
        assert sockets.socket_settings() == {}
    finally:
        sockets._folder.cache_clear()


@pytest.mark.slow
@pytest.mark.spark
def test_a_session_leaves_no_sockets_behind(
    moldau_session_broker: Broker,
) -> None:
    broker = moldau_session_broker
    topic = fresh_topic(broker, 2)
    produce(broker, topic, numbered(0, 50_000))
    done = subprocess.run(
        [sys.executable, "-c", DRIVER, broker.bootstrap, topic],
        capture_output=True, text=True, timeout=180, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert not Path(done.stdout.strip().splitlines()[-1]).exists()
