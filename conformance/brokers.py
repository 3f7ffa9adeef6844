"""Both brokers, each in a process of its own, with the same node id and settings."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.kafka.broker import HOST, KafkaBroker, free_ports
from bench.kafka.setup import Setup
from conformance.connection import Connection
from conformance.session import Broker
from moldau.bench.child import Children
from moldau.wire.apis import Api

NODE_ID = 1
_READY_TIMEOUT_S = 30.0
# What is set on both, so that the cases are quick and deal with small things.
SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
    "group.consumer.assignment.interval.ms": "0",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.num.partitions": "4",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "100",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "4",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "message.max.bytes": "100000",
    # Given in another unit than topics have it.
    "log.roll.hours": "100",
}
# What is set besides on brokers that ask for rights: who does not log in may do everything.
_LOCKED = "LOCKED"
LOCKED_SETTINGS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS;User:root",
    "sasl.enabled.mechanisms": "PLAIN",
    "listener.name.locked.plain.sasl.jaas.config": (
        "org.apache.kafka.common.security.plain.PlainLoginModule required "
        'user_alice="alice-secret" user_root="root-secret";'
    ),
}
_SMALL_HEAP = ("-Xms512m", "-Xmx512m", "-XX:+UseSerialGC")


@contextmanager
def both(*, locked: bool = False) -> Iterator[tuple[Broker, Broker]]:
    """Kafka and Moldau, ready; nothing is left of them afterwards.

    Those that are `locked` judge requests by their StandardAuthorizer, and have a second listener
    where users log in.
    """
    folder = Path(tempfile.mkdtemp(prefix="moldau-conformance-"))
    settings = SETTINGS | (LOCKED_SETTINGS if locked else {})
    port, controller_port, locked_port = free_ports(3)
    try:
        with Children(folder) as children:
            setup = Setup("small", _SMALL_HEAP)
            kafka = KafkaBroker(
                children,
                folder / "kafka",
                setup,
                node_id=NODE_ID,
                port=port,
                controller_port=controller_port,
                settings=settings
                | (_kafka_locked(port, controller_port, locked_port) if locked else {}),
            )
            kafka.start()
            data = folder / "moldau"
            moldau = children.start(_moldau_words(data, settings, locked))
            where = moldau.line(_READY_TIMEOUT_S).rpartition(" ")[2]
            kafka.wait_ready()
            own, _, theirs = where.partition(",")
            host, _, number = own.rpartition("/")[2].rpartition(":")
            brokers = (
                Broker("Kafka", kafka.host, kafka.port, NODE_ID, kafka.data_dir, locked_port),
                Broker("Moldau", host, int(number), NODE_ID, data),
            )
            if locked:
                brokers[1].locked_port = int(theirs.rpartition(":")[2])
            for broker in brokers:
                broker.versions = _offered(broker)
            yield brokers
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _kafka_locked(port: int, controller_port: int, locked_port: int) -> dict[str, str]:
    clients = f"PLAINTEXT://{HOST}:{port},{_LOCKED}://{HOST}:{locked_port}"
    return {
        "listeners": f"{clients},CONTROLLER://{HOST}:{controller_port}",
        "advertised.listeners": clients,
        "listener.security.protocol.map": (
            f"PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,{_LOCKED}:SASL_PLAINTEXT"
        ),
        # Or it would have no request that takes the right to two-phase commit.
        "unstable.api.versions.enable": "true",
        "transaction.two.phase.commit.enable": "true",
    }


def _moldau_words(data: Path, settings: dict[str, str], locked: bool) -> list[str]:
    words = [sys.executable, "-m", "moldau", "broker", "--data-dir", str(data)]
    words += ["--id", str(NODE_ID)]
    if locked:
        settings = settings | {
            "listeners": f"PLAINTEXT://{HOST}:0,{_LOCKED}://{HOST}:0",
            "listener.security.protocol.map": f"PLAINTEXT:PLAINTEXT,{_LOCKED}:SASL_PLAINTEXT",
        }
    else:
        words += ["--listen", f"{HOST}:0"]
    for key, value in settings.items():
        words += ["--set", f"{key}={value}"]
    return words


def _offered(broker: Broker) -> dict[int, tuple[int, int]]:
    connection = Connection(broker.host, broker.port)
    try:
        answer = connection.ask(Api.API_VERSIONS, 0, {})
    finally:
        connection.close()
    return {int(key.api_key): (key.min_version, key.max_version) for key in answer.api_keys}
