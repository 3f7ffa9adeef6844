"""Connections of Spark's Python processes to Java: prompt over TCP, quiet when they are closed."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from struct import pack, unpack

import pytest

from moldau.spark.runtime.connections import prompt
from moldau.testing.waiting import until

END_OF_STREAM = pack(">i", -4)
VERSION = f"{sys.version_info.major}.{sys.version_info.minor}".encode()
# What Java sends to have data sources looked up: the version of Python; no files, no settings.
LOOKUP = pack(">i", len(VERSION)) + VERSION + pack(">ii?ii", 0, 0, False, 0, 0) + END_OF_STREAM


@pytest.fixture
def short_folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="m-") as folder:
        yield Path(folder)


def test_a_worker_sends_at_once_over_tcp() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()) as client,
    ):
        assert not client.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        prompt(client)
        assert client.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_unix_sockets_have_nothing_to_hurry() -> None:
    one, other = socket.socketpair(socket.AF_UNIX)
    with one, other:
        prompt(one)


@pytest.mark.timeout(120)
def test_a_planner_that_java_no_longer_needs_ends_without_a_stack(short_folder: Path) -> None:
    log = short_folder / "log"
    words = [sys.executable, "-m", "pyspark.daemon", "pyspark.sql.worker.lookup_data_sources"]
    environment = os.environ | {
        "PYTHON_UNIX_DOMAIN_ENABLED": "true",
        "PYTHON_WORKER_FACTORY_SOCK_DIR": str(short_folder),
        "PYTHON_DAEMON_KILL_WORKER_ON_FLUSH_FAILURE": "1",
        "SPARK_REUSE_WORKER": "1",
    }
    with (
        log.open("wb") as errors,
        subprocess.Popen(
            words, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors
        ) as daemon,
        socket.socket(socket.AF_UNIX) as java,
    ):
        try:
            assert daemon.stdout is not None
            (length,) = unpack(">i", daemon.stdout.read(4))
            java.connect(daemon.stdout.read(length))
            java.settimeout(60)
            (pid,) = unpack(">i", java.recv(4, socket.MSG_WAITALL))
            java.sendall(LOOKUP)
            answer = b""
            while not answer.endswith(END_OF_STREAM):
                some = java.recv(65536)
                assert some, log.read_text()
                answer += some
            assert b"moldau" in answer
            java.close()
            until(lambda: not Path(f"/proc/{pid}").exists(), "the planner's end", 60)
        finally:
            daemon.kill()
    assert log.read_text() == ""
