"""The admin calls of confluent-kafka."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future
from typing import TypeVar

import pytest
from confluent_kafka import (
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from moldau.testing import Broker
from tests.clients.client import NOON_MS, WITHIN_S, Message, read_all
from tests.clients.confluent import ConfluentClient

K = TypeVar("K")
T = TypeVar("T")


@pytest.fixture
def admin(broker: Broker) -> AdminClient:
    return AdminClient({"bootstrap.servers": broker.bootstrap})


@pytest.fixture
def client(broker: Broker) -> ConfluentClient:
    return ConfluentClient(broker.bootstrap)


def only(futures: Mapping[K, Future[T]]) -> T:
    """The result of a call about one thing."""
    (future,) = futures.values()
    return future.result(WITHIN_S)


def error_of(futures: Mapping[K, Future[T]]) -> KafkaError:
    with pytest.raises(KafkaException) as failure:
        only(futures)
    error = failure.value.args[0]
    assert isinstance(error, KafkaError)
    return error


def partitions_of(admin: AdminClient, topic: str) -> int:
    return len(admin.list_topics(topic, timeout=WITHIN_S).topics[topic].partitions)


def config_of(admin: AdminClient, topic: str, name: str) -> ConfigEntry:
    found = only(admin.describe_configs([ConfigResource(ResourceType.TOPIC, topic)]))
    entry = found[name]
    assert isinstance(entry, ConfigEntry)
    return entry


def test_topics_are_created_listed_and_deleted(admin: AdminClient, fresh_name: str) -> None:
    names = [f"{fresh_name}-{number}" for number in range(3)]
    created = admin.create_topics([NewTopic(name, 4) for name in names])
    for future in created.values():
        future.result(WITHIN_S)
    listed = admin.list_topics(timeout=WITHIN_S)
    assert set(names) <= set(listed.topics)
    for partition in listed.topics[names[0]].partitions.values():
        assert (partition.leader, partition.replicas, partition.isrs) == (0, [0], [0])
    assert sorted(listed.topics[names[0]].partitions) == [0, 1, 2, 3]

    for future in admin.delete_topics(names).values():
        future.result(WITHIN_S)
    assert not set(names) & set(admin.list_topics(timeout=WITHIN_S).topics)


def test_a_topic_without_numbers_gets_the_brokers(admin: AdminClient, fresh_name: str) -> None:
    only(admin.create_topics([NewTopic(fresh_name)]))
    assert partitions_of(admin, fresh_name) == 1


def test_validation_creates_nothing(admin: AdminClient, fresh_name: str) -> None:
    only(admin.create_topics([NewTopic(fresh_name, 2)], validate_only=True))
    assert fresh_name not in admin.list_topics(timeout=WITHIN_S).topics
    wrong = NewTopic(fresh_name, 2, config={"retention.ms": "soon"})
    assert error_of(admin.create_topics([wrong], validate_only=True)).code() == (
        KafkaError.INVALID_CONFIG
    )


def test_replicas_may_be_assigned_by_hand(admin: AdminClient, fresh_name: str) -> None:
    only(admin.create_topics([NewTopic(fresh_name, 2, replica_assignment=[[0], [0]])]))
    assert partitions_of(admin, fresh_name) == 2
    unknown = NewTopic(fresh_name + "-2", 1, replica_assignment=[[7]])
    error = error_of(admin.create_topics([unknown]))
    assert error.code() == KafkaError.INVALID_REPLICA_ASSIGNMENT


@pytest.mark.parametrize(
    ("topic", "code"),
    [
        (NewTopic("bad name", 1), KafkaError.TOPIC_EXCEPTION),
        (NewTopic("x" * 250, 1), KafkaError.TOPIC_EXCEPTION),
        (NewTopic("..", 1), KafkaError.TOPIC_EXCEPTION),
        (NewTopic("factor", 1, replication_factor=3), KafkaError.INVALID_REPLICATION_FACTOR),
        (NewTopic("config", 1, config={"no.such": "1"}), KafkaError.INVALID_CONFIG),
        (NewTopic("config", 1, config={"segment.bytes": "-1"}), KafkaError.INVALID_CONFIG),
    ],
)
def test_what_cannot_be_created_is_refused_with_a_reason(
    admin: AdminClient, topic: NewTopic, code: int
) -> None:
    error = error_of(admin.create_topics([topic]))
    assert error.code() == code
    assert len(error.str()) > 10


def test_what_exists_is_not_created_and_what_does_not_is_not_deleted(
    admin: AdminClient, topic: str, fresh_name: str
) -> None:
    error = error_of(admin.create_topics([NewTopic(topic, 1)]))
    assert error.code() == KafkaError.TOPIC_ALREADY_EXISTS
    error = error_of(admin.delete_topics([fresh_name + "-missing"]))
    assert error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART


def test_a_topic_created_again_is_a_new_one(
    admin: AdminClient, client: ConfluentClient, topic: str
) -> None:
    client.produce(topic, [Message(b"old")])
    before = only(admin.describe_topics(TopicCollection([topic])))
    only(admin.delete_topics([topic]))
    only(admin.create_topics([NewTopic(topic, 1)]))
    after = only(admin.describe_topics(TopicCollection([topic])))
    assert str(before.topic_id) != str(after.topic_id)
    assert client.watermarks(topic) == (0, 0)
    assert client.produce(topic, [Message(b"new")]) == [0]
    assert read_all(client, topic, 1)[0].message.value == b"new"


def test_partitions_are_added_and_can_be_written_to(
    admin: AdminClient, client: ConfluentClient, topic: str
) -> None:
    only(admin.create_partitions([NewPartitions(topic, 5)], validate_only=True))
    assert partitions_of(admin, topic) == 3
    only(admin.create_partitions([NewPartitions(topic, 5)]))
    assert partitions_of(admin, topic) == 5
    assert client.produce(topic, [Message(b"x")], partition=4) == [0]
    error = error_of(admin.create_partitions([NewPartitions(topic, 2)]))
    assert error.code() == KafkaError.INVALID_PARTITIONS


def test_configs_are_described_with_their_sources(
    admin: AdminClient, broker: Broker, fresh_name: str
) -> None:
    broker.create_topic(fresh_name, retention_bytes=12345)
    expected = {
        "retention.bytes": ("12345", ConfigSource.DYNAMIC_TOPIC_CONFIG),
        "retention.ms": ("-1", ConfigSource.STATIC_BROKER_CONFIG),
        "max.message.bytes": ("1048588", ConfigSource.DEFAULT_CONFIG),
    }
    for name, (value, source) in expected.items():
        entry = config_of(admin, fresh_name, name)
        # Typed as the enum, in fact its number.
        assert (entry.value, ConfigSource(entry.source)) == (value, source)
        assert entry.is_default == (source is ConfigSource.DEFAULT_CONFIG)


def test_a_broker_describes_its_own_configs(admin: AdminClient, broker: Broker) -> None:
    found = only(admin.describe_configs([ConfigResource(ResourceType.BROKER, "0")]))
    assert found["num.partitions"].value == "1"
    assert found["node.id"].is_read_only
    assert found["log.dirs"].value == str(broker.data_dir)


def test_configs_of_what_does_not_exist_are_an_error(admin: AdminClient, fresh_name: str) -> None:
    resource = ConfigResource(ResourceType.TOPIC, fresh_name)
    assert error_of(admin.describe_configs([resource])).code() == KafkaError.UNKNOWN_TOPIC_OR_PART


def test_configs_change_incrementally(admin: AdminClient, topic: str) -> None:
    def change(name: str, value: str | None, how: AlterConfigOpType) -> None:
        entry = ConfigEntry(name, value, incremental_operation=how)
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
        only(admin.incremental_alter_configs([resource]))

    change("segment.bytes", "1000000", AlterConfigOpType.SET)
    change("retention.bytes", "99", AlterConfigOpType.SET)
    assert config_of(admin, topic, "segment.bytes").value == "1000000"
    assert config_of(admin, topic, "retention.bytes").value == "99"
    change("segment.bytes", None, AlterConfigOpType.DELETE)
    assert config_of(admin, topic, "segment.bytes").is_default
    assert config_of(admin, topic, "retention.bytes").value == "99"
    change("cleanup.policy", "compact", AlterConfigOpType.APPEND)
    assert config_of(admin, topic, "cleanup.policy").value in ("compact,delete", "delete,compact")
    change("cleanup.policy", "delete", AlterConfigOpType.SUBTRACT)
    assert config_of(admin, topic, "cleanup.policy").value == "compact"


def test_a_wrong_change_changes_nothing(admin: AdminClient, topic: str) -> None:
    entries = [
        ConfigEntry("segment.bytes", "1000000", incremental_operation=AlterConfigOpType.SET),
        ConfigEntry("retention.ms", "soon", incremental_operation=AlterConfigOpType.SET),
    ]
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
    error = error_of(admin.incremental_alter_configs([resource]))
    assert error.code() == KafkaError.INVALID_CONFIG
    assert "retention.ms" in error.str()
    assert config_of(admin, topic, "segment.bytes").is_default


def test_validating_a_change_changes_nothing(admin: AdminClient, topic: str) -> None:
    entry = ConfigEntry("segment.bytes", "1000000", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    only(admin.incremental_alter_configs([resource], validate_only=True))
    assert config_of(admin, topic, "segment.bytes").is_default


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_the_older_call_replaces_all_configs(admin: AdminClient, topic: str) -> None:
    def replace(**configs: str) -> None:
        named = {name.replace("_", "."): value for name, value in configs.items()}
        only(admin.alter_configs([ConfigResource(ResourceType.TOPIC, topic, set_config=named)]))

    replace(segment_bytes="1000000", retention_bytes="99")
    assert config_of(admin, topic, "segment.bytes").value == "1000000"
    replace(retention_bytes="100")
    assert config_of(admin, topic, "segment.bytes").is_default
    assert config_of(admin, topic, "retention.bytes").value == "100"


def test_records_are_deleted_up_to_an_offset(
    admin: AdminClient, client: ConfluentClient, topic: str
) -> None:
    client.produce(topic, [Message(b"%d" % number) for number in range(10)])
    deleted = only(admin.delete_records([TopicPartition(topic, 0, 6)]))
    assert deleted.low_watermark == 6
    assert client.watermarks(topic) == (6, 10)
    assert [each.offset for each in read_all(client, topic, 4)] == [6, 7, 8, 9]
    error = error_of(admin.delete_records([TopicPartition(topic, 0, 11)]))
    assert error.code() == KafkaError.OFFSET_OUT_OF_RANGE
    # -1 stands for the end.
    assert only(admin.delete_records([TopicPartition(topic, 0, -1)])).low_watermark == 10
    assert client.watermarks(topic) == (10, 10)
    assert client.produce(topic, [Message(b"next")]) == [10]


def test_offsets_are_listed_by_place_and_time(
    admin: AdminClient, client: ConfluentClient, topic: str
) -> None:
    hours = [0, 5, 3]
    for hour in hours:
        client.produce(topic, [Message(b"x", timestamp_ms=NOON_MS + 3_600_000 * hour)])
    partition = TopicPartition(topic, 0)

    def offset(spec: OffsetSpec, isolation: IsolationLevel) -> tuple[int, int]:
        found = only(admin.list_offsets({partition: spec}, isolation_level=isolation))
        return found.offset, found.timestamp

    for isolation in (IsolationLevel.READ_UNCOMMITTED, IsolationLevel.READ_COMMITTED):
        assert offset(OffsetSpec.earliest(), isolation) == (0, -1)
        assert offset(OffsetSpec.latest(), isolation) == (3, -1)
        assert offset(OffsetSpec.max_timestamp(), isolation) == (1, NOON_MS + 5 * 3_600_000)
        at_two = OffsetSpec.for_timestamp(NOON_MS + 2 * 3_600_000)
        assert offset(at_two, isolation) == (1, NOON_MS + 5 * 3_600_000)


def test_the_cluster_is_described(admin: AdminClient, broker: Broker) -> None:
    described = admin.describe_cluster(request_timeout=WITHIN_S).result(WITHIN_S)
    assert described.cluster_id
    assert [(node.id, node.host, node.port) for node in described.nodes] == [
        (0, broker.host, broker.port)
    ]
    assert described.controller is not None
    assert described.controller.id == 0
    assert admin.list_topics(timeout=WITHIN_S).cluster_id == described.cluster_id


def test_topics_are_described(admin: AdminClient, topic: str, fresh_name: str) -> None:
    found = only(admin.describe_topics(TopicCollection([topic])))
    assert found.name == topic
    assert not found.is_internal
    assert found.topic_id.get_most_significant_bits() != 0
    assert [partition.id for partition in found.partitions] == [0, 1, 2]
    assert [partition.leader.id for partition in found.partitions] == [0, 0, 0]
    missing = admin.describe_topics(TopicCollection([fresh_name + "-missing"]))
    assert error_of(missing).code() == KafkaError.UNKNOWN_TOPIC_OR_PART
