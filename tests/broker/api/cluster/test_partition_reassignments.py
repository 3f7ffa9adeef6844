from __future__ import annotations

import pytest

from moldau.wire.apis import Api
from moldau.wire.errors import Error
from tests.broker.asking import Asker, fresh_name, versions


@pytest.mark.parametrize("version", versions(Api.ALTER_PARTITION_REASSIGNMENTS))
def test_each_partition_asked_for_gets_its_result(asker: Asker, version: int) -> None:
    name = fresh_name()
    asker.create(name, 5)
    answer = asker.ask(
        Api.ALTER_PARTITION_REASSIGNMENTS,
        version,
        timeout=1000,
        topics=[
            {
                "name": name,
                "partitions": [
                    {"partition_index": 0, "replicas": [0]},
                    {"partition_index": 1, "replicas": [0, 7]},
                    {"partition_index": 2, "replicas": [0, 0]},
                    {"partition_index": 3, "replicas": []},
                    {"partition_index": 4, "replicas": None},
                    {"partition_index": 5, "replicas": [0]},
                ],
            },
            {"name": "absent", "partitions": [{"partition_index": 0, "replicas": [0]}]},
        ],
    )
    assert (answer.error_code, answer.error_message) == (0, None)
    results = {
        (topic.name, each.partition_index): (each.error_code, each.error_message)
        for topic in answer.responses
        for each in topic.partitions
    }
    bad = "The manual partition assignment includes"
    assert results == {
        (name, 0): (Error.NONE, None),
        (name, 1): (
            Error.INVALID_REPLICA_ASSIGNMENT,
            f"{bad} broker 7, but no such broker is registered.",
        ),
        (name, 2): (Error.INVALID_REPLICA_ASSIGNMENT, f"{bad} the broker 0 more than once."),
        (name, 3): (Error.INVALID_REPLICA_ASSIGNMENT, f"{bad} an empty replica list."),
        (name, 4): (
            Error.NO_REASSIGNMENT_IN_PROGRESS,
            "No partition reassignment is in progress.",
        ),
        (name, 5): (Error.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find partition {name}:5."),
        ("absent", 0): (
            Error.UNKNOWN_TOPIC_OR_PARTITION,
            "Unable to find a topic named absent.",
        ),
    }


@pytest.mark.parametrize("version", versions(Api.LIST_PARTITION_REASSIGNMENTS))
def test_what_does_not_move_is_not_listed(asker: Asker, version: int) -> None:
    name = fresh_name()
    asker.create(name)
    for topics in (None, [{"name": name, "partition_indexes": [0, 1]}], []):
        answer = asker.ask(Api.LIST_PARTITION_REASSIGNMENTS, version, timeout=1000, topics=topics)
        assert (answer.error_code, answer.error_message) == (0, None)
        assert answer.topics == ()
