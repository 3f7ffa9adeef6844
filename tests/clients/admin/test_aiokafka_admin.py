"""The admin calls of aiokafka."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest
from aiokafka import TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import InvalidPartitionsError, OffsetOutOfRangeError, for_code

from moldau.testing import Broker
from tests.clients.aio import AioClient
from tests.clients.client import Message, read_all

Ask = Callable[[Callable[[Any], Awaitable[Any]]], Any]


@pytest.fixture
def ask(broker: Broker) -> Iterator[Ask]:
    """Runs a call of the admin client: `ask(lambda admin: admin.list_topics())`."""

    async def start() -> Any:
        admin = AIOKafkaAdminClient(bootstrap_servers=broker.bootstrap)
        await admin.start()
        return admin

    async def run(call: Callable[[Any], Awaitable[Any]], admin: Any) -> Any:
        return await call(admin)

    with asyncio.Runner() as runner:
        admin = runner.run(start())
        yield lambda call: runner.run(run(call, admin))
        runner.run(admin.close())


@pytest.fixture
def client(broker: Broker) -> AioClient:
    return AioClient(broker.bootstrap)


def create_error(ask: Ask, *topics: Any, **options: Any) -> str:
    """The name of the error that the first topic met."""
    answer = ask(lambda admin: admin.create_topics(list(topics), **options))
    return str(for_code(answer.topic_errors[0][1]).__name__)


def configs_of(ask: Ask, kind: Any, name: str) -> dict[str, str]:
    (answer,) = ask(lambda admin: admin.describe_configs([ConfigResource(kind, name)]))
    ((error, message, _, _, entries),) = answer.resources
    assert error == 0, message
    return {entry[0]: entry[1] for entry in entries}


def test_topics_are_created_listed_and_deleted(ask: Ask, fresh_name: str) -> None:
    topic = NewTopic(fresh_name, 4, 1, topic_configs={"retention.ms": "1234567"})
    assert create_error(ask, topic) == "NoError"
    assert fresh_name in ask(lambda admin: admin.list_topics())
    (described,) = ask(lambda admin: admin.describe_topics([fresh_name]))
    assert [each["partition"] for each in described["partitions"]] == [0, 1, 2, 3]
    assert configs_of(ask, ConfigResourceType.TOPIC, fresh_name)["retention.ms"] == "1234567"
    ask(lambda admin: admin.delete_topics([fresh_name]))
    assert fresh_name not in ask(lambda admin: admin.list_topics())


def test_validation_creates_nothing(ask: Ask, fresh_name: str) -> None:
    assert create_error(ask, NewTopic(fresh_name, 1, 1), validate_only=True) == "NoError"
    assert fresh_name not in ask(lambda admin: admin.list_topics())


def test_what_cannot_be_created_is_refused(ask: Ask, topic: str, fresh_name: str) -> None:
    assert create_error(ask, NewTopic(topic, 1, 1)) == "TopicAlreadyExistsError"
    assert create_error(ask, NewTopic("bad name", 1, 1)) == "InvalidTopicError"
    assert create_error(ask, NewTopic(fresh_name + "-2", 1, 3)) == "InvalidReplicationFactorError"
    assert create_error(ask, NewTopic(fresh_name + "-2", 0, 1)) == "InvalidPartitionsError"


def test_replicas_may_be_assigned_by_hand(ask: Ask, fresh_name: str) -> None:
    topic = NewTopic(fresh_name, -1, -1, replica_assignments={0: [0], 1: [0]})
    assert create_error(ask, topic) == "NoError"
    (described,) = ask(lambda admin: admin.describe_topics([fresh_name]))
    assert len(described["partitions"]) == 2


def test_partitions_are_added(ask: Ask, client: AioClient, topic: str) -> None:
    ask(lambda admin: admin.create_partitions({topic: NewPartitions(5)}))
    (described,) = ask(lambda admin: admin.describe_topics([topic]))
    assert len(described["partitions"]) == 5
    assert client.produce(topic, [Message(b"x")], partition=4) == [0]
    with pytest.raises(InvalidPartitionsError):
        ask(lambda admin: admin.create_partitions({topic: NewPartitions(2)}))


def test_configs_are_replaced(ask: Ask, topic: str) -> None:
    def replace(configs: dict[str, str]) -> int:
        resource = ConfigResource(ConfigResourceType.TOPIC, topic, configs)
        (answer,) = ask(lambda admin: admin.alter_configs([resource]))
        return int(answer.resources[0][0])

    before = configs_of(ask, ConfigResourceType.TOPIC, topic)
    assert replace({"segment.bytes": "1000000"}) == 0
    after = configs_of(ask, ConfigResourceType.TOPIC, topic)
    assert after == before | {"segment.bytes": "1000000"}
    assert for_code(replace({"segment.bytes": "many"})).__name__ == "InvalidConfigurationError"
    assert configs_of(ask, ConfigResourceType.TOPIC, topic) == after
    assert replace({}) == 0
    assert configs_of(ask, ConfigResourceType.TOPIC, topic) == before


def test_a_broker_describes_its_own_configs(ask: Ask, broker: Broker) -> None:
    found = configs_of(ask, ConfigResourceType.BROKER, "0")
    assert found["log.dirs"] == str(broker.data_dir)


def test_records_are_deleted_up_to_an_offset(ask: Ask, client: AioClient, topic: str) -> None:
    at = TopicPartition(topic, 0)
    client.produce(topic, [Message(b"%d" % number) for number in range(10)])
    assert ask(lambda admin: admin.delete_records({at: RecordsToDelete(6)})) == {at: 6}
    assert client.watermarks(topic) == (6, 10)
    assert [each.offset for each in read_all(client, topic, 4)] == [6, 7, 8, 9]
    with pytest.raises(OffsetOutOfRangeError):
        ask(lambda admin: admin.delete_records({at: RecordsToDelete(11)}))


def test_the_cluster_is_described(ask: Ask, broker: Broker) -> None:
    found = ask(lambda admin: admin.describe_cluster())
    assert found["cluster_id"]
    assert found["controller_id"] == 0
    (node,) = found["brokers"]
    assert (node["node_id"], node["host"], node["port"]) == (0, broker.host, broker.port)
