"""Apache Kafka's broker in processes of its own: one, or a cluster, in KRaft mode on loopback."""

from __future__ import annotations

import base64
import shutil
import socket
import subprocess
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from bench.kafka.jars import java, kafka_jars
from bench.kafka.setup import Setup
from moldau.bench.child import Child, Children
from moldau.bench.errors import BenchFailed
from moldau.wire.apis import Api
from moldau.wire.headers import request_frame
from moldau.wire.messages import decode_response, encode_request

HOST = "127.0.0.1"
READY_TIMEOUT_S = 90.0
STOP_TIMEOUT_S = 60.0
_FORMAT_TIMEOUT_S = 60.0
_POLL_S = 0.02
_METADATA_VERSION = 9
_LOGGING = Path(__file__).with_name("log4j2.properties")


def java_words(main: str, *words: str, jvm: Sequence[str] = ("-Xmx256m",)) -> list[str]:
    """The command line of one of the programs in Kafka's jars."""
    options = [*jvm, f"-Dlog4j2.configurationFile={_LOGGING}"]
    return [java(), *options, "-cp", f"{kafka_jars()}/*", main, *words]


def free_ports(count: int) -> list[int]:
    """Ports of loopback that nobody listens on, all different."""
    probes = [socket.create_server((HOST, 0)) for _ in range(count)]
    try:
        return [probe.getsockname()[1] for probe in probes]
    finally:
        for probe in probes:
            probe.close()


class KafkaBroker:
    """One broker that is also a controller. Made formatted, not started.

    `start` runs it on the same folder and port each time; `discard` ends it and removes its data.
    """

    def __init__(
        self,
        children: Children,
        folder: Path,
        setup: Setup,
        *,
        node_id: int = 1,
        port: int = 0,
        controller_port: int = 0,
        voters: str = "",
        cluster_id: str = "",
        brokers: int = 1,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        self._children = children
        self.data_dir = folder / "data"
        self.setup = setup
        self.id = node_id
        self.host = HOST
        if not port:
            port, controller_port = free_ports(2)
        self.port = port
        self._brokers = brokers
        self._properties = folder / "server.properties"
        folder.mkdir(parents=True)
        replicas = str(min(3, brokers))
        values = {
            **setup.settings,
            "process.roles": "broker,controller",
            "node.id": str(node_id),
            "controller.quorum.voters": voters or f"{node_id}@{HOST}:{controller_port}",
            "listeners": f"PLAINTEXT://{HOST}:{port},CONTROLLER://{HOST}:{controller_port}",
            "advertised.listeners": f"PLAINTEXT://{HOST}:{port}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "inter.broker.listener.name": "PLAINTEXT",
            "controller.listener.names": "CONTROLLER",
            "log.dirs": str(self.data_dir),
            "offsets.topic.replication.factor": replicas,
            "transaction.state.log.replication.factor": replicas,
            "transaction.state.log.min.isr": str(min(2, brokers)),
            "share.coordinator.state.topic.replication.factor": replicas,
            "share.coordinator.state.topic.min.isr": str(min(2, brokers)),
            **(settings or {}),
        }
        self._properties.write_text("".join(f"{key}={text}\n" for key, text in values.items()))
        self._format(cluster_id or new_cluster_id())
        self.child: Child | None = None

    def _format(self, cluster_id: str) -> None:
        words = java_words(
            "kafka.tools.StorageTool",
            *("format", "-t", cluster_id, "-c", str(self._properties)),
            jvm=("-Xmx128m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"),
        )
        done = subprocess.run(words, capture_output=True, text=True, timeout=_FORMAT_TIMEOUT_S)
        if done.returncode != 0:
            raise BenchFailed(f"Kafka could not format its folder: {done.stdout}{done.stderr}")

    @property
    def bootstrap(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def pid(self) -> int:
        assert self.child is not None
        return self.child.pid

    def start(self) -> None:
        """Start the process; it is not ready when this returns."""
        # Its codecs unpack their libraries, and leave them there when it is killed.
        jvm = (*self.setup.jvm, f"-Djava.io.tmpdir={self._properties.parent}")
        words = java_words("kafka.Kafka", str(self._properties), jvm=jvm)
        self.child = self._children.start(words)

    def wait_ready(self) -> None:
        """Until it serves clients and sees all brokers of its cluster."""
        deadline = time.monotonic() + READY_TIMEOUT_S
        while len(known_brokers(self.host, self.port)) < self._brokers:
            self._expect_running()
            if time.monotonic() > deadline:
                raise BenchFailed(f"Kafka is not ready after {READY_TIMEOUT_S:g} s\n{self._said()}")
            time.sleep(_POLL_S)

    def _expect_running(self) -> None:
        status = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[0]
        if status == "Z":
            raise BenchFailed(f"Kafka ended before it was ready\n{self._said()}")

    def _said(self) -> str:
        return "" if self.child is None else self.child.log_tail()

    def stop_cleanly(self) -> float:
        """Seconds that a clean stop takes; the data stays."""
        assert self.child is not None
        started = time.monotonic()
        self.child.end(STOP_TIMEOUT_S, expected=(0, 128 + 15))
        seconds = time.monotonic() - started
        self.child = None
        return seconds

    def kill(self) -> None:
        """End the process as a crash would."""
        if self.child is not None:
            self.child.stop()
            self.child = None

    def discard(self) -> None:
        """End it at once and remove its data."""
        self.kill()
        shutil.rmtree(self._properties.parent, ignore_errors=True)


@contextmanager
def kafka_cluster(
    children: Children,
    folder: Path,
    setup: Setup,
    brokers: int = 3,
    settings: Mapping[str, str] | None = None,
) -> Iterator[list[KafkaBroker]]:
    """Brokers that are controllers too, all ready; gone when the block ends."""
    ports = free_ports(2 * brokers)
    voters = ",".join(f"{n + 1}@{HOST}:{ports[2 * n + 1]}" for n in range(brokers))
    cluster_id = new_cluster_id()
    members = []
    try:
        for n in range(brokers):
            member = KafkaBroker(
                children,
                folder / f"kafka-{n + 1}",
                setup,
                node_id=n + 1,
                port=ports[2 * n],
                controller_port=ports[2 * n + 1],
                voters=voters,
                cluster_id=cluster_id,
                brokers=brokers,
                settings=settings,
            )
            members.append(member)
        for member in members:
            member.start()
        for member in members:
            member.wait_ready()
        yield members
    finally:
        for member in members:
            member.discard()


def new_cluster_id() -> str:
    """As Kafka makes them, but never one that begins as an option of its tool does."""
    found = "-"
    while found.startswith("-"):
        found = base64.urlsafe_b64encode(uuid.uuid4().bytes)[:22].decode()
    return found


def known_brokers(host: str, port: int) -> list[int]:
    """The ids of the brokers that the one at this address knows; none while it does not serve."""
    frame = request_frame(
        Api.METADATA,
        _METADATA_VERSION,
        1,
        "probe",
        encode_request(Api.METADATA, _METADATA_VERSION, {"topics": []}),
    )
    try:
        with socket.create_connection((host, port), 5) as sock:
            sock.sendall(frame)
            size = int.from_bytes(sock.recv(4, socket.MSG_WAITALL), "big")
            answer = sock.recv(size, socket.MSG_WAITALL)
            if len(answer) < 5:
                return []
    except OSError:
        return []
    body = decode_response(Api.METADATA, _METADATA_VERSION, memoryview(answer)[5:])
    return [broker.node_id for broker in body.brokers]
