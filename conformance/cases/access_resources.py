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
