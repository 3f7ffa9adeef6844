"""The requests of every API, the rights that they take, and the errors without them."""

from __future__ import annotations

from typing import Any, NamedTuple
from uuid import UUID

from moldau.wire.acls import CLUSTER_NAME, Operation, Resource
from moldau.wire.apis import Api
from moldau.wire.errors import Error
from tests.broker.principals import every
from tests.broker.wire_client import make_batch

TOPIC_FAILED = Error.TOPIC_AUTHORIZATION_FAILED
GROUP_FAILED = Error.GROUP_AUTHORIZATION_FAILED
CLUSTER_FAILED = Error.CLUSTER_AUTHORIZATION_FAILED
FAILED = {TOPIC_FAILED, GROUP_FAILED, CLUSTER_FAILED, Error.TRANSACTIONAL_ID_AUTHORIZATION_FAILED}
Right = tuple[Operation, Resource, str]
T, G = "the-topic", "the-group"


class Case(NamedTuple):
    """A request, the rights that it takes, and the error without them."""

    values: dict[str, Any]
    rights: list[Right]
    error: Error


def topic(operation: Operation) -> Right:
    return operation, Resource.TOPIC, T


def group(operation: Operation) -> Right:
    return operation, Resource.GROUP, G


def cluster(operation: Operation) -> Right:
    return operation, Resource.CLUSTER, CLUSTER_NAME


O = Operation  # noqa: E741
PARTITION = {"partition_index": 0}
_RECORDS = {"index": 0, "records": bytes(make_batch(b"x"))}
_RESOURCE = {"resource_type": 2, "resource_name": T, "configs": []}
CASES: dict[Api, Case] = {
    Api.PRODUCE: Case(
        {
            "acks": 1,
            "timeout": 1000,
            "topic_data": [{"name": T, "partition_data": [_RECORDS]}],
        },
        [topic(O.WRITE)],
        TOPIC_FAILED,
    ),
    Api.FETCH: Case(
        {
            "max_wait": 0,
            "min_bytes": 0,
            "max_bytes": 1000,
            "session_epoch": -1,
            "topics": [
                {
                    "topic": T,
                    "partitions": [
                        {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1000}
                    ],
                }
            ],
        },
        [topic(O.READ)],
        TOPIC_FAILED,
    ),
    Api.LIST_OFFSETS: Case(
        {
            "replica_id": -1,
            "topics": [{"name": T, "partitions": [{"partition_index": 0, "timestamp": -1}]}],
        },
        [topic(O.DESCRIBE)],
        TOPIC_FAILED,
    ),
    Api.METADATA: Case({"topics": [{"name": T}]}, [topic(O.DESCRIBE)], TOPIC_FAILED),
    Api.OFFSET_COMMIT: Case(
        {
            "group_id": G,
            "generation_id_or_member_epoch": -1,
            "topics": [{"name": T, "partitions": [{**PARTITION, "committed_offset": 1}]}],
        },
        [group(O.READ), topic(O.READ)],
        GROUP_FAILED,
    ),
    Api.OFFSET_FETCH: Case(
        {
            "groups": [
                {
                    "group_id": G,
                    "member_epoch": -1,
                    "topics": [{"name": T, "partition_indexes": [0]}],
                }
            ]
        },
        [group(O.DESCRIBE), topic(O.DESCRIBE)],
        GROUP_FAILED,
    ),
    Api.FIND_COORDINATOR: Case({"coordinator_keys": [G]}, [group(O.DESCRIBE)], GROUP_FAILED),
    Api.JOIN_GROUP: Case(
        {"group_id": G, "session_timeout": 6000, "protocol_type": "consumer"},
        [group(O.READ)],
        GROUP_FAILED,
    ),
    Api.HEARTBEAT: Case({"group_id": G, "member_id": "m"}, [group(O.READ)], GROUP_FAILED),
    Api.LEAVE_GROUP: Case({"group_id": G, "members": []}, [group(O.READ)], GROUP_FAILED),
    Api.SYNC_GROUP: Case(
        {"group_id": G, "member_id": "m", "protocol_type": "consumer", "protocol_name": "r"},
        [group(O.READ)],
        GROUP_FAILED,
    ),
    Api.DESCRIBE_GROUPS: Case({"groups": [G]}, [group(O.DESCRIBE)], GROUP_FAILED),
    Api.CREATE_TOPICS: Case(
        {
            "topics": [{"name": T, "num_partitions": 1, "replication_factor": 1}],
            "validate_only": True,
        },
        [topic(O.CREATE)],
        TOPIC_FAILED,
    ),
    Api.DELETE_TOPICS: Case({"topics": [{"name": "gone"}]}, [], TOPIC_FAILED),
    Api.DELETE_RECORDS: Case(
        {
            "topics": [{"name": T, "partitions": [{**PARTITION, "offset": 0}]}],
            "timeout": 1000,
        },
        [topic(O.DELETE)],
        TOPIC_FAILED,
    ),
    Api.INIT_PRODUCER_ID: Case(
        {"transactional_id": None, "producer_id": -1, "producer_epoch": -1},
        [cluster(O.IDEMPOTENT_WRITE)],
        CLUSTER_FAILED,
    ),
    Api.OFFSET_FOR_LEADER_EPOCH: Case(
        {
            "replica_id": -1,
            "topics": [
                {
                    "topic": T,
                    "partitions": [{"partition": 0, "current_leader_epoch": -1, "leader_epoch": 0}],
                }
            ],
        },
        [topic(O.DESCRIBE)],
        TOPIC_FAILED,
    ),
    Api.WRITE_TXN_MARKERS: Case(
        {
            "markers": [
                {
                    "producer_id": 1,
                    "transaction_result": True,
                    "topics": [{"name": T, "partition_indexes": [0]}],
                }
            ]
        },
        [cluster(O.CLUSTER_ACTION)],
        CLUSTER_FAILED,
    ),
    Api.DESCRIBE_ACLS: Case(every(), [cluster(O.DESCRIBE)], CLUSTER_FAILED),
    Api.CREATE_ACLS: Case(
        {
            "creations": [
                {
                    "resource_type": 2,
                    "resource_name": "x",
                    "resource_pattern_type": 3,
                    "principal": "User:nobody",
                    "host": "*",
                    "operation": 3,
                    "permission_type": 3,
                }
            ]
        },
        [cluster(O.ALTER)],
        CLUSTER_FAILED,
    ),
    Api.DELETE_ACLS: Case({"filters": [every("nobody")]}, [cluster(O.ALTER)], CLUSTER_FAILED),
    Api.DESCRIBE_CONFIGS: Case(
        {"resources": [{"resource_type": 2, "resource_name": T, "configuration_keys": None}]},
        [topic(O.DESCRIBE_CONFIGS)],
        TOPIC_FAILED,
    ),
    Api.ALTER_CONFIGS: Case({"resources": [_RESOURCE]}, [topic(O.ALTER_CONFIGS)], TOPIC_FAILED),
    Api.INCREMENTAL_ALTER_CONFIGS: Case(
        {"resources": [_RESOURCE]}, [topic(O.ALTER_CONFIGS)], TOPIC_FAILED
    ),
    Api.ALTER_REPLICA_LOG_DIRS: Case(
        {"dirs": [{"path": "/x", "topics": [{"name": T, "partitions": [0]}]}]},
        [cluster(O.ALTER)],
        CLUSTER_FAILED,
    ),
    Api.DESCRIBE_LOG_DIRS: Case({"topics": None}, [cluster(O.DESCRIBE)], CLUSTER_FAILED),
    Api.CREATE_PARTITIONS: Case(
        {"topics": [{"name": T, "count": 2, "assignments": None}], "validate_only": True},
        [topic(O.ALTER)],
        TOPIC_FAILED,
    ),
    Api.DELETE_GROUPS: Case({"groups_names": [G]}, [group(O.DELETE)], GROUP_FAILED),
    Api.ELECT_LEADERS: Case(
        {"election_type": 0, "topic_partitions": [{"topic": T, "partitions": [0]}]},
        [cluster(O.ALTER)],
        CLUSTER_FAILED,
    ),
    Api.ALTER_PARTITION_REASSIGNMENTS: Case({"topics": []}, [cluster(O.ALTER)], CLUSTER_FAILED),
    Api.LIST_PARTITION_REASSIGNMENTS: Case({"topics": None}, [cluster(O.DESCRIBE)], CLUSTER_FAILED),
    Api.OFFSET_DELETE: Case(
        {"group_id": G, "topics": [{"name": T, "partitions": [PARTITION]}]},
        [group(O.DELETE), topic(O.READ)],
        GROUP_FAILED,
    ),
    Api.DESCRIBE_CLIENT_QUOTAS: Case(
        {"components": [], "strict": False}, [cluster(O.DESCRIBE_CONFIGS)], CLUSTER_FAILED
    ),
    Api.ALTER_CLIENT_QUOTAS: Case(
        {
            "entries": [
                {
                    "entity": [{"entity_type": "user", "entity_name": "u"}],
                    "ops": [{"key": "producer_byte_rate", "value": 1.0, "remove": False}],
                }
            ],
            "validate_only": True,
        },
        [cluster(O.ALTER_CONFIGS)],
        CLUSTER_FAILED,
    ),
    Api.DESCRIBE_USER_SCRAM_CREDENTIALS: Case(
        {"users": [{"name": "u"}]}, [cluster(O.DESCRIBE)], CLUSTER_FAILED
    ),
    Api.ALTER_USER_SCRAM_CREDENTIALS: Case(
        {"deletions": [{"name": "u", "mechanism": 1}], "upsertions": []},
        [cluster(O.ALTER)],
        CLUSTER_FAILED,
    ),
    Api.DESCRIBE_QUORUM: Case({}, [cluster(O.DESCRIBE)], CLUSTER_FAILED),
    Api.CONSUMER_GROUP_HEARTBEAT: Case(
        {
            "group_id": G,
            "member_id": "m",
            "member_epoch": -1,
            "rebalance_timeout": 30_000,
            "subscribed_topic_names": [T],
            "topic_partitions": [],
        },
        [group(O.READ), topic(O.DESCRIBE)],
        GROUP_FAILED,
    ),
    Api.CONSUMER_GROUP_DESCRIBE: Case(
        {"group_ids": [G], "include_authorized_operations": False},
        [group(O.DESCRIBE)],
        GROUP_FAILED,
    ),
    Api.LIST_CONFIG_RESOURCES: Case({}, [cluster(O.DESCRIBE_CONFIGS)], CLUSTER_FAILED),
    Api.DESCRIBE_TOPIC_PARTITIONS: Case(
        {"topics": [{"name": T}], "response_partition_limit": 10},
        [topic(O.DESCRIBE)],
        TOPIC_FAILED,
    ),
}
X = "the-transactional-id"


def transactional(operation: Operation) -> Right:
    return operation, Resource.TRANSACTIONAL_ID, X


_PRODUCER = {"transactional_id": X, "producer_id": 7, "producer_epoch": 0}
ID_FAILED = Error.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
CASES |= {
    Api.ADD_PARTITIONS_TO_TXN: Case(
        {
            "v3_and_below_transactional_id": X,
            "v3_and_below_producer_id": 7,
            "v3_and_below_producer_epoch": 0,
            "v3_and_below_topics": [{"name": T, "partitions": [0]}],
        },
        [transactional(O.WRITE), topic(O.WRITE)],
        ID_FAILED,
    ),
    Api.ADD_OFFSETS_TO_TXN: Case(
        {**_PRODUCER, "group_id": G}, [transactional(O.WRITE), group(O.READ)], ID_FAILED
    ),
    Api.END_TXN: Case({**_PRODUCER, "committed": True}, [transactional(O.WRITE)], ID_FAILED),
    Api.TXN_OFFSET_COMMIT: Case(
        {
            **_PRODUCER,
            "group_id": G,
            "topics": [{"name": T, "partitions": [{**PARTITION, "committed_offset": 1}]}],
        },
        [transactional(O.WRITE), group(O.READ), topic(O.READ)],
        ID_FAILED,
    ),
    Api.DESCRIBE_PRODUCERS: Case(
        {"topics": [{"name": T, "partition_indexes": [0]}]}, [topic(O.READ)], TOPIC_FAILED
    ),
    Api.DESCRIBE_TRANSACTIONS: Case(
        {"transactional_ids": [X]}, [transactional(O.DESCRIBE)], ID_FAILED
    ),
}
_SHARED = {"topic_id": UUID(int=1), "partitions": [{"partition": 0}]}
_STATE: dict[str, Any] = {"group_id": G, "topics": [_SHARED]}
_SESSION: dict[str, Any] = {"group_id": G, "member_id": "m", "topics": []}
CASES |= {
    Api.SHARE_GROUP_HEARTBEAT: Case(
        {"group_id": G, "member_id": "m", "member_epoch": -1, "subscribed_topic_names": [T]},
        [group(O.READ), topic(O.DESCRIBE)],
        GROUP_FAILED,
    ),
    Api.SHARE_GROUP_DESCRIBE: Case({"group_ids": [G]}, [group(O.DESCRIBE)], GROUP_FAILED),
    # Topics are named by their ids, and only to those who may use the group: see
    # tests/broker/api/sharing/test_share_rights.py.
    Api.SHARE_FETCH: Case(
        {**_SESSION, "max_wait": 0, "share_session_epoch": 0}, [group(O.READ)], GROUP_FAILED
    ),
    Api.SHARE_ACKNOWLEDGE: Case(
        {**_SESSION, "share_session_epoch": 1}, [group(O.READ)], GROUP_FAILED
    ),
    **{
        api: Case(_STATE, [cluster(O.CLUSTER_ACTION)], CLUSTER_FAILED)
        for api in (
            Api.INITIALIZE_SHARE_GROUP_STATE,
            Api.READ_SHARE_GROUP_STATE,
            Api.WRITE_SHARE_GROUP_STATE,
            Api.DELETE_SHARE_GROUP_STATE,
            Api.READ_SHARE_GROUP_STATE_SUMMARY,
        )
    },
    Api.DESCRIBE_SHARE_GROUP_OFFSETS: Case(
        {"groups": [{"group_id": G, "topics": None}]}, [group(O.DESCRIBE)], GROUP_FAILED
    ),
    Api.ALTER_SHARE_GROUP_OFFSETS: Case(
        {"group_id": G, "topics": []}, [group(O.READ)], GROUP_FAILED
    ),
    Api.DELETE_SHARE_GROUP_OFFSETS: Case(
        {"group_id": G, "topics": []}, [group(O.DELETE)], GROUP_FAILED
    ),
}
# By these nobody learns or changes anything without a right: what may not be seen is left out.
WITHOUT_REFUSAL = {
    Api.API_VERSIONS,
    Api.SASL_HANDSHAKE,
    Api.SASL_AUTHENTICATE,
    Api.LIST_GROUPS,
    Api.LIST_TRANSACTIONS,
    Api.DESCRIBE_CLUSTER,
    # For brokers only, on a listener of theirs.
    Api.ENVELOPE,
}
# Before ids, so that a topic can be named.
VERSIONS = {
    Api.PRODUCE: 12,
    Api.FETCH: 12,
    Api.OFFSET_COMMIT: 9,
    Api.OFFSET_FETCH: 9,
    # Later ones come from brokers.
    Api.ADD_PARTITIONS_TO_TXN: 3,
}
# Built by others, with tests of their own rights.
ELSEWHERE: set[Api] = set()
