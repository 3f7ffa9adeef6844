"""The admin calls of kafka-python."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
from kafka import TopicPartition, TopicPartitionReplica
from kafka.admin import (
    AlterConfigOp,
    ConfigResource,
    ConfigResourceType,
    KafkaAdminClient,
    OffsetSpec,
)
from kafka.errors import (
    InvalidConfigurationError,
    InvalidPartitionsError,
    InvalidReplicationFactorError,
    InvalidTopicError,
    LogDirNotFoundError,
    NoError,
    OffsetOutOfRangeError,
    TopicAlreadyExistsError,
    UnknownTopicOrPartitionError,
    UnsupportedVersionError,
)

from moldau.testing import Broker
from tests.clients.client import NOON_MS, Message, read_all
from tests.clients.kafka_python import KafkaPythonClient


@pytest.fixture
def admin(broker: Broker) -> Iterator[Any]:
    with closing(KafkaAdminClient(bootstrap_servers=broker.bootstrap)) as admin:
        yield admin


@pytest.fixture
def client(broker: Broker) -> KafkaPythonClient:
    return KafkaPythonClient(broker.bootstrap)


def configs_of(admin: Any, topic: str) -> dict[str, str]:
    resource = ConfigResource(ConfigResourceType.TOPIC, topic)
    found = admin.describe_configs([resource], config_filter="all")["topic"][topic]
    return {name: entry["value"] for name, entry in found.items()}


def alter(admin: Any, topic: str, configs: dict[str, Any], **options: Any) -> str:
    resource = ConfigResource(ConfigResourceType.TOPIC, topic, configs)
    return str(admin.alter_configs([resource], **options)["topic"][topic])


def test_topics_are_created_listed_and_deleted(admin: Any, fresh_name: str) -> None:
    configs = {"retention.ms": "1234567"}
    told = admin.create_topics({fresh_name: {"num_partitions": 4, "configs": configs}})
    (topic,) = told["topics"]
    assert (topic["name"], topic["num_partitions"], topic["replication_factor"]) == (
        fresh_name,
        4,
        1,
    )
    assert topic["configs"]["retention.ms"]["value"] == "1234567"
    admin.wait_for_topics([fresh_name])
    assert fresh_name in admin.list_topics()
    assert configs_of(admin, fresh_name)["retention.ms"] == "1234567"
    admin.delete_topics([fresh_name])
    assert fresh_name not in admin.list_topics()


def test_topics_are_described_and_deleted_by_id(admin: Any, topic: str) -> None:
    (by_name,) = admin.describe_topics([topic])
    (by_id,) = admin.describe_topics([uuid.UUID(str(by_name["topic_id"]))])
    assert by_id["name"] == topic
    assert [each["partition_index"] for each in by_id["partitions"]] == [0, 1, 2]
    assert {each["leader_id"] for each in by_id["partitions"]} == {0}
    admin.delete_topics([uuid.UUID(str(by_name["topic_id"]))])
    assert topic not in admin.list_topics()


def test_validation_creates_nothing(admin: Any, fresh_name: str) -> None:
    admin.create_topics([fresh_name], validate_only=True)
    assert fresh_name not in admin.list_topics()


@pytest.mark.parametrize(
    ("name", "options", "error"),
    [
        ("bad name", {}, InvalidTopicError),
        ("factor", {"replication_factor": 2}, InvalidReplicationFactorError),
        ("none", {"num_partitions": 0}, InvalidPartitionsError),
        ("config", {"configs": {"cleanup.policy": "burn"}}, InvalidConfigurationError),
    ],
)
def test_what_cannot_be_created_is_refused(
    admin: Any, name: str, options: dict[str, Any], error: type[Exception]
) -> None:
    with pytest.raises(error):
        admin.create_topics({name: options})


def test_what_exists_is_not_created_and_what_does_not_is_not_deleted(
    admin: Any, topic: str, fresh_name: str
) -> None:
    with pytest.raises(TopicAlreadyExistsError):
        admin.create_topics([topic])
    with pytest.raises(UnknownTopicOrPartitionError):
        admin.delete_topics([fresh_name + "-missing"])


def test_partitions_are_added(admin: Any, client: KafkaPythonClient, topic: str) -> None:
    admin.create_partitions({topic: 4}, validate_only=True)
    assert len(admin.describe_topics([topic])[0]["partitions"]) == 3
    admin.create_partitions({topic: 4})
    admin.create_partitions({topic: {"count": 5, "assignments": [[0]]}})
    assert len(admin.describe_topics([topic])[0]["partitions"]) == 5
    assert client.produce(topic, [Message(b"x")], partition=4) == [0]
    with pytest.raises(InvalidPartitionsError):
        admin.create_partitions({topic: 5})


def test_configs_change_incrementally(admin: Any, topic: str) -> None:
    before = configs_of(admin, topic)
    changes = {"segment.bytes": "1000000", "cleanup.policy": (AlterConfigOp.APPEND, "compact")}
    assert alter(admin, topic, changes) == "OK"
    after = configs_of(admin, topic)
    assert after["segment.bytes"] == "1000000"
    assert set(after["cleanup.policy"].split(",")) == {"compact", "delete"}
    reset = {
        "segment.bytes": (AlterConfigOp.DELETE, None),
        "cleanup.policy": (AlterConfigOp.SUBTRACT, "compact"),
    }
    assert alter(admin, topic, reset) == "OK"
    assert configs_of(admin, topic) == before


def test_configs_change_with_the_older_call(admin: Any, topic: str) -> None:
    """It sends what is set already along, since what it leaves out is reset."""
    assert alter(admin, topic, {"segment.bytes": "1000000"}, incremental=False) == "OK"
    assert alter(admin, topic, {"retention.bytes": "99"}, incremental=False) == "OK"
    found = configs_of(admin, topic)
    assert (found["segment.bytes"], found["retention.bytes"]) == ("1000000", "99")


def test_a_wrong_value_is_refused_and_nothing_changes(admin: Any, topic: str) -> None:
    before = configs_of(admin, topic)
    changes = {"segment.bytes": "1000000", "retention.ms": "soon"}
    assert "retention.ms" in alter(admin, topic, changes)
    assert "no.such" in alter(admin, topic, {"no.such": "1"}, raise_on_unknown=False)
    assert alter(admin, topic, {"segment.bytes": "1000000"}, validate_only=True) == "OK"
    assert configs_of(admin, topic) == before


def test_what_is_modified_is_told_from_what_is_default(admin: Any, topic: str) -> None:
    alter(admin, topic, {"segment.bytes": "1000000"})
    resource = ConfigResource(ConfigResourceType.TOPIC, topic)
    found = admin.describe_configs([resource], include_synonyms=True)["topic"][topic]
    entry = found["segment.bytes"]
    assert entry["config_source"] == "DYNAMIC_TOPIC_CONFIG"
    assert entry["config_type"] == "INT"
    assert [(each["name"], each["value"]) for each in entry["synonyms"]] == [
        ("segment.bytes", "1000000"),
        ("log.segment.bytes", "1073741824"),
    ]
    assert "max.message.bytes" not in found


def test_only_the_configs_asked_for_are_described(admin: Any, topic: str) -> None:
    wanted = ConfigResource(ConfigResourceType.TOPIC, topic, ["segment.bytes", "retention.ms"])
    found = admin.describe_configs([wanted], config_filter="all")["topic"][topic]
    assert set(found) == {"segment.bytes", "retention.ms"}


def test_a_brokers_configs_are_described_and_changed() -> None:
    """On a broker of its own, since others would feel it."""
    with (
        Broker() as own,
        closing(KafkaAdminClient(bootstrap_servers=own.bootstrap)) as admin,
    ):
        changes = {"log.retention.ms": "7654321"}
        resource = ConfigResource(ConfigResourceType.BROKER, "0", changes)
        assert admin.alter_configs([resource]) == {"broker": {"0": "OK"}}
        wanted = ConfigResource(ConfigResourceType.BROKER, "0")
        found = admin.describe_configs([wanted], config_filter="all")["broker"]["0"]
        assert found["log.retention.ms"]["value"] == "7654321"
        assert found["log.retention.ms"]["config_source"] == "DYNAMIC_BROKER_CONFIG"
        own.create_topic("t")
        assert configs_of(admin, "t")["retention.ms"] == "7654321"


def test_records_are_deleted_up_to_an_offset(
    admin: Any, client: KafkaPythonClient, topic: str
) -> None:
    at = TopicPartition(topic, 0)
    client.produce(topic, [Message(b"%d" % number) for number in range(10)])
    assert admin.delete_records({at: 6})[at]["low_watermark"] == 6
    assert client.watermarks(topic) == (6, 10)
    assert [each.offset for each in read_all(client, topic, 4)] == [6, 7, 8, 9]
    with pytest.raises(OffsetOutOfRangeError):
        admin.delete_records({at: 11})
    assert admin.delete_records({at: -1})[at]["low_watermark"] == 10


def test_offsets_are_listed_by_place_and_time(
    admin: Any, client: KafkaPythonClient, topic: str
) -> None:
    for hour in (0, 5, 3):
        client.produce(topic, [Message(b"x", timestamp_ms=NOON_MS + 3_600_000 * hour)])
    at = TopicPartition(topic, 0)

    def offset(spec: Any) -> int:
        return int(admin.list_partition_offsets({at: spec})[at].offset)

    assert offset(OffsetSpec.EARLIEST) == 0
    assert offset(OffsetSpec.LATEST) == 3
    assert offset(OffsetSpec.MAX_TIMESTAMP) == 1
    assert offset(NOON_MS + 2 * 3_600_000) == 1
    assert offset(NOON_MS + 6 * 3_600_000) == -1


def test_the_cluster_is_described(admin: Any, broker: Broker) -> None:
    found = admin.describe_cluster()
    assert found["cluster_id"]
    assert found["controller_id"] == 0
    (node,) = found["brokers"]
    assert (node["broker_id"], node["host"], node["port"]) == (0, broker.host, broker.port)


def test_partitions_are_described_page_by_page(admin: Any, broker: Broker, fresh_name: str) -> None:
    broker.create_topic(fresh_name, partitions=5)
    indexes = []
    cursor = None
    for _ in range(3):
        found = admin.describe_topic_partitions([fresh_name], 2, cursor)
        indexes += [each["partition_index"] for each in found["topics"][0]["partitions"]]
        cursor = found["next_cursor"]
    assert indexes == [0, 1, 2, 3, 4]
    assert cursor is None


def test_log_dirs_tell_what_each_partition_takes(
    admin: Any, broker: Broker, client: KafkaPythonClient, topic: str
) -> None:
    client.produce(topic, [Message(b"x" * 1000)] * 10, partition=1)
    (answer,) = admin.describe_log_dirs({topic: [0, 1]})
    (folder,) = answer["log_dirs"]
    assert (folder["error_code"], folder["log_dir"]) == (0, str(broker.data_dir))
    assert folder["total_bytes"] > folder["usable_bytes"] > 0
    (found,) = folder["topics"]
    sizes = {each["partition_index"]: each["partition_size"] for each in found["partitions"]}
    assert sizes[0] == 0
    assert 10_000 < sizes[1] < 12_000


def test_replicas_stay_in_the_only_folder(admin: Any, broker: Broker, topic: str) -> None:
    at = TopicPartitionReplica(topic, 0, 0)
    assert admin.alter_replica_log_dirs({at: str(broker.data_dir)}) == {at: NoError}
    assert admin.alter_replica_log_dirs({at: "/elsewhere"}) == {at: LogDirNotFoundError}


def test_there_is_no_quorum_to_describe(admin: Any) -> None:
    with pytest.raises(UnsupportedVersionError, match="there is no KRaft quorum"):
        admin.describe_metadata_quorum()


def test_what_has_settings_is_listed(admin: Any, topic: str) -> None:
    found = admin.list_config_resources()
    assert topic in found["topic"]
    assert found["broker"] == ["0"]
    assert admin.list_config_resources([ConfigResourceType.GROUP]) == {}


def test_groups_have_settings(admin: Any) -> None:
    kind = ConfigResourceType.GROUP
    resource = ConfigResource(kind, "any", {"consumer.session.timeout.ms": "50000"})
    admin.alter_configs([resource], raise_on_unknown=False, incremental=True)
    found = admin.describe_configs([ConfigResource(kind, "any")], config_filter="all")
    assert found["group"]["any"]["consumer.session.timeout.ms"]["value"] == "50000"


def test_client_metrics_have_no_settings(admin: Any) -> None:
    kind = ConfigResourceType.CLIENT_METRICS
    found = admin.describe_configs([ConfigResource(kind, "any")], config_filter="all")
    assert found == {kind.name.lower(): {"any": {}}}
    resource = ConfigResource(kind, "any", {"interval.ms": "1000"})
    answer = admin.alter_configs([resource], raise_on_unknown=False, incremental=True)
    assert "has no settings here" in answer[kind.name.lower()]["any"]
