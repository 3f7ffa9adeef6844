"""The questions of the access cases: a request of every API, and the rights that it takes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from conformance.cases.coordination.groups import commit
from conformance.cases.coordination.membership import ready
from conformance.session import Session
from moldau.wire.acls import CLUSTER_NAME, Operation, Resource
from moldau.wire.apis import Api

Right = tuple[Operation, Resource, str]
Rights = Callable[[str, str], list[Right]]
Values = Callable[[Session, str, str], dict[str, Any]]


class Question(NamedTuple):
    """A request about a topic and a group, and the rights that it takes."""

    values: Values
    rights: Rights
    last: int = 1 << 15
    first: int = 0
    # What has to be there, besides a topic and a group.
    prepare: Callable[[Session, str, str], None] = lambda s, topic, group: None
    # What is compared of an answer that tells of other cases, too; None for all of it.
    shown: Callable[[Session, Any], Any] | None = None


def _topic(*operations: Operation) -> Rights:
    return lambda topic, group: [(each, Resource.TOPIC, topic) for each in operations]


def _group(*operations: Operation) -> Rights:
    return lambda topic, group: [(each, Resource.GROUP, group) for each in operations]


def _cluster(*operations: Operation) -> Rights:
    return lambda topic, group: [(each, Resource.CLUSTER, CLUSTER_NAME) for each in operations]


def _both(group: Operation, topic: Operation) -> Rights:
    return lambda t, g: [(group, Resource.GROUP, g), (topic, Resource.TOPIC, t)]


_O = Operation
_PARTITION = {"partition_index": 0}


def every() -> dict[str, Any]:
    """A filter of all rules about a user, to be named."""
    return {
        "resource_type_filter": 1,
        "resource_name_filter": None,
        "pattern_type_filter": 1,
        "principal_filter": "User:nobody",
        "host_filter": None,
        "operation": 1,
        "permission_type": 1,
    }


def _rule(topic: str) -> dict[str, Any]:
    """A rule about somebody who asks for nothing."""
    return {
        "resource_type": Resource.TOPIC,
        "resource_name": topic,
        "resource_pattern_type": 3,
        "principal": "User:carol",
        "host": "*",
        "operation": _O.READ,
        "permission_type": 3,
    }


def _rules_of(topic: str) -> dict[str, Any]:
    return every() | {"resource_name_filter": topic, "principal_filter": "User:carol"}


def _make_rule(s: Session, topic: str, group: str) -> None:
    s.quietly(Api.CREATE_ACLS, 3, creations=[_rule(topic)])
    s.until(lambda: bool(s.quietly(Api.DESCRIBE_ACLS, 3, **_rules_of(topic)).resources), "a rule")


def _rule_to_delete(s: Session, topic: str, group: str) -> dict[str, Any]:
    _make_rule(s, topic, group)
    return {"filters": [_rules_of(topic)]}


def _doomed(topic: str) -> str:
    return f"{topic}-doomed"


def make_doomed(s: Session, topic: str) -> str:
    """Have a topic anew that may be deleted; its name."""
    name = _doomed(topic)
    s.quietly(Api.DELETE_TOPICS, 5, topic_names=[name], timeout=5000)
    s.wait_for_no_topic(name)
    s.create(name)
    return name


def _topic_to_delete(s: Session, topic: str, group: str) -> dict[str, Any]:
    name = make_doomed(s, topic)
    return {"topic_names": [name], "topics": [{"name": name}], "timeout": 5000}


def on_doomed(topic: str, group: str) -> list[Right]:
    name = _doomed(topic)
    return [(each, Resource.TOPIC, name) for each in (_O.DESCRIBE, _O.DELETE)]


def make_group(s: Session, topic: str, group: str) -> None:
    """Have a group, by an offset that it has committed."""
    ready(s)
    commit(s, group, topic)


def own_groups(s: Session, answer: Any) -> Any:
    """The groups of this case, in an order that says nothing."""
    mine = [each for each in answer.groups if each.group_id.startswith(s.scope)]
    shown = sorted((s.symbols.plain(each) for each in mine), key=lambda each: each["group_id"])
    return {"error_code": answer.error_code, "groups": shown}


def altered(kind: int, name: str, key: str, value: str, **more: Any) -> dict[str, Any]:
    """A setting to be changed, and only checked."""
    change = {"name": key, "value": value, **more}
    return {
        "resources": [{"resource_type": kind, "resource_name": name, "configs": [change]}],
        "validate_only": True,
    }


QUESTIONS: dict[Api, Question] = {
    Api.PRODUCE: Question(
        lambda s, t, g: {
            "acks": 1,
            "timeout": 5000,
            "topic_data": [{"name": t, "partition_data": [{"index": 0, "records": s.batch(b"x")}]}],
        },
        _topic(_O.WRITE),
    ),
    Api.FETCH: Question(
        lambda s, t, g: {
            "max_wait": 0,
            "min_bytes": 0,
            "max_bytes": 1000,
            "session_epoch": -1,
            "topics": [
                {
                    "topic": t,
                    "partitions": [
                        {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1000}
                    ],
                }
            ],
        },
        _topic(_O.READ),
    ),
    Api.LIST_OFFSETS: Question(
        lambda s, t, g: {
            "replica_id": -1,
            "topics": [{"name": t, "partitions": [{"partition_index": 0, "timestamp": -1}]}],
        },
        _topic(_O.DESCRIBE),
    ),
    Api.METADATA: Question(
        lambda s, t, g: {
            "topics": [{"name": t}],
            "allow_auto_topic_creation": False,
            "include_topic_authorized_operations": True,
            "include_cluster_authorized_operations": True,
        },
        _topic(_O.DESCRIBE),
    ),
    Api.OFFSET_COMMIT: Question(
        lambda s, t, g: {
            "group_id": g,
            "generation_id_or_member_epoch": -1,
            "topics": [{"name": t, "partitions": [{**_PARTITION, "committed_offset": 1}]}],
        },
        _both(_O.READ, _O.READ),
    ),
    Api.OFFSET_FETCH: Question(
        lambda s, t, g: {
            "group_id": g,
            "topics": [{"name": t, "partition_indexes": [0]}],
            "groups": [
                {
                    "group_id": g,
                    "member_epoch": -1,
                    "topics": [{"name": t, "partition_indexes": [0]}],
                }
            ],
        },
        _both(_O.DESCRIBE, _O.DESCRIBE),
    ),
    Api.FIND_COORDINATOR: Question(
        lambda s, t, g: {"key": g, "coordinator_keys": [g]}, _group(_O.DESCRIBE)
    ),
    Api.JOIN_GROUP: Question(
        lambda s, t, g: {
            "group_id": g,
            "session_timeout": 6000,
            "rebalance_timeout": 6000,
            "protocol_type": "",
        },
        _group(_O.READ),
    ),
    Api.HEARTBEAT: Question(
        lambda s, t, g: {"group_id": g, "member_id": "m", "generation_id": 1}, _group(_O.READ)
    ),
    Api.LEAVE_GROUP: Question(
        lambda s, t, g: {"group_id": g, "member_id": "m", "members": []}, _group(_O.READ)
    ),
    Api.SYNC_GROUP: Question(
        lambda s, t, g: {
            "group_id": g,
            "member_id": "m",
            "generation_id": 1,
            "protocol_type": "consumer",
            "protocol_name": "range",
        },
        _group(_O.READ),
    ),
    Api.DESCRIBE_GROUPS: Question(
        lambda s, t, g: {"groups": [g], "include_authorized_operations": True},
        _group(_O.DESCRIBE),
    ),
    Api.CREATE_TOPICS: Question(
        lambda s, t, g: {
            "topics": [{"name": t, "num_partitions": 1, "replication_factor": 1}],
            "timeout": 5000,
            "validate_only": True,
        },
        _topic(_O.CREATE),
    ),
    Api.DELETE_TOPICS: Question(_topic_to_delete, on_doomed),
    Api.DELETE_RECORDS: Question(
        lambda s, t, g: {
            "topics": [{"name": t, "partitions": [{**_PARTITION, "offset": 0}]}],
            "timeout": 5000,
        },
        _topic(_O.DELETE),
    ),
    Api.OFFSET_FOR_LEADER_EPOCH: Question(
        lambda s, t, g: {
            "replica_id": -1,
            "topics": [
                {
                    "topic": t,
                    "partitions": [{"partition": 0, "current_leader_epoch": -1, "leader_epoch": 0}],
                }
            ],
        },
        _topic(_O.DESCRIBE),
    ),
    Api.DESCRIBE_ACLS: Question(
        lambda s, t, g: _rules_of(t), _cluster(_O.DESCRIBE), prepare=_make_rule
    ),
    Api.CREATE_ACLS: Question(
        lambda s, t, g: {
            "creations": [_rule(t), _rule("not-the-cluster") | {"resource_type": Resource.CLUSTER}]
        },
        _cluster(_O.ALTER),
    ),
    Api.DELETE_ACLS: Question(_rule_to_delete, _cluster(_O.ALTER)),
    Api.DESCRIBE_CONFIGS: Question(
        lambda s, t, g: {
            "resources": [
                {"resource_type": 2, "resource_name": t, "configuration_keys": ["cleanup.policy"]}
            ]
        },
        _topic(_O.DESCRIBE_CONFIGS),
    ),
    Api.ALTER_CONFIGS: Question(
        lambda s, t, g: altered(2, t, "cleanup.policy", "compact"),
        _topic(_O.ALTER_CONFIGS),
    ),
    Api.INCREMENTAL_ALTER_CONFIGS: Question(
        lambda s, t, g: altered(2, t, "cleanup.policy", "compact", config_operation=0),
        _topic(_O.ALTER_CONFIGS),
    ),
    Api.ALTER_REPLICA_LOG_DIRS: Question(
        lambda s, t, g: {"dirs": [{"path": "/x", "topics": [{"name": t, "partitions": [0]}]}]},
        _cluster(_O.ALTER),
    ),
    Api.CREATE_PARTITIONS: Question(
        lambda s, t, g: {
            "topics": [{"name": t, "count": 2, "assignments": None}],
            "timeout": 5000,
            "validate_only": True,
        },
        _topic(_O.ALTER),
    ),
    Api.DELETE_GROUPS: Question(lambda s, t, g: {"groups_names": [g]}, _group(_O.DELETE)),
    Api.ELECT_LEADERS: Question(
        lambda s, t, g: {
            "election_type": 0,
            "topic_partitions": [{"topic": t, "partitions": [0]}],
            "timeout": 5000,
        },
        _cluster(_O.ALTER),
    ),
    Api.LIST_PARTITION_REASSIGNMENTS: Question(
        lambda s, t, g: {"topics": [{"name": t, "partition_indexes": [0]}], "timeout": 5000},
        _cluster(_O.DESCRIBE),
    ),
    Api.OFFSET_DELETE: Question(
        lambda s, t, g: {"group_id": g, "topics": [{"name": t, "partitions": [_PARTITION]}]},
        _both(_O.DELETE, _O.READ),
    ),
    Api.DESCRIBE_CLIENT_QUOTAS: Question(
        lambda s, t, g: {
            "components": [{"entity_type": "user", "match_type": 0, "match": "nobody"}],
            "strict": True,
        },
        _cluster(_O.DESCRIBE_CONFIGS),
    ),
    Api.ALTER_CLIENT_QUOTAS: Question(
        lambda s, t, g: {
            "entries": [
                {
                    "entity": [{"entity_type": "user", "entity_name": "nobody"}],
                    "ops": [{"key": "producer_byte_rate", "value": 1.0, "remove": False}],
                }
            ],
            "validate_only": True,
        },
        _cluster(_O.ALTER_CONFIGS),
    ),
    Api.DESCRIBE_USER_SCRAM_CREDENTIALS: Question(
        lambda s, t, g: {"users": [{"name": "nobody"}]}, _cluster(_O.DESCRIBE)
    ),
    Api.ALTER_USER_SCRAM_CREDENTIALS: Question(
        lambda s, t, g: {"deletions": [{"name": "nobody", "mechanism": 1}], "upsertions": []},
        _cluster(_O.ALTER),
    ),
    Api.DESCRIBE_CLUSTER: Question(
        lambda s, t, g: {"include_cluster_authorized_operations": True}, _cluster(_O.DESCRIBE)
    ),
    Api.CONSUMER_GROUP_HEARTBEAT: Question(
        lambda s, t, g: {
            "group_id": g,
            "member_id": "m",
            "member_epoch": -1,
            "rebalance_timeout": 30_000,
            "subscribed_topic_names": [t],
            "topic_partitions": [],
        },
        _both(_O.READ, _O.DESCRIBE),
    ),
    Api.CONSUMER_GROUP_DESCRIBE: Question(
        lambda s, t, g: {"group_ids": [g], "include_authorized_operations": True},
        _group(_O.DESCRIBE),
    ),
    Api.LIST_CONFIG_RESOURCES: Question(
        lambda s, t, g: {"resource_types": [16]}, _cluster(_O.DESCRIBE_CONFIGS)
    ),
    Api.DESCRIBE_TOPIC_PARTITIONS: Question(
        lambda s, t, g: {"topics": [{"name": t}], "response_partition_limit": 10},
        _topic(_O.DESCRIBE),
    ),
    Api.LIST_GROUPS: Question(
        lambda s, t, g: {"states_filter": [], "types_filter": []},
        _group(_O.DESCRIBE),
        prepare=make_group,
        shown=own_groups,
    ),
    Api.DESCRIBE_LOG_DIRS: Question(
        lambda s, t, g: {"topics": [{"topic": t, "partitions": [0]}]}, _cluster(_O.DESCRIBE)
    ),
    Api.ALTER_PARTITION_REASSIGNMENTS: Question(
        lambda s, t, g: {
            "timeout": 5000,
            "topics": [{"name": t, "partitions": [{"partition_index": 0, "replicas": [9]}]}],
        },
        _cluster(_O.ALTER),
    ),
}
