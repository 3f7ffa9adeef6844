"""Upgrades: what an earlier version wrote is taken over, broker by broker and under load.

Each test begins with brokers of an earlier version, installed from this clone's history, and ends
with brokers of this one.
"""

from __future__ import annotations

import signal
import time
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from moldau.peer.connection import Connection
from moldau.testing import Cluster, Ensemble
from moldau.wire.apis import Api
from moldau.wire.errors import Error
from tests.broker.broker_process import BrokerProcess
from tests.broker.wire_client import Client
from tests.scenarios.earlier import install
from tests.scenarios.play import TOPIC, Play

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]


@pytest.fixture(scope="module")
def earlier(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment in which a broker is of the earlier version."""
    return {"PYTHONPATH": str(install(tmp_path_factory.mktemp("earlier")))}


def create_at(cluster: Cluster, broker: int, topic: str) -> None:
    """Ask one broker for a topic, be it the controller or not: it passes that on where it must."""
    host, _, port = cluster.address(broker).rpartition(":")
    wanted = {
        "name": topic,
        "num_partitions": 2,
        "replication_factor": 3,
        "assignments": [],
        "configs": [],
    }

    def is_created() -> bool:
        with Connection(host, int(port), "upgrade") as connection:
            request = {"topics": [wanted], "timeout": 10_000, "validate_only": False}
            (result,) = connection.ask(Api.CREATE_TOPICS, request).topics
        return int(result.error_code) in (Error.NONE, Error.TOPIC_ALREADY_EXISTS)

    cluster.wait_until(is_created, f"{topic} is created by way of broker {broker}")


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_a_cluster_is_upgraded_broker_by_broker_under_load(
    ensemble: Ensemble, earlier: dict[str, str], how: str
) -> None:
    with (
        Cluster(3, ensemble, environment=earlier) as cluster,
        Play(cluster, writers=2, group="readers") as play,
    ):
        play.go_on()
        for broker in cluster.brokers:
            getattr(cluster, how)(broker)
            play.go_on()
            cluster.environments[broker].clear()
            cluster.start(broker)
            cluster.wait_until_in_sync(TOPIC)
            play.go_on()
            for asked in cluster.brokers:
                create_at(cluster, asked, f"while-{broker}-is-new-{asked}")
        # The last of the earlier version is gone: all of them lead and follow under this one.
        cluster.kill(cluster.leader_of(TOPIC))
        play.go_on()


def test_the_controller_is_upgraded_last_and_then_first(
    ensemble: Ensemble, earlier: dict[str, str]
) -> None:
    """Whoever decides while versions are mixed: decisions of either are understood by both."""
    with Cluster(3, ensemble, environment=earlier) as cluster, Play(cluster) as play:
        controller = cluster.controller()
        others = [broker for broker in cluster.brokers if broker != controller]
        for broker in others:
            cluster.stop(broker)
            cluster.environments[broker].clear()
            cluster.start(broker)
            cluster.wait_until_in_sync(TOPIC)
        # Elections by the earlier version, of leaders of this one.
        cluster.kill(others[0])
        play.go_on()
        cluster.start(others[0])
        cluster.wait_until_in_sync(TOPIC)
        # And by this one, with the earlier one as a follower.
        cluster.kill(controller)
        play.go_on()
        cluster.start(controller)
        cluster.wait_until_in_sync(TOPIC)
        assert cluster.controller() != controller
        cluster.kill(cluster.leader_of(TOPIC))
        play.go_on()


@pytest.mark.parametrize("ending", [signal.SIGTERM, signal.SIGKILL])
def test_the_data_folder_of_an_earlier_broker_opens(
    tmp_path: Path, earlier: dict[str, str], ending: signal.Signals
) -> None:
    folder = tmp_path / "data"
    with BrokerProcess(folder, environment=earlier) as old:
        for topic in COMPACTED:
            create_here(old, topic)
        written = write(old, range(1000))
        commit(old, 700)
        old.stop(ending)
    with BrokerProcess(folder) as new:
        assert read(new, len(written)) == written
        assert committed(new) == 700
        written |= write(new, range(1000, 1100))
        assert read(new, len(written)) == written
        assert new.stop() == 0


# Plain and compacted: a cleaned log has other files, and its records are looked into.
COMPACTED = {"orders": False, "prices": True}
Written = dict[tuple[str, int], bytes]


def bootstrap(broker: BrokerProcess) -> dict[str, Any]:
    return {"bootstrap.servers": f"127.0.0.1:{broker.port}", "log_level": 0}


def create_here(broker: BrokerProcess, topic: str) -> None:
    policy = "compact" if COMPACTED[topic] else "delete"
    configs = {"cleanup.policy": policy, "segment.bytes": "65536", "segment.ms": "100"}
    admin = AdminClient(bootstrap(broker))
    admin.create_topics([NewTopic(topic, 1, 1, config=configs)])[topic].result(60)


def write(broker: BrokerProcess, numbers: range) -> Written:
    """Write to every topic, each key once; what was written by topic and offset."""
    producer = Producer(
        bootstrap(broker) | {"enable.idempotence": True, "linger.ms": 5, "batch.size": 16384}
    )
    written: Written = {}

    def keep(problem: KafkaError | None, message: Message) -> None:
        assert problem is None, problem
        offset, value = message.offset(), message.value()
        assert offset is not None
        assert value is not None
        written[str(message.topic()), offset] = value

    for topic in COMPACTED:
        for number in numbers:
            producer.produce(topic, b"%d " % number * 20, b"%d" % number, on_delivery=keep)
    assert producer.flush(60) == 0
    assert len(written) == len(COMPACTED) * len(numbers)
    return written


def read(broker: BrokerProcess, count: int) -> Written:
    settings = {"group.id": "reader", "enable.auto.commit": False, "enable.partition.eof": False}
    consumer = Consumer(bootstrap(broker) | settings)
    consumer.assign([TopicPartition(topic, 0, 0) for topic in COMPACTED])
    found: Written = {}
    deadline = time.monotonic() + 30
    while len(found) < count and time.monotonic() < deadline:
        for message in consumer.consume(count, 1):
            assert message.error() is None, message.error()
            offset, value = message.offset(), message.value()
            assert offset is not None
            assert value is not None
            found[str(message.topic()), offset] = value
    consumer.close()
    return found


def commit(broker: BrokerProcess, offset: int) -> None:
    consumer = Consumer(bootstrap(broker) | {"group.id": "ledger", "enable.auto.commit": False})
    consumer.commit(offsets=[TopicPartition("orders", 0, offset)], asynchronous=False)
    consumer.close()


def committed(broker: BrokerProcess) -> int:
    consumer = Consumer(bootstrap(broker) | {"group.id": "ledger", "enable.auto.commit": False})
    (place,) = consumer.committed([TopicPartition("orders", 0)], timeout=60)
    consumer.close()
    return int(place.offset)


def test_transactions_begin_when_the_last_broker_knows_them(
    ensemble: Ensemble, earlier: dict[str, str]
) -> None:
    """A broker of the earlier version takes no markers: until it is gone nobody is promised any."""
    with Cluster(2, ensemble, environment=earlier) as cluster:
        cluster.create_topic("orders", partitions=2, replication_factor=2)
        cluster.stop(0)
        cluster.environments[0].clear()
        cluster.start(0)
        host, _, port = cluster.address(0).rpartition(":")

        def features() -> set[str]:
            with Client((host, int(port))) as client:
                names = {"client_software_name": "test", "client_software_version": "1"}
                answer = client.ask(Api.API_VERSIONS, 3, **names)
            return {each.name for each in answer.finalized_features}

        with Client((host, int(port))) as client:
            values = {"transactional_id": "t", "transaction_timeout": 60_000}
            refused = client.ask(Api.FIND_COORDINATOR, 1, key="t", key_type=1)
            assert refused.error_code == Error.COORDINATOR_NOT_AVAILABLE
            refused = client.ask(Api.INIT_PRODUCER_ID, 1, **values)
            assert refused.error_code == Error.COORDINATOR_NOT_AVAILABLE
        assert "transaction.version" not in features()
        cluster.stop(1)
        cluster.environments[1].clear()
        cluster.start(1)
        cluster.wait_until(lambda: "transaction.version" in features(), "the feature is final")
        producer = Producer({"bootstrap.servers": cluster.bootstrap, "transactional.id": "t"})
        producer.init_transactions(60)
        producer.begin_transaction()
        for partition in (0, 1):
            producer.produce("orders", b"x", partition=partition)
        producer.commit_transaction(30)
