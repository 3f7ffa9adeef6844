"""Any broker may be asked: three real ones in this process, over a real ensemble."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from moldau.broker.api import forwarding
from moldau.cluster.state.changes import AnyChange, ControllerElected
from moldau.testing import Broker, Ensemble
from moldau.testing.waiting import until
from moldau.wire.apis import VERSIONS, Api
from moldau.wire.errors import Error
from tests.broker.asking import Asker, fresh_name, versions

WITHIN_S = 60.0
TOPIC, BROKER = 2, 4


@pytest.fixture(scope="module")
def brokers(ensemble: Ensemble) -> Iterator[list[Broker]]:
    connect = f"{ensemble.hosts}/forwarding-{uuid.uuid4().hex[:8]}"
    made = [Broker({"node.id": id, "zookeeper.connect": connect}) for id in range(3)]
    try:
        for broker in made:
            broker.start()
        until(lambda: all(len(view(broker).brokers) == 3 for broker in made), "3 brokers")
        yield made
    finally:
        for broker in made:
            broker.stop()


def view(broker: Broker) -> Any:
    with Asker(broker) as asker:
        return asker.ask(Api.METADATA, topics=[])


def controller_of(brokers: Sequence[Broker]) -> int:
    return int(view(brokers[0]).controller_id)


@pytest.fixture
def other(brokers: list[Broker]) -> Broker:
    """One that is not the controller."""
    return brokers[(controller_of(brokers) + 1) % 3]


@pytest.fixture
def asker(other: Broker) -> Iterator[Asker]:
    with Asker(other) as asker:
        yield asker


def knows(broker: Broker, topic: str, partitions: int | None) -> bool:
    """Whether a broker shows the topic with so many partitions, or (None) does not know it."""
    with Asker(broker) as asker:
        answer = asker.ask(Api.METADATA, topics=[{"name": topic}], allow_auto_topic_creation=False)
    [shown] = answer.topics
    if partitions is None:
        return int(shown.error_code) == Error.UNKNOWN_TOPIC_OR_PARTITION
    return len(shown.partitions) == partitions


@pytest.mark.parametrize("version", versions(Api.CREATE_TOPICS))
def test_a_topic_is_created_grown_and_deleted_at_any_broker(
    brokers: list[Broker], asker: Asker, version: int
) -> None:
    name = fresh_name("passed-on")
    topic = {"name": name, "num_partitions": 2, "replication_factor": 3}
    for error in (Error.NONE, Error.TOPIC_ALREADY_EXISTS):
        [created] = asker.ask(Api.CREATE_TOPICS, version, topics=[topic], timeout=9000).topics
        assert created.error_code == error
    grown = asker.ask(
        Api.CREATE_PARTITIONS,
        min(version, VERSIONS[Api.CREATE_PARTITIONS].last),
        topics=[{"name": name, "count": 3, "assignments": None}],
        timeout=9000,
    )
    assert [(result.name, result.error_code) for result in grown.results] == [(name, 0)]
    until(lambda: all(knows(broker, name, 3) for broker in brokers), "the topic is known")
    version = min(version, VERSIONS[Api.DELETE_TOPICS].last)
    names = {"topics": [{"name": name}]} if version >= 6 else {"topic_names": [name]}
    [deleted] = asker.ask(Api.DELETE_TOPICS, version, timeout=9000, **names).responses
    assert (deleted.name, deleted.error_code) == (name, 0)
    until(lambda: all(knows(broker, name, None) for broker in brokers), "the topic is gone")


def test_a_topic_that_is_missing_is_created_for_whoever_asks_any_broker(
    brokers: list[Broker],
) -> None:
    for broker in brokers:
        name = fresh_name("on-demand")
        with Asker(broker) as asker:
            answer = asker.ask(Api.METADATA, topics=[{"name": name}])
        [topic] = answer.topics
        assert (topic.name, topic.error_code, len(topic.partitions)) == (name, 0, 1)


@pytest.mark.parametrize(
    ("api", "more"),
    [(Api.ALTER_CONFIGS, {}), (Api.INCREMENTAL_ALTER_CONFIGS, {"config_operation": 0})],
)
def test_settings_are_changed_at_any_broker_and_a_brokers_own_at_that_one(
    brokers: list[Broker], other: Broker, asker: Asker, api: Api, more: dict[str, int]
) -> None:
    name = fresh_name("settings")
    [created] = asker.ask(
        Api.CREATE_TOPICS,
        topics=[{"name": name, "num_partitions": 1, "replication_factor": 1}],
    ).topics
    assert created.error_code == 0
    own = brokers.index(other)
    wrong = (own + 1) % 3
    text = str(4_000_000 + api)

    def resource(kind: int, name: str, key: str) -> dict[str, object]:
        configs = [{"name": key, "value": text, **more}]
        return {"resource_type": kind, "resource_name": name, "configs": configs}

    answer = asker.ask(
        api,
        validate_only=False,
        resources=[
            resource(TOPIC, name, "retention.ms"),
            resource(BROKER, str(own), "follower.replication.throttled.rate"),
            resource(BROKER, str(wrong), "follower.replication.throttled.rate"),
        ],
    )
    results = {(each.resource_type, each.resource_name): each for each in answer.responses}
    assert results[TOPIC, name].error_code == 0
    assert results[BROKER, str(own)].error_code == 0
    refused = results[BROKER, str(wrong)]
    assert refused.error_code == Error.INVALID_REQUEST
    assert refused.error_message == f"Unexpected broker id, expected {own}, but received {wrong}"

    def shows(broker: Broker, kind: int, name: str, key: str) -> bool:
        with Asker(broker) as asker:
            [result] = asker.ask(
                Api.DESCRIBE_CONFIGS,
                resources=[
                    {"resource_type": kind, "resource_name": name, "configuration_keys": [key]}
                ],
            ).results
        return [config.value for config in result.configs] == [text]

    until(lambda: all(shows(b, TOPIC, name, "retention.ms") for b in brokers), "retention.ms")
    key = "follower.replication.throttled.rate"
    until(lambda: shows(other, BROKER, str(own), key), key)
    assert not shows(brokers[wrong], BROKER, str(wrong), key)


def test_partitions_are_moved_and_elections_held_at_any_broker(
    brokers: list[Broker], asker: Asker
) -> None:
    name = fresh_name("moving")
    assignments = [{"partition_index": 0, "broker_ids": [0, 1]}]
    topic = {
        "name": name,
        "num_partitions": -1,
        "replication_factor": -1,
        "assignments": assignments,
    }
    [created] = asker.ask(Api.CREATE_TOPICS, topics=[topic], timeout=9000).topics
    assert created.error_code == 0
    target = [{"partition_index": 0, "replicas": [2, 1]}]
    answer = asker.ask(
        Api.ALTER_PARTITION_REASSIGNMENTS,
        topics=[{"name": name, "partitions": target}],
        timeout=9000,
    )
    assert (answer.error_code, answer.responses[0].partitions[0].error_code) == (0, 0)

    def has_arrived() -> bool:
        listed = asker.ask(Api.LIST_PARTITION_REASSIGNMENTS, topics=None, timeout=9000)
        assert listed.error_code == 0
        return all(topic.name != name for topic in listed.topics)

    until(has_arrived, "the end of the move")
    wanted = [{"topic": name, "partitions": [0]}]
    elected = asker.ask(Api.ELECT_LEADERS, topic_partitions=wanted, election_type=0, timeout=9000)
    [result] = elected.replica_election_results[0].partition_result
    assert result.error_code in (Error.NONE, Error.ELECTION_NOT_NEEDED)

    def is_shown(broker: Broker) -> bool:
        with Asker(broker) as asker:
            [shown] = asker.ask(Api.METADATA, topics=[{"name": name}]).topics
        [partition] = shown.partitions
        return (partition.leader_id, partition.replica_nodes) == (2, (2, 1))

    until(lambda: all(is_shown(broker) for broker in brokers), "the partition at its new place")


def test_no_two_producers_get_the_same_identity_wherever_they_ask(brokers: list[Broker]) -> None:
    ids = set()
    for broker in brokers:
        with Asker(broker) as asker:
            for _ in range(3):
                answer = asker.ask(Api.INIT_PRODUCER_ID, transaction_timeout=1000)
                assert answer.error_code == 0
                ids.add(answer.producer_id)
    assert len(ids) == 9


def test_a_replica_that_others_have_cannot_be_moved_to_a_folder_here(brokers: list[Broker]) -> None:
    name = fresh_name("elsewhere")
    placed = [{"partition_index": 0, "broker_ids": [1]}]
    topic = {"name": name, "num_partitions": -1, "replication_factor": -1, "assignments": placed}
    with Asker(brokers[1]) as asker:
        [created] = asker.ask(Api.CREATE_TOPICS, topics=[topic], timeout=9000).topics
        assert created.error_code == 0
    until(lambda: all(knows(broker, name, 1) for broker in brokers), "the topic is known")
    outcomes = []
    for broker in brokers:
        folder = {"path": str(broker.data_dir), "topics": [{"name": name, "partitions": [0]}]}
        with Asker(broker) as asker:
            [moved] = asker.ask(Api.ALTER_REPLICA_LOG_DIRS, dirs=[folder]).results
        outcomes.append(moved.partitions[0].error_code)
    assert outcomes == [Error.REPLICA_NOT_AVAILABLE, Error.NONE, Error.REPLICA_NOT_AVAILABLE]


def test_a_cluster_over_zookeeper_says_that_there_is_no_quorum(asker: Asker) -> None:
    answer = asker.ask(Api.DESCRIBE_QUORUM, topics=[])
    assert answer.error_code == Error.UNSUPPORTED_VERSION
    assert "in ZooKeeper" in answer.error_message


def test_the_settings_of_all_brokers_are_listed_by_any(asker: Asker) -> None:
    found = asker.ask(Api.LIST_CONFIG_RESOURCES, resource_types=[BROKER]).config_resources
    assert [each.resource_name for each in found] == ["0", "1", "2"]


REFUSED: dict[Api, dict[str, Any]] = {
    Api.CREATE_TOPICS: {"topics": [{"name": "t", "num_partitions": 1, "replication_factor": 1}]},
    Api.DELETE_TOPICS: {"topics": [{"name": "t"}]},
    Api.CREATE_PARTITIONS: {
        "topics": [{"name": "t", "count": 2, "assignments": None}],
        "validate_only": True,
    },
    Api.ALTER_CONFIGS: {
        "resources": [{"resource_type": 2, "resource_name": "t", "configs": []}],
        "validate_only": True,
    },
    Api.INCREMENTAL_ALTER_CONFIGS: {
        "resources": [{"resource_type": 2, "resource_name": "t", "configs": []}],
        "validate_only": True,
    },
    Api.ELECT_LEADERS: {"topic_partitions": [{"topic": "t", "partitions": [0]}]},
    Api.ALTER_PARTITION_REASSIGNMENTS: {"topics": []},
    Api.LIST_PARTITION_REASSIGNMENTS: {"topics": None},
}


def test_without_a_controller_a_request_is_refused_so_that_the_client_tries_again(
    brokers: list[Broker], other: Broker, asker: Asker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forwarding, "WITHIN_S", 0.05)
    real = controller_of(brokers)
    publish(other, ControllerElected(-1))
    try:
        for api, values in REFUSED.items():
            answer = asker.ask(api, **values)
            assert Error.NOT_CONTROLLER in codes(answer), api
    finally:
        publish(other, ControllerElected(real))


def codes(value: object) -> set[int]:
    """All error codes anywhere in an answer."""
    if isinstance(value, tuple):
        return {code for each in value for code in codes(each)}
    found = set()
    for name in getattr(value, "__dataclass_fields__", ()):
        part = getattr(value, name)
        found |= {int(part)} if name == "error_code" else codes(part)
    return found


def publish(broker: Broker, change: AnyChange) -> None:
    async def on_the_loop() -> None:
        store: Any = broker._server.store  # type: ignore[union-attr]
        store._tree.publish([change])

    broker._call(on_the_loop())


def test_when_the_controller_stops_requests_find_the_next_one(brokers: list[Broker]) -> None:
    stopped = brokers[controller_of(brokers)]
    others = [broker for broker in brokers if broker is not stopped]
    stopped.stop()
    try:
        for broker in others:
            name = fresh_name("afterwards")
            topic = {"name": name, "num_partitions": 1, "replication_factor": 2}
            with Asker(broker) as asker:
                [created] = asker.ask(Api.CREATE_TOPICS, topics=[topic], timeout=9000).topics
            assert created.error_code == 0
            until(lambda: all(knows(b, name, 1) for b in others), name)  # noqa: B023
    finally:
        stopped.start()
