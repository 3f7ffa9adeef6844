"""A real ZooKeeper ensemble, as our own cluster tests use it."""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from moldau.local import zookeeper_server
from moldau.local.ensemble import NoZooKeeper
from moldau.spark.runtime.java import NoJava
from moldau.testing import Ensemble
from moldau.testing.waiting import until
from tests.processes import started

STARTER = """
import sys, time
from moldau.spark.runtime.java import NoJava
from moldau.local import zookeeper_server
from moldau.testing import Ensemble
ensemble = Ensemble(folder=sys.argv[1])
ensemble.start()
print(ensemble._servers[0]._process.pid, flush=True)
time.sleep(60)
"""


@pytest.fixture(scope="module")
def three() -> Iterator[Ensemble]:
    with Ensemble(servers=3) as ensemble:
        yield ensemble


def client_of(hosts: str) -> KazooClient:
    client = KazooClient(hosts, timeout=10)
    client.start(timeout=60)
    return client


def test_three_servers_agree_and_survive_the_death_of_their_leader(three: Ensemble) -> None:
    leader = three.leader()
    client = client_of(three.hosts)
    try:
        client.create("/kept", b"value")
        three.kill(leader)
        assert not three.is_running(leader)
        assert three.leader() != leader
        assert client.retry(client.get, "/kept")[0] == b"value"
        three.start(leader)
        three.wait_until_serving()
        assert three.is_running(leader)
    finally:
        client.stop()
        client.close()
    client = client_of(three.host(leader))
    assert client.get("/kept")[0] == b"value"
    client.stop()
    client.close()


@pytest.mark.slow
def test_a_stopped_ensemble_goes_on_at_the_same_addresses(tmp_path: Path) -> None:
    with Ensemble(folder=tmp_path) as ensemble:
        hosts = ensemble.hosts
        assert ensemble.leader() == 0
        client = client_of(hosts)
        client.create("/kept")
        client.stop()
        client.close()
        ensemble.stop()
        ensemble.start()
        assert ensemble.hosts == hosts
        client = client_of(hosts)
        assert client.exists("/kept")
        client.stop()
        client.close()
        # One that cannot start is shown with the end of its log.
        ensemble.stop()
        (tmp_path / "server-0" / "zoo.cfg").write_text("tickTime=nonsense\n")
        with pytest.raises(RuntimeError, match=r"(?s)status 2.*nonsense"):
            ensemble.start(0)
    assert (tmp_path / "server-0" / "data").is_dir()


def is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="looks at processes through /proc")
def test_servers_end_with_a_process_that_is_killed(tmp_path: Path) -> None:
    command = [sys.executable, "-c", STARTER, str(tmp_path)]
    with started(command, stdout=subprocess.PIPE) as starter:
        assert starter.stdout is not None
        pid = int(starter.stdout.readline())
        assert is_running(pid)
        os.kill(starter.pid, signal.SIGKILL)
        until(lambda: not is_running(pid), "the end of the server with who started it")


def test_without_pyspark_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(NoZooKeeper, match=r"moldau\[spark\]"), Ensemble():
        pass


def test_without_java_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def find_nothing() -> None:
        raise NoJava

    monkeypatch.setattr(zookeeper_server, "find_java_home", find_nothing)
    with pytest.raises(NoZooKeeper, match=r"(?s)needs Java.*moldau\[spark\]"), Ensemble():
        pass


def test_it_has_no_address_before_it_runs() -> None:
    ensemble = Ensemble()
    with pytest.raises(RuntimeError, match="use `with`"):
        _ = ensemble.hosts
    ensemble.close()
    assert not ensemble.folder.exists()
