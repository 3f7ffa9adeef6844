"""The questions of the access cases: a request of every API, and the rights that it takes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

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
    return {
        "resource_type_filter": 1,
        "resource_name_filter": None,
        "pattern_type_filter": 1,
        "principal_filter": "User:nobody",
        "host_filter": None,
        "operation": 1,
        "permission_type": 1,
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
    Api.DELETE_TOPICS: Question(
        lambda s, t, g: {
            "topic_names": [t + "-not-there"],
            "topics": [{"name": t + "-not-there"}],
            "timeout": 5000,
        },
        lambda t, g: [(_O.DESCRIBE, Resource.TOPIC, t + "-not-there")],
    ),
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
    Api.DESCRIBE_ACLS: Question(lambda s, t, g: every(), _cluster(_O.DESCRIBE)),
    Api.CREATE_ACLS: Question(lambda s, t, g: {"creations": []}, _cluster(_O.ALTER)),
    Api.DELETE_ACLS: Question(lambda s, t, g: {"filters": [every()]}, _cluster(_O.ALTER)),
    Api.DESCRIBE_CONFIGS: Question(
        lambda s, t, g: {
            "resources": [
                {"resource_type": 2, "resource_name": t, "configuration_keys": ["cleanup.policy"]}
            ]
        },
        _topic(_O.DESCRIBE_CONFIGS),
    ),
    Api.ALTER_CONFIGS: Question(
        lambda s, t, g: {
            "resources": [{"resource_type": 2, "resource_name": t, "configs": []}],
            "validate_only": True,
        },
        _topic(_O.ALTER_CONFIGS),
    ),
    Api.INCREMENTAL_ALTER_CONFIGS: Question(
        lambda s, t, g: {
            "resources": [{"resource_type": 2, "resource_name": t, "configs": []}],
            "validate_only": True,
        },
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
        lambda s, t, g: {"states_filter": ["NoSuchState"], "types_filter": []},
        _cluster(_O.DESCRIBE),
        # Before that, those of other cases are listed as well.
        first=4,
    ),
    Api.DESCRIBE_LOG_DIRS: Question(
        lambda s, t, g: {"topics": [{"topic": t + "-not-there", "partitions": [0]}]},
        _cluster(_O.DESCRIBE),
    ),
    Api.ALTER_PARTITION_REASSIGNMENTS: Question(
        lambda s, t, g: {
            "timeout": 5000,
            "topics": [{"name": t, "partitions": [{"partition_index": 0, "replicas": [9]}]}],
        },
        _cluster(_O.ALTER),
    ),
}
