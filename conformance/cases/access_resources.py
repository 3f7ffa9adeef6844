"""Rights on other resources: APIs that can be about several kinds of them, or ask as a broker."""

from __future__ import annotations

from typing import Any

from conformance.cases.access import register
from conformance.cases.access_questions import (
    QUESTIONS,
    Question,
    Rights,
    Values,
    altered,
    make_doomed,
    make_group,
    on_doomed,
    own_groups,
)
from conformance.session import Session
from moldau.wire.acls import CLUSTER_NAME, Operation, Resource
from moldau.wire.apis import Api
from moldau.wire.errors import Error

_O = Operation
_BROKER, _GROUP = 4, 32
# A broker that is not there.
_FOLLOWER = 9


def _cluster(operation: Operation) -> Rights:
    return lambda t, g: [(operation, Resource.CLUSTER, CLUSTER_NAME)]


def _group(operation: Operation) -> Rights:
    return lambda t, g: [(operation, Resource.GROUP, g)]


def _as_follower(s: Session, topic: str, group: str) -> dict[str, Any]:
    given = QUESTIONS[Api.FETCH].values(s, topic, group)
    state = {"replica_id": _FOLLOWER, "replica_epoch": -1}
    return given | {"replica_id": _FOLLOWER, "replica_state": state}


def _new_topic(s: Session, topic: str, group: str) -> dict[str, Any]:
    wanted = {"name": f"{topic}-new", "num_partitions": 1, "replication_factor": 1}
    return {"topics": [wanted], "timeout": 5000, "validate_only": True}


def _doomed_by_id(s: Session, topic: str, group: str) -> dict[str, Any]:
    topic_id = s.topic_id(make_doomed(s, topic))
    return {"topics": [{"name": None, "topic_id": topic_id}], "timeout": 5000}


def _plain_producer(s: Session, topic: str, group: str) -> dict[str, Any]:
    return {
        "transactional_id": None,
        "transaction_timeout": 60_000,
        "producer_id": -1,
        "producer_epoch": -1,
    }


def _producer_ids(s: Session, topic: str, group: str) -> None:
    """Have the broker fetch its first block of ids."""

    def is_there() -> bool:
        answer = s.quietly(Api.INIT_PRODUCER_ID, 1, **_plain_producer(s, topic, group))
        return int(answer.error_code) == 0

    s.until(is_there, "block of producer ids")


def _epochs_for_follower(s: Session, topic: str, group: str) -> dict[str, Any]:
    return QUESTIONS[Api.OFFSET_FOR_LEADER_EPOCH].values(s, topic, group) | {
        "replica_id": _FOLLOWER
    }


def _own_topics(s: Session, answer: Any) -> Any:
    """The topics of this case, in an order that says nothing."""
    mine = [each for each in answer.topics if each.name.startswith(s.scope)]
    return sorted((s.symbols.plain(each) for each in mine), key=lambda each: each["name"])


def _unknown_topic(s: Session, topic: str, group: str) -> dict[str, Any]:
    return {"topics": [{"name": f"{topic}-made"}], "allow_auto_topic_creation": True}


def _to_create(kind: Resource) -> Rights:
    """What it takes to have that topic made, by a right on it or on the cluster."""
    return lambda t, g: [
        (_O.DESCRIBE, Resource.TOPIC, f"{t}-made"),
        (_O.CREATE, kind, f"{t}-made" if kind is Resource.TOPIC else CLUSTER_NAME),
    ]


def _refusals(s: Session, answer: Any) -> Any:
    """Which topics are refused; how soon a new one has a leader is another matter."""
    refused = Error.TOPIC_AUTHORIZATION_FAILED
    return [each.error_code if each.error_code == refused else "no" for each in answer.topics]


def _described(kind: int, name: str, key: str) -> dict[str, Any]:
    wanted = {"resource_type": kind, "resource_name": name, "configuration_keys": [key]}
    return {"resources": [wanted]}


def _two_phases(s: Session, topic: str, id: str) -> dict[str, Any]:
    return {
        "transactional_id": id,
        "transaction_timeout": 60_000,
        "producer_id": -1,
        "producer_epoch": -1,
        "enable2_pc": True,
        "keep_prepared_txn": False,
    }


def _coordinator(s: Session, topic: str, id: str) -> None:
    def is_there() -> bool:
        s.quietly(Api.FIND_COORDINATOR, 1, key=id, key_type=1)
        answer = s.quietly(Api.INIT_PRODUCER_ID, 1, transactional_id=id, transaction_timeout=60_000)
        return int(answer.error_code) == 0

    s.until(is_there, "transaction coordinator")


register(Api.FETCH, "fetch_as_a_follower", Question(_as_follower, _cluster(_O.CLUSTER_ACTION)))
register(
    Api.CREATE_TOPICS, "create_topics_in_the_cluster", Question(_new_topic, _cluster(_O.CREATE))
)
register(
    Api.OFFSET_FOR_LEADER_EPOCH,
    "offset_for_leader_epoch_as_a_follower",
    Question(_epochs_for_follower, _cluster(_O.CLUSTER_ACTION), first=3),
)
register(
    Api.METADATA,
    "metadata_of_all_topics",
    Question(
        lambda s, t, g: {"topics": None, "allow_auto_topic_creation": False},
        lambda t, g: [(_O.DESCRIBE, Resource.TOPIC, t)],
        first=1,
        shown=_own_topics,
    ),
)
register(
    Api.METADATA,
    "metadata_by_id",
    Question(
        lambda s, t, g: {
            "topics": [{"name": None, "topic_id": s.topic_id(t)}],
            "allow_auto_topic_creation": False,
        },
        lambda t, g: [(_O.DESCRIBE, Resource.TOPIC, t)],
        first=12,
    ),
)
register(
    Api.OFFSET_FETCH,
    "offset_fetch_of_all_topics",
    Question(
        lambda s, t, g: {
            "group_id": g,
            "topics": None,
            "groups": [{"group_id": g, "member_epoch": -1, "topics": None}],
        },
        lambda t, g: [(_O.DESCRIBE, Resource.GROUP, g), (_O.DESCRIBE, Resource.TOPIC, t)],
        first=2,
        prepare=make_group,
    ),
)
for _resource in (Resource.TOPIC, Resource.CLUSTER):
    register(
        Api.METADATA,
        f"metadata_creates_by_{_resource.name.lower()}",
        Question(
            _unknown_topic,
            _to_create(_resource),
            first=4,
            shown=_refusals,
        ),
    )
register(
    Api.INIT_PRODUCER_ID,
    "init_producer_id_without_transactions",
    Question(_plain_producer, _cluster(_O.IDEMPOTENT_WRITE), prepare=_producer_ids),
)
register(
    Api.INIT_PRODUCER_ID,
    "init_producer_id_by_a_topic_to_write_to",
    Question(_plain_producer, lambda t, g: [(_O.WRITE, Resource.TOPIC, t)], prepare=_producer_ids),
)
register(
    Api.DESCRIBE_QUORUM,
    "describe_quorum",
    Question(
        lambda s, t, g: {
            "topics": [{"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}]
        },
        _cluster(_O.DESCRIBE),
        # There is no quorum in Moldau.
        shown=lambda s, answer: answer.error_code == Error.CLUSTER_AUTHORIZATION_FAILED,
    ),
)
register(Api.DELETE_TOPICS, "delete_topics_by_id", Question(_doomed_by_id, on_doomed, first=6))
register(
    Api.LIST_GROUPS,
    "list_groups_of_the_cluster",
    Question(
        lambda s, t, g: {"states_filter": ["Empty"], "types_filter": []},
        _cluster(_O.DESCRIBE),
        prepare=make_group,
        shown=own_groups,
    ),
)
register(
    Api.INIT_PRODUCER_ID,
    "init_producer_id_of_two_phases",
    Question(
        _two_phases,
        lambda t, g: [
            (each, Resource.TRANSACTIONAL_ID, g) for each in (_O.WRITE, _O.TWO_PHASE_COMMIT)
        ],
        first=6,
        prepare=_coordinator,
    ),
)
register(
    Api.DESCRIBE_CONFIGS,
    "describe_configs_of_a_broker",
    Question(
        lambda s, t, g: _described(_BROKER, "1", "message.max.bytes"),
        _cluster(_O.DESCRIBE_CONFIGS),
    ),
)
register(
    Api.DESCRIBE_CONFIGS,
    "describe_configs_of_a_group",
    Question(
        lambda s, t, g: _described(_GROUP, g, "consumer.session.timeout.ms"),
        _group(_O.DESCRIBE_CONFIGS),
    ),
)


def _altered(kind: int, key: str, value: str, **more: Any) -> Values:
    """A change of this broker, or of the group."""
    return lambda s, t, g: altered(kind, "1" if kind == _BROKER else g, key, value, **more)


_OPERATIONS: dict[Api, dict[str, int]] = {
    Api.ALTER_CONFIGS: {},
    Api.INCREMENTAL_ALTER_CONFIGS: {"config_operation": 0},
}
for _api, _more in _OPERATIONS.items():
    register(
        _api,
        f"{_api.name.lower()}_of_a_broker",
        Question(
            _altered(_BROKER, "log.retention.ms", "12345678", **_more), _cluster(_O.ALTER_CONFIGS)
        ),
    )
    register(
        _api,
        f"{_api.name.lower()}_of_a_group",
        Question(
            _altered(_GROUP, "consumer.session.timeout.ms", "50000", **_more),
            _group(_O.ALTER_CONFIGS),
        ),
    )
