"""Brokers that were locked with one authority: a cluster that loses nothing, and believes nobody
but its brokers."""

from __future__ import annotations

import re
import socket
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from moldau.local.ports import HOST, free_ports
from moldau.local.process import BrokerProcess
from moldau.peer.connection import Connection
from moldau.security.client import ClientSecurity
from moldau.security.client_config import client_properties
from moldau.security.librdkafka import for_librdkafka
from moldau.testing import Ensemble
from moldau.testing.cluster import QUICK_SETTINGS
from moldau.testing.waiting import until
from moldau.wire.apis import Api
from moldau.wire.errors import Error
from moldau.wire.headers import request_frame
from moldau.wire.messages import encode_request
from moldau.wire.principal import encode_principal
from tests.scenarios.clients import IMPATIENT

WITHIN_S = 60.0
TOPIC, PARTITIONS = "locked", 3

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]


class LockedCluster:
    """Brokers that were each started by `moldau broker --secure --authority`."""

    def __init__(self, ensemble: Ensemble, folder: Path, brokers: int = 3) -> None:
        self._zookeeper = f"{ensemble.hosts}/locked-{uuid.uuid4().hex[:8]}"
        self._folder = folder
        self.ports = free_ports(brokers)
        self.processes: dict[int, BrokerProcess] = {}

    def start(self, *brokers: int) -> None:
        """All at once: one of them makes the authority."""
        for broker in brokers:
            words = [sys.executable, "-m", "moldau", "broker", "--id", str(broker), "--secure"]
            words += ["--authority", str(self._folder / "shared")]
            words += ["--listen", f"{HOST}:{self.ports[broker]}", "--zookeeper", self._zookeeper]
            words += ["--data-dir", str(self._folder / str(broker))]
            for key, value in QUICK_SETTINGS.items():
                words += ["--set", f"{key}={value}"]
            path = self._folder / f"{broker}.log"
            with path.open("ab") as log:
                self.processes[broker] = BrokerProcess(words, log, path)
        for broker in brokers:
            self.processes[broker].wait_ready()

    def stop(self) -> None:
        for process in self.processes.values():
            process.kill()

    @property
    def admin(self) -> dict[str, str]:
        """What a client of `admin` needs, under Java's names."""
        return client_properties(str(self._folder / "shared" / "admin.properties"))

    def librdkafka(self, **more: Any) -> dict[str, Any]:
        return for_librdkafka(self.admin) | IMPATIENT | more


@pytest.fixture(scope="module")
def cluster(
    ensemble: Ensemble, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[LockedCluster]:
    cluster = LockedCluster(ensemble, tmp_path_factory.mktemp("locked"))
    try:
        cluster.start(0, 1, 2)
        admin = AdminClient(cluster.librdkafka())
        until(lambda: len(admin.list_topics(timeout=WITHIN_S).brokers) == 3, "all three")
        topic = NewTopic(TOPIC, PARTITIONS, 3, config={"min.insync.replicas": "2"})
        for future in admin.create_topics([topic]).values():
            future.result(WITHIN_S)
        yield cluster
    finally:
        cluster.stop()


def produce(producer: Producer, first: int, last: int) -> None:
    failures: list[Any] = []
    for number in range(first, last):
        producer.produce(
            TOPIC,
            str(number),
            partition=number % PARTITIONS,
            on_delivery=lambda error, _: failures.append(error) if error else None,
        )
    assert producer.flush(WITHIN_S) == 0
    assert failures == []


def read(cluster: LockedCluster, count: int) -> list[list[int]]:
    """The values of each partition, in their order, until there are so many."""
    consumer = Consumer(cluster.librdkafka(**{"group.id": "g", "auto.offset.reset": "earliest"}))
    found: list[list[int]] = [[] for _ in range(PARTITIONS)]
    try:
        consumer.assign([TopicPartition(TOPIC, index, 0) for index in range(PARTITIONS)])

        def is_read() -> bool:
            for message in consumer.consume(500, 0.1):
                if message.error() is None:
                    found[message.partition() or 0].append(int(message.value() or b""))
            return sum(map(len, found)) >= count

        until(is_read, f"{count} records", poll_s=0.0)
    finally:
        consumer.close()
    return found


def test_a_leader_dies_and_everything_is_still_there(cluster: LockedCluster) -> None:
    told = set(cluster.admin["bootstrap.servers"].split(","))
    assert told == {f"{HOST}:{port}" for port in cluster.ports}
    admin = AdminClient(cluster.librdkafka())

    def partitions() -> Any:
        return admin.list_topics(TOPIC, timeout=WITHIN_S).topics[TOPIC].partitions

    producer = Producer(cluster.librdkafka(**{"acks": "all", "enable.idempotence": True}))
    produce(producer, 0, 300)
    until(lambda: all(len(each.isrs) == 3 for each in partitions().values()), "all in sync")
    leader = partitions()[0].leader
    cluster.processes[leader].kill()
    produce(producer, 300, 600)
    assert partitions()[0].leader != leader
    assert read(cluster, 600) == [list(range(index, 600, PARTITIONS)) for index in range(3)]
    # It comes back by the authority that it left, and copies what it missed.
    cluster.start(leader)
    until(lambda: all(len(each.isrs) == 3 for each in partitions().values()), "all in sync again")


def test_a_stranger_is_not_believed_to_be_a_broker(cluster: LockedCluster) -> None:
    """Though mallory may do everything to the topic, and knows how brokers talk."""
    admin = AdminClient(cluster.librdkafka())
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
    made: Any = admin.alter_user_scram_credentials(
        [UserScramCredentialUpsertion("mallory", info, b"a password of hers")]
    )
    rule = AclBinding(
        ResourceType.TOPIC,
        TOPIC,
        ResourcePatternType.LITERAL,
        "User:mallory",
        "*",
        AclOperation.ALL,
        AclPermissionType.ALLOW,
    )
    for future in (*made.values(), *admin.create_acls([rule]).values()):
        future.result(WITHIN_S)
    login = cluster.admin["sasl.jaas.config"].replace("admin", "mallory")
    login = re.sub('password="[^"]*"', 'password="a password of hers"', login)
    security = ClientSecurity.parse(cluster.admin | {"sasl.jaas.config": login})

    def refusals(port: int) -> tuple[int, int, int]:
        with Connection(HOST, port, "mallory", security=security) as connection:
            fetched = connection.ask(Api.FETCH, as_follower(), at_most=12)
            marked = connection.ask(Api.WRITE_TXN_MARKERS, {"markers": [marker()]})
            forged = connection.ask(Api.ENVELOPE, in_the_name_of("admin"))
        return (
            int(fetched.responses[0].partitions[0].error_code),
            int(marked.markers[0].topics[0].partitions[0].error_code),
            int(forged.error_code),
        )

    wrapped: set[int] = set()
    for port in cluster.ports:
        # A broker may hear of the user and of the rule a moment later.
        until(lambda: may_read(port, security), "mallory's right", ignoring=Exception)  # noqa: B023
        fetched, marked, forged = refusals(port)
        assert fetched == Error.TOPIC_AUTHORIZATION_FAILED
        assert marked == Error.CLUSTER_AUTHORIZATION_FAILED
        wrapped.add(forged)
    # Only the controller would open an envelope.
    assert wrapped == {Error.CLUSTER_AUTHORIZATION_FAILED, Error.NOT_CONTROLLER}
    assert "forged" not in admin.list_topics(timeout=WITHIN_S).topics


def may_read(port: int, security: ClientSecurity | None) -> bool:
    with Connection(HOST, port, "mallory", security=security) as connection:
        answer = connection.ask(
            Api.METADATA, {"topics": [{"name": TOPIC}], "allow_auto_topic_creation": False}
        )
    return int(answer.topics[0].error_code) == 0


def as_follower() -> dict[str, Any]:
    partition = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 20}
    return {
        "replica_id": 1,
        "max_wait": 0,
        "min_bytes": 0,
        "max_bytes": 1 << 20,
        "session_epoch": -1,
        "topics": [{"topic": TOPIC, "partitions": [partition]}],
    }


def marker() -> dict[str, Any]:
    return {
        "producer_id": 1,
        "transaction_result": True,
        "topics": [{"name": TOPIC, "partition_indexes": [0]}],
    }


def in_the_name_of(who: str) -> dict[str, Any]:
    wanted = {"name": "forged", "num_partitions": 1, "replication_factor": 1}
    body = encode_request(Api.CREATE_TOPICS, 7, {"topics": [wanted], "timeout": 5000})
    return {
        # Without its size.
        "request_data": request_frame(Api.CREATE_TOPICS, 7, 1, "mallory", body)[4:],
        "request_principal": encode_principal("User", who),
        "client_host_address": socket.inet_aton(HOST),
    }
