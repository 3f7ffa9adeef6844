"""One ZooKeeper server in its own process."""

from __future__ import annotations

import importlib.util
import os
import shutil
import socket
import subprocess
from dataclasses import dataclass
from pathlib import Path

from moldau.local.ports import HOST
from moldau.local.watchdog import Watchdog
from moldau.spark.runtime.java import NoJava, find_java_home

STOP_WITHIN_S = 15.0
_ASK_WITHIN_S = 2.0

_MAIN = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
_FLAGS = ("-Xmx64m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dlog4j2.level=WARN")


class NoZooKeeper(RuntimeError):
    """No ZooKeeper can be started here: PySpark, which brings it, or Java is missing."""


@dataclass(frozen=True, slots=True)
class Ports:
    client: int = 0
    quorum: int = 0
    election: int = 0


class ServerEnded(RuntimeError):
    """A server ended by itself."""


class ZooKeeperServer:
    """One ZooKeeper server's process, its watchdog and its folder."""

    def __init__(self, folder: Path, number: int) -> None:
        self.folder = folder
        self.number = number
        self.ports = Ports()
        self._process: subprocess.Popen[bytes] | None = None
        self._watchdog: Watchdog | None = None

    @property
    def log(self) -> Path:
        return self.folder / "zookeeper.log"

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def configure(self, tick_ms: int, members: str) -> None:
        data = self.folder / "data"
        data.mkdir(parents=True, exist_ok=True)
        (data / "myid").write_text(f"{self.number}\n", "ascii")
        (self.folder / "zoo.cfg").write_text(
            f"dataDir={data}\n"
            f"clientPortAddress={HOST}\n"
            f"clientPort={self.ports.client}\n"
            f"tickTime={tick_ms}\n"
            # Ticks: a busy machine may take seconds over what an ensemble does at its start.
            "initLimit=40\n"
            "syncLimit=10\n"
            "maxSessionTimeout=600000\n"
            "maxClientCnxns=0\n"
            "admin.enableServer=false\n"
            "4lw.commands.whitelist=srvr\n"
            "autopurge.purgeInterval=1\n" + members,
            "utf-8",
        )

    def start(self, command: list[str]) -> None:
        if self.is_running:
            raise RuntimeError(f"server {self.number - 1} is already running")
        self._dismiss_watchdog()
        with open(self.log, "ab") as log:
            # Its own session, so that Ctrl-C in a terminal stops only the process that started the
            # ensemble, which then stops the ensemble.
            self._process = subprocess.Popen(
                [*command, str(self.folder / "zoo.cfg")],
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._watchdog = Watchdog(self._process.pid)

    def check(self) -> None:
        """Raise ServerEnded if the server is not running though nobody stopped it."""
        if self._process is not None and self._process.poll() is not None:
            lines = self.log.read_text("utf-8", "replace").splitlines()
            raise ServerEnded(
                f"ZooKeeper server {self.number - 1} ended with status {self._process.returncode};"
                " its log ends with:\n" + "\n".join(lines[-15:])
            )

    def ask(self, word: str) -> str:
        """Return the answer to a four-letter word; empty if there is none."""
        answer = b""
        try:
            with socket.create_connection((HOST, self.ports.client), _ASK_WITHIN_S) as connection:
                connection.sendall(word.encode())
                while part := connection.recv(4096):
                    answer += part
        except OSError:
            return ""
        return answer.decode("utf-8", "replace")

    def request_stop(self) -> None:
        if self._process is not None:
            self._process.terminate()

    def end(self, *, gently: bool) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        if gently:
            process.terminate()
            try:
                process.wait(STOP_WITHIN_S)
            except subprocess.TimeoutExpired:
                process.kill()
        else:
            process.kill()
        process.wait(STOP_WITHIN_S)
        self._dismiss_watchdog()

    def _dismiss_watchdog(self) -> None:
        watchdog, self._watchdog = self._watchdog, None
        if watchdog is not None:
            watchdog.dismiss()


def server_command() -> list[str]:
    """Return how a server is started, but for its configuration; NoZooKeeper if something is
    missing."""
    return [str(_find_java()), *_FLAGS, "-cp", f"{_find_jars()}/*", _MAIN]


def _find_jars() -> Path:
    # Looked up, not imported: PySpark is large and nothing else of it is needed.
    spec = importlib.util.find_spec("pyspark")
    places = list(spec.submodule_search_locations or ()) if spec is not None else []
    for place in places:
        jars = Path(place) / "jars"
        if any(jars.glob("zookeeper-3*.jar")):
            return jars
    what = f"the PySpark in {places[0]} has no ZooKeeper" if places else "PySpark is not installed"
    raise NoZooKeeper(
        f"starting a ZooKeeper ensemble needs PySpark's jars, but {what}; "
        "run `pip install 'moldau[spark]'`, or use a running ensemble"
    )


def _find_java() -> Path:
    try:
        home = find_java_home()
    except NoJava as error:
        raise NoZooKeeper(
            "ZooKeeper needs Java, but neither JAVA_HOME nor the PATH has one "
            "that is new enough; run `pip install 'moldau[spark]'`, which "
            "includes Java, or use a running ensemble"
        ) from error
    if home is not None:
        return home / "bin" / "java"
    if "JAVA_HOME" in os.environ:
        return Path(os.environ["JAVA_HOME"]) / "bin" / "java"
    found = shutil.which("java")
    assert found is not None
    return Path(found)
