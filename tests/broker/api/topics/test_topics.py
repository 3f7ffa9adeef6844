from __future__ import annotations

import asyncio
import subprocess
import sys
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from moldau.testing import Broker
from moldau.wire.apis import Api
from moldau.wire.errors import Error
from tests.broker.asking import Asker, fresh_name, versions


def wanted(name: str, partitions: int = -1, factor: int = -1, **more: Any) -> dict[str, Any]:
    return {"name": name, "num_partitions": partitions, "replication_factor": factor, **more}


def names(asker: Asker) -> set[str]:
    return {topic.name for topic in asker.ask(Api.METADATA, topics=None).topics}


@pytest.mark.parametrize("version", versions(Api.CREATE_TOPICS))
def test_topics_are_created_in_every_version(asker: Asker, version: int) -> None:
    name = fresh_name()
    configs = [{"name": "retention.ms", "value": "5000"}]
    answer = asker.ask(Api.CREATE_TOPICS, version, topics=[wanted(name, 3, 1, configs=configs)])
    [topic] = answer.topics
    assert (topic.name, topic.error_code, topic.error_message) == (name, 0, None)
    if version >= 5:
        assert (topic.num_partitions, topic.replication_factor) == (3, 1)
        assert topic.topic_config_error_code == 0
        shown = {config.name: config for config in topic.configs}
        assert shown["retention.ms"].value == "5000"
        assert shown["retention.ms"].config_source == 1
        assert shown["segment.bytes"].value == str(1 << 30)
        assert shown["segment.bytes"].config_source == 5
        assert [config.name for config in topic.configs] == sorted(shown)
    described = asker.ask(Api.METADATA, topics=[{"name": name}]).topics[0]
    assert len(described.partitions) == 3
    if version >= 7:
        assert topic.topic_id == described.topic_id


@pytest.mark.parametrize("version", versions(Api.CREATE_TOPICS))
def test_refusals_are_told_in_every_version(asker: Asker, version: int) -> None:
    twice = fresh_name()
    answer = asker.ask(
        Api.CREATE_TOPICS,
        version,
        topics=[
            wanted("not/good", 1, 1),
            wanted(twice, 1, 1),
            wanted(fresh_name(), 0, 1),
            wanted(fresh_name(), 1, 7),
            wanted(twice, 1, 1),
            wanted(fresh_name(), 1, 1, configs=[{"name": "retention.mss", "value": "1"}]),
            wanted(fresh_name(), assignments=[{"partition_index": 0, "broker_ids": [99]}]),
        ],
    )
    assert [topic.error_code for topic in answer.topics] == [
        Error.INVALID_TOPIC_EXCEPTION,
        Error.INVALID_REQUEST,
        Error.INVALID_PARTITIONS,
        Error.INVALID_REPLICATION_FACTOR,
        Error.INVALID_CONFIG,
        Error.INVALID_REPLICA_ASSIGNMENT,
    ]
    assert "characters other than" in answer.topics[0].error_message
    assert "did you mean retention.ms?" in answer.topics[4].error_message
    assert twice not in names(asker)


@pytest.mark.parametrize("version", versions(Api.CREATE_TOPICS))
def test_a_refusal_can_be_told_however_long_the_name(asker: Asker, version: int) -> None:
    configs = [{"name": "x" * 30_000, "value": "y" * 30_000}]
    topics = [wanted("z" * 32_000, 1, 1), wanted(fresh_name(), 1, 1, configs=configs)]
    answer = asker.ask(Api.CREATE_TOPICS, version, topics=topics)
    assert [topic.error_code for topic in answer.topics] == [
        Error.INVALID_TOPIC_EXCEPTION,
        Error.INVALID_CONFIG,
    ]
    assert all(len(topic.error_message) <= 1000 for topic in answer.topics)


def test_replicas_can_be_assigned_by_hand(asker: Asker) -> None:
    assignments = [{"partition_index": index, "broker_ids": [0]} for index in (1, 0)]
    name = fresh_name()
    [topic] = asker.ask(Api.CREATE_TOPICS, topics=[wanted(name, assignments=assignments)]).topics
    assert topic.error_code == 0
    assert topic.num_partitions == 2


def test_a_topic_is_not_created_twice(asker: Asker) -> None:
    name = fresh_name()
    asker.create(name)
    [topic] = asker.ask(Api.CREATE_TOPICS, topics=[wanted(name)]).topics
    assert topic.error_code == Error.TOPIC_ALREADY_EXISTS
    assert topic.error_message == f"Topic '{name}' already exists."
    assert topic.configs == ()


def test_validating_a_topic_does_not_create_it(asker: Asker) -> None:
    name = fresh_name()
    [topic] = asker.ask(Api.CREATE_TOPICS, topics=[wanted(name, 4, 1)], validate_only=True).topics
    assert (topic.error_code, topic.num_partitions) == (0, 4)
    assert name not in names(asker)


@pytest.mark.parametrize("version", versions(Api.DELETE_TOPICS))
def test_topics_are_deleted_in_every_version(asker: Asker, version: int) -> None:
    name, missing = fresh_name(), fresh_name()
    topic_id = asker.create(name).topic_id
    if version >= 6:
        asked: dict[str, Any] = {"topics": [{"name": name}, {"name": missing}]}
    else:
        asked = {"topic_names": [name, missing]}
    answer = asker.ask(Api.DELETE_TOPICS, version, **asked)
    by_name = {response.name: response for response in answer.responses}
    assert by_name[name].error_code == 0
    assert by_name[missing].error_code == Error.UNKNOWN_TOPIC_OR_PARTITION
    if version >= 6:
        assert by_name[name].topic_id == topic_id
    assert name not in names(asker)


def test_topics_are_deleted_by_id(asker: Asker) -> None:
    name, other = fresh_name(), fresh_name()
    topic_id, other_id = asker.create(name).topic_id, asker.create(other).topic_id
    stranger = uuid.uuid4()
    answer = asker.ask(
        Api.DELETE_TOPICS,
        topics=[
            {"topic_id": topic_id},
            {"topic_id": stranger},
            {"name": other, "topic_id": other_id},
            {},
            {"name": "twice"},
            {"name": "twice"},
        ],
    )
    outcomes = {(each.name, each.topic_id): each.error_code for each in answer.responses}
    assert outcomes == {
        (name, topic_id): Error.NONE,
        (None, stranger): Error.UNKNOWN_TOPIC_ID,
        (other, other_id): Error.INVALID_REQUEST,
        (None, None): Error.INVALID_REQUEST,
        ("twice", None): Error.INVALID_REQUEST,
    }
    assert other in names(asker)


def test_a_topic_given_by_name_and_by_id_is_refused_once(asker: Asker) -> None:
    name = fresh_name()
    topic_id = asker.create(name).topic_id
    [answer] = asker.ask(
        Api.DELETE_TOPICS, topics=[{"name": name}, {"topic_id": topic_id}]
    ).responses
    assert (answer.name, answer.topic_id) == (name, topic_id)
    assert answer.error_code == Error.INVALID_REQUEST
    assert name in names(asker)


@pytest.mark.moldau({"delete.topic.enable": "false"})
def test_deletion_can_be_disabled(moldau_broker: Broker) -> None:
    with Asker(moldau_broker) as asker:
        asker.create("a")
        for version, error in ((2, Error.INVALID_REQUEST), (5, Error.TOPIC_DELETION_DISABLED)):
            [answer] = asker.ask(Api.DELETE_TOPICS, version, topic_names=["a"]).responses
            assert answer.error_code == error
        assert names(asker) == {"a"}


@pytest.mark.parametrize("version", versions(Api.CREATE_PARTITIONS))
def test_partitions_are_added_in_every_version(asker: Asker, version: int) -> None:
    name, missing, twice = fresh_name(), fresh_name(), fresh_name()
    asker.create(name, 2)
    answer = asker.ask(
        Api.CREATE_PARTITIONS,
        version,
        topics=[
            {"name": name, "count": 5, "assignments": None},
            {"name": missing, "count": 5, "assignments": None},
            {"name": twice, "count": 5, "assignments": None},
            {"name": twice, "count": 6, "assignments": None},
        ],
    )
    assert {each.name: each.error_code for each in answer.results} == {
        name: Error.NONE,
        missing: Error.UNKNOWN_TOPIC_OR_PARTITION,
        twice: Error.INVALID_REQUEST,
    }
    [topic] = asker.ask(Api.METADATA, topics=[{"name": name}]).topics
    assert sorted(partition.partition_index for partition in topic.partitions) == [0, 1, 2, 3, 4]


def test_partitions_are_never_taken_away(asker: Asker) -> None:
    name = fresh_name()
    asker.create(name, 3)
    for count, message in (
        (3, "Topic already has 3 partition(s)."),
        (2, f"The topic {name} currently has 3 partition(s); 2 would not be an increase."),
    ):
        asked = [{"name": name, "count": count, "assignments": None}]
        [answer] = asker.ask(Api.CREATE_PARTITIONS, topics=asked).results
        assert answer.error_code == Error.INVALID_PARTITIONS
        assert answer.error_message == message


def test_added_partitions_can_be_validated_and_assigned(asker: Asker) -> None:
    name = fresh_name()
    asker.create(name)
    asked = [{"name": name, "count": 2, "assignments": [{"broker_ids": [0]}]}]
    for validate_only, partitions in ((True, 1), (False, 2)):
        answer = asker.ask(Api.CREATE_PARTITIONS, topics=asked, validate_only=validate_only)
        assert answer.results[0].error_code == 0
        [topic] = asker.ask(Api.METADATA, topics=[{"name": name}]).topics
        assert len(topic.partitions) == partitions


def test_topics_and_their_ids_outlive_a_restart(moldau_broker: Broker) -> None:
    with Asker(moldau_broker) as asker:
        topic_id = asker.create("kept", 3, retention_ms="5000").topic_id
        asker.create("gone")
        asker.ask(Api.DELETE_TOPICS, topics=[{"name": "gone"}])
    moldau_broker.stop()
    moldau_broker.start()
    with Asker(moldau_broker) as asker:
        [topic] = asker.ask(Api.METADATA, topics=None).topics
        assert (topic.name, topic.topic_id, len(topic.partitions)) == ("kept", topic_id, 3)


def test_a_topic_that_was_answered_outlives_a_kill(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "moldau", "broker", "--data-dir", str(tmp_path)]
    process = subprocess.Popen(
        [*command, "--listen", "127.0.0.1:0"], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    try:
        host, _, port = process.stdout.readline().split()[-1].rpartition(":")
        with Asker((host, int(port))) as asker:
            kept = asker.create("kept", 3).topic_id
            asker.create("gone", 2)
            asker.ask(Api.DELETE_TOPICS, topics=[{"name": "gone"}])
            renewed = asker.create("gone", 1).topic_id
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
    with Broker(data_dir=tmp_path) as broker, Asker(broker) as asker:
        topics = asker.ask(Api.METADATA, topics=None).topics
        found = {topic.name: (topic.topic_id, len(topic.partitions)) for topic in topics}
        assert found == {"kept": (kept, 3), "gone": (renewed, 1)}


def test_many_clients_that_want_the_same_topic_get_one(moldau_session_broker: Broker) -> None:
    name = fresh_name()

    def create(_: int) -> int:
        with Asker(moldau_session_broker) as asker:
            [topic] = asker.ask(Api.CREATE_TOPICS, topics=[wanted(name, 2)]).topics
            return int(topic.error_code)

    with ThreadPoolExecutor(8) as pool:
        codes = sorted(pool.map(create, range(8)))
    assert codes == [0, *[Error.TOPIC_ALREADY_EXISTS] * 7]


def test_confluents_admin_client_creates_grows_and_deletes(moldau_session_broker: Broker) -> None:
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

    admin = AdminClient({"bootstrap.servers": moldau_session_broker.bootstrap})
    name = fresh_name()
    topic = NewTopic(name, 2, 1, config={"cleanup.policy": "compact"})
    assert admin.create_topics([topic])[name].result(60) is None
    with pytest.raises(KafkaException, match="already exists"):
        admin.create_topics([topic])[name].result(60)
    admin.create_partitions([NewPartitions(name, 4)])[name].result(60)
    assert len(admin.list_topics(name, 20).topics[name].partitions) == 4
    admin.delete_topics([name])[name].result(60)
    assert name not in admin.list_topics(timeout=60).topics


def test_kafka_pythons_admin_client_creates_grows_and_deletes(
    moldau_session_broker: Broker,
) -> None:
    from kafka.admin import KafkaAdminClient

    admin = KafkaAdminClient(bootstrap_servers=moldau_session_broker.bootstrap)
    try:
        name = fresh_name()
        admin.create_topics({name: {"num_partitions": 2, "replication_factor": 1}})
        assert name in admin.list_topics()
        admin.create_partitions({name: 3})
        [topic] = admin.describe_topics([name])
        assert len(topic["partitions"]) == 3
        admin.delete_topics([name])
        assert name not in admin.list_topics()
    finally:
        admin.close()


def test_aiokafkas_admin_client_creates_grows_and_deletes(moldau_session_broker: Broker) -> None:
    from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic

    async def scenario() -> None:
        admin = AIOKafkaAdminClient(bootstrap_servers=moldau_session_broker.bootstrap)
        await admin.start()
        try:
            name = fresh_name()
            await admin.create_topics([NewTopic(name, 2, 1)])
            assert name in await admin.list_topics()
            await admin.create_partitions({name: NewPartitions(3)})
            [topic] = await admin.describe_topics([name])
            assert len(topic["partitions"]) == 3
            await admin.delete_topics([name])
            assert name not in await admin.list_topics()
        finally:
            await admin.close()

    asyncio.run(scenario())
