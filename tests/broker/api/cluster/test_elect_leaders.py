from __future__ import annotations

import pytest
from confluent_kafka import ElectionType, TopicPartition
from confluent_kafka.admin import AdminClient

from moldau.testing import Broker
from moldau.wire.apis import Api
from moldau.wire.errors import Error
from tests.broker.asking import Asker, fresh_name, versions


@pytest.mark.parametrize("version", versions(Api.ELECT_LEADERS))
def test_each_partition_asked_for_gets_its_result(asker: Asker, version: int) -> None:
    name = fresh_name()
    asker.create(name, 2)
    answer = asker.ask(
        Api.ELECT_LEADERS,
        version,
        topic_partitions=[
            {"topic": name, "partitions": [1, 2]},
            {"topic": "absent", "partitions": [0]},
        ],
        timeout=1000,
    )
    assert getattr(answer, "error_code", 0) == 0
    results = {
        (result.topic, each.partition_id): (each.error_code, each.error_message)
        for result in answer.replica_election_results
        for each in result.partition_result
    }
    assert results == {
        (name, 1): (
            Error.ELECTION_NOT_NEEDED,
            "Leader election not needed for topic partition.",
        ),
        (name, 2): (Error.UNKNOWN_TOPIC_OR_PARTITION, f"No such partition as {name}-2"),
        ("absent", 0): (Error.UNKNOWN_TOPIC_OR_PARTITION, "No such topic as absent"),
    }


@pytest.mark.parametrize("kind", [0, 1])
def test_of_all_partitions_those_in_order_are_not_mentioned(asker: Asker, kind: int) -> None:
    name = fresh_name()
    asker.create(name, 3)
    answer = asker.ask(Api.ELECT_LEADERS, topic_partitions=None, election_type=kind, timeout=1000)
    assert answer.error_code == 0
    results = {each.topic: each.partition_result for each in answer.replica_election_results}
    assert results[name] == ()
    assert not any(results.values())


def test_an_unknown_kind_of_election_is_refused(asker: Asker) -> None:
    wanted = [{"topic": "t", "partitions": [0]}]
    answer = asker.ask(Api.ELECT_LEADERS, topic_partitions=wanted, election_type=7, timeout=1000)
    assert answer.error_code == Error.INVALID_REQUEST
    [result] = answer.replica_election_results
    assert result.partition_result[0].error_code == Error.INVALID_REQUEST


def test_an_admin_client_understands_the_answer(moldau_session_broker: Broker) -> None:
    name = fresh_name()
    moldau_session_broker.create_topic(name)
    admin = AdminClient({"bootstrap.servers": moldau_session_broker.bootstrap})
    future = admin.elect_leaders(ElectionType.PREFERRED, [TopicPartition(name, 0)])
    [(partition, outcome)] = future.result(60).items()
    assert (partition.topic, partition.partition) == (name, 0)
    assert outcome.code() == Error.ELECTION_NOT_NEEDED
