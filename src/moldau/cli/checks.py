"""The checks of `moldau doctor`: each examines one thing, reports its state and says what to do."""

from __future__ import annotations

import errno
import importlib
import os
import platform
import shutil
import socket
import struct
import sys
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from importlib import metadata
from pathlib import Path

from moldau.cli.clients import (
    REQUEST_TIMEOUT_S,
    cluster_metadata,
    connect_admin,
    connect_consumer,
    connect_producer,
    connection_problem,
    failures,
    with_fatal_errors,
)
from moldau.cli.views.output import Failure
from moldau.security.client_config import client_security

ENOUGH_FILES = 4096
SCARCE_BYTES, LOW_BYTES = 100 << 20, 2 << 30
PACKAGES = {
    "confluent-kafka": "confluent_kafka",
    "cramjam": "cramjam",
    "crc32c": "crc32c",
    "kio": "kio",
    "msgspec": "msgspec",
    "uvloop": "uvloop",
}


class Status(StrEnum):
    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Finding:
    check: str
    status: Status
    detail: str
    advice: str = ""


def check_python() -> Finding:
    detail = f"{platform.python_version()} on {platform.system()} {platform.machine()}"
    if sys.version_info < (3, 11):  # noqa: UP036  (an installer can be told to ignore the bound)
        return Finding("python", Status.FAIL, detail, "install Python 3.11 or newer")
    if platform.system() not in ("Linux", "Darwin"):
        return Finding("python", Status.WARN, detail, "use Linux or macOS")
    return Finding("python", Status.OK, detail)


def check_packages() -> Finding:
    """Import compiled packages: an installed one may still not fit the machine."""
    found, broken = [], []
    for name, module in PACKAGES.items():
        try:
            importlib.import_module(module)
            found.append(f"{name} {metadata.version(name)}")
        except (ImportError, metadata.PackageNotFoundError) as problem:
            broken.append((name, str(problem)))
    if broken:
        detail = "; ".join(f"{name}: {problem}" for name, problem in broken)
        names = " ".join(name for name, _ in broken)
        return Finding(
            "packages", Status.FAIL, detail, f"python -m pip install --force-reinstall {names}"
        )
    return Finding("packages", Status.OK, ", ".join(found))


def check_open_files() -> Finding:
    """Check the hard limit, to which a broker raises its own."""
    import resource

    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard == resource.RLIM_INFINITY:
        return Finding("open files", Status.OK, "no limit")
    if hard >= ENOUGH_FILES:
        return Finding("open files", Status.OK, f"up to {hard}")
    return Finding(
        "open files",
        Status.WARN,
        f"up to {hard}; many partitions and connections need more",
        f"raise the hard limit (`ulimit -Hn`) to {ENOUGH_FILES} or more",
    )


def check_data_dir(folder: Path) -> Iterator[Finding]:
    existing = folder
    while not existing.exists() and existing != existing.parent:
        existing = existing.parent
    where = str(folder) if existing == folder else f"{folder} (will be created)"
    if not existing.is_dir():
        yield Finding(
            "data folder", Status.FAIL, f"{existing} is not a folder", "choose --data-dir"
        )
        return
    if not os.access(existing, os.W_OK | os.X_OK):
        advice = f"make {existing} writable, or choose another folder with --data-dir"
        yield Finding("data folder", Status.FAIL, f"{where}: not writable", advice)
    else:
        yield Finding("data folder", Status.OK, f"{where}: writable")
    free = shutil.disk_usage(existing).free
    detail = f"{free / (1 << 30):.1f} GiB free"
    if free < LOW_BYTES:
        status = Status.FAIL if free < SCARCE_BYTES else Status.WARN
        advice = "free some space, choose a --data-dir on another disk, or set log.retention.bytes"
        yield Finding("disk space", status, detail, advice)
    else:
        yield Finding("disk space", Status.OK, detail)


def check_port(host: str, port: int) -> Finding:
    """Check the port; one that a broker answers on is fine, since it is running already."""
    try:
        info = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, address = info[0]
        with socket.socket(family, kind, protocol) as listener:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
    except OSError as problem:
        return _port_problem(host, port, problem)
    return Finding("port", Status.OK, f"{host}:{port} is free")


def _port_problem(host: str, port: int, problem: OSError) -> Finding:
    if problem.errno == errno.EADDRINUSE:
        try:
            ask_api_versions(host, port)
        except (OSError, ValueError):
            return Finding(
                "port",
                Status.FAIL,
                f"{host}:{port} is in use by something that is not a broker",
                "stop it, or choose another address with `moldau broker --listen HOST:PORT`",
            )
        return Finding("port", Status.OK, f"{host}:{port}: a broker is running")
    reason = problem.strerror or str(problem)
    return Finding(
        "port", Status.FAIL, f"{host}:{port}: {reason}", "choose another address with --listen"
    )


def ask_api_versions(host: str, port: int, timeout: float = 3.0) -> dict[int, tuple[int, int]]:
    """Return the versions of each API that a broker names; ValueError if that is no broker.

    Version 0 of the request is spoken by every broker there is.
    """
    client_id = b"moldau-doctor"
    request = struct.pack(">hhih", 18, 0, 1, len(client_id)) + client_id
    with _connected(host, port, timeout) as connection:
        connection.sendall(struct.pack(">i", len(request)) + request)
        (size,) = struct.unpack(">i", _receive(connection, 4))
        if not 10 <= size <= 1 << 16:
            raise ValueError("the response is not Kafka's protocol")
        return parse_api_versions(_receive(connection, size))


def _connected(host: str, port: int, timeout: float) -> socket.socket:
    """Return a connection, encrypted if the client's config says so."""
    connection = socket.create_connection((host, port), timeout=timeout)
    security = client_security()
    context = None if security is None else security.context()
    return connection if context is None else context.wrap_socket(connection, server_hostname=host)


def parse_api_versions(answer: bytes) -> dict[int, tuple[int, int]]:
    """Return the body of an ApiVersions v0 response with its header; ValueError if it is not
    that."""
    if len(answer) < 10:
        raise ValueError("the response is not Kafka's protocol")
    correlation_id, error, count = struct.unpack_from(">ihi", answer)
    if correlation_id != 1 or error != 0 or not 0 <= 6 * count <= len(answer) - 10:
        raise ValueError("the response is not Kafka's protocol")
    entries = struct.iter_unpack(">hhh", answer[10 : 10 + 6 * count])
    return {key: (lowest, highest) for key, lowest, highest in entries}


def _receive(connection: socket.socket, size: int) -> bytes:
    received = b""
    while len(received) < size:
        piece = connection.recv(size - len(received))
        if not piece:
            raise ValueError("the connection was closed without a response")
        received += piece
    return received


def check_connection(bootstrap: str, addresses: list[tuple[str, int]]) -> Iterator[Finding]:
    """Check from the name to the cluster, each step only if the previous one works."""
    serving = 0
    for host, port in addresses:
        findings = list(_check_address(host, port))
        yield from findings
        serving += findings[-1].status is Status.OK
    if not serving:
        return
    try:
        cluster = cluster_metadata(connect_admin(bootstrap))
    except Failure as failure:
        yield Finding("metadata", Status.FAIL, failure.message, "check the broker's log")
        return
    yield Finding(
        "metadata", Status.OK, f"{len(cluster.brokers)} brokers, {len(cluster.topics)} topics"
    )
    for broker in cluster.brokers.values():
        host, port = str(broker.host), int(broker.port)
        problem = connection_problem(host, port)
        where = f"broker {broker.id} advertises {host}:{port}"
        if problem is None:
            yield Finding("advertised", Status.OK, f"{where}, which is reachable")
        else:
            yield Finding(
                "advertised",
                Status.FAIL,
                f"{where}, which is not reachable from here: {problem.reason}",
                "start that broker with --advertise HOST:PORT and an address that "
                "clients can reach",
            )


def _check_address(host: str, port: int) -> Iterator[Finding]:
    try:
        info = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except socket.gaierror as problem:
        advice = "check the spelling and /etc/hosts"
        yield Finding("name", Status.FAIL, f"{host}: {problem.strerror}", advice)
        return
    found = ", ".join(sorted({str(entry[4][0]) for entry in info}))
    yield Finding("name", Status.OK, host if found == host else f"{host} is {found}")
    trouble = connection_problem(host, port)
    if trouble is not None and not trouble.is_refusal:
        yield Finding(
            "tcp",
            Status.FAIL,
            f"{host}:{port}: {trouble.reason}",
            "start a broker with `moldau broker`, or check the port and the firewall",
        )
        return
    yield Finding("tcp", Status.OK, f"{host}:{port} accepts connections")
    if trouble is not None:
        yield Finding("security", Status.FAIL, f"{host}:{port}: {trouble.reason}", trouble.advice)
        return
    try:
        versions = ask_api_versions(host, port)
    except (OSError, ValueError) as problem:
        yield Finding(
            "protocol",
            Status.FAIL,
            f"{host}:{port} does not speak Kafka's protocol: {problem}",
            "another program listens there, or a broker that requires TLS: check the port, or "
            "give --client-config FILE with security.protocol",
        )
        return
    yield Finding("protocol", Status.OK, f"{host}:{port} offers {len(versions)} APIs")


def check_round_trip(bootstrap: str) -> Finding:
    """Send a message through a temporary topic."""
    from confluent_kafka import KafkaException, TopicPartition
    from confluent_kafka.admin import NewTopic

    topic = f"moldau-doctor-{uuid.uuid4().hex[:8]}"
    sent = uuid.uuid4().bytes
    try:
        admin = connect_admin(bootstrap)
        admin.create_topics([NewTopic(topic, 1)], request_timeout=REQUEST_TIMEOUT_S)[topic].result()
        try:
            with failures():
                began = time.perf_counter()
                producer = connect_producer(bootstrap, message_timeout_ms=10_000)
                producer.produce(topic, sent)
                with_fatal_errors(lambda: producer.flush(REQUEST_TIMEOUT_S))
                consumer = connect_consumer(bootstrap)
                consumer.assign([TopicPartition(topic, 0, 0)])
                message = consumer.poll(REQUEST_TIMEOUT_S)
                took = time.perf_counter() - began
                consumer.close()
        finally:
            admin.delete_topics([topic], request_timeout=REQUEST_TIMEOUT_S)[topic].result()
    except (Failure, KafkaException) as problem:
        return Finding("round trip", Status.FAIL, str(problem), "check the broker's log")
    if message is None or message.error() is not None or message.value() != sent:
        detail = "the message did not come back"
        return Finding("round trip", Status.FAIL, detail, "check the broker's log")
    detail = f"connected, sent and received a message in {took * 1000:.0f} ms"
    return Finding("round trip", Status.OK, detail)
