"""The requests of the protocol: their keys, and the versions that are spoken."""

from __future__ import annotations

from enum import IntEnum
from functools import cache
from typing import NamedTuple


class Api(IntEnum):
    """The key of a request, under Kafka's own name."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    DESCRIBE_GROUPS = 15
    LIST_GROUPS = 16
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    DELETE_RECORDS = 21
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    TXN_OFFSET_COMMIT = 28
    DESCRIBE_CONFIGS = 32
    ALTER_CONFIGS = 33
    ALTER_REPLICA_LOG_DIRS = 34
    DESCRIBE_LOG_DIRS = 35
    CREATE_PARTITIONS = 37
    DELETE_GROUPS = 42
    ELECT_LEADERS = 43
    INCREMENTAL_ALTER_CONFIGS = 44
    ALTER_PARTITION_REASSIGNMENTS = 45
    LIST_PARTITION_REASSIGNMENTS = 46
    OFFSET_DELETE = 47
    DESCRIBE_QUORUM = 55
    ENVELOPE = 58
    DESCRIBE_CLUSTER = 60
    LIST_CONFIG_RESOURCES = 74
    DESCRIBE_TOPIC_PARTITIONS = 75


class Versions(NamedTuple):
    """The versions of one API, both ends included, and the first with compact types (KIP-482)."""

    first: int
    last: int
    flexible: int


# Loading kio's schemas to learn this takes longer than starting a broker may; a test compares. Two
# end before kio's do: InitProducerId v6 asks for two-phase commit (KIP-939), which no release of
# Kafka announces, and DescribeLogDirs v5 tells of cordoned folders (KIP-1066), which are none here.
VERSIONS: dict[Api, Versions] = {
    Api.PRODUCE: Versions(3, 13, 9),
    Api.FETCH: Versions(4, 18, 12),
    Api.LIST_OFFSETS: Versions(1, 11, 6),
    Api.METADATA: Versions(0, 13, 9),
    Api.OFFSET_COMMIT: Versions(2, 10, 8),
    Api.OFFSET_FETCH: Versions(1, 10, 6),
    Api.FIND_COORDINATOR: Versions(0, 6, 3),
    Api.JOIN_GROUP: Versions(0, 9, 6),
    Api.HEARTBEAT: Versions(0, 4, 4),
    Api.LEAVE_GROUP: Versions(0, 5, 4),
    Api.SYNC_GROUP: Versions(0, 5, 4),
    Api.DESCRIBE_GROUPS: Versions(0, 6, 5),
    Api.LIST_GROUPS: Versions(0, 5, 3),
    Api.API_VERSIONS: Versions(0, 4, 3),
    Api.CREATE_TOPICS: Versions(2, 7, 5),
    Api.DELETE_TOPICS: Versions(1, 6, 4),
    Api.DELETE_RECORDS: Versions(0, 2, 2),
    Api.INIT_PRODUCER_ID: Versions(0, 5, 2),
    Api.OFFSET_FOR_LEADER_EPOCH: Versions(2, 4, 4),
    Api.ADD_PARTITIONS_TO_TXN: Versions(0, 5, 3),
    Api.ADD_OFFSETS_TO_TXN: Versions(0, 4, 3),
    Api.END_TXN: Versions(0, 5, 3),
    Api.TXN_OFFSET_COMMIT: Versions(0, 5, 3),
    Api.DESCRIBE_CONFIGS: Versions(1, 4, 4),
    Api.ALTER_CONFIGS: Versions(0, 2, 2),
    Api.ALTER_REPLICA_LOG_DIRS: Versions(1, 2, 2),
    Api.DESCRIBE_LOG_DIRS: Versions(1, 4, 2),
    Api.CREATE_PARTITIONS: Versions(0, 3, 2),
    Api.DELETE_GROUPS: Versions(0, 2, 2),
    Api.ELECT_LEADERS: Versions(0, 2, 2),
    Api.INCREMENTAL_ALTER_CONFIGS: Versions(0, 1, 1),
    Api.ALTER_PARTITION_REASSIGNMENTS: Versions(0, 1, 0),
    Api.LIST_PARTITION_REASSIGNMENTS: Versions(0, 0, 0),
    Api.OFFSET_DELETE: Versions(0, 0, 1),
    Api.DESCRIBE_QUORUM: Versions(0, 2, 0),
    Api.ENVELOPE: Versions(0, 0, 0),
    Api.DESCRIBE_CLUSTER: Versions(0, 2, 0),
    Api.LIST_CONFIG_RESOURCES: Versions(0, 1, 0),
    Api.DESCRIBE_TOPIC_PARTITIONS: Versions(0, 0, 0),
}


@cache
def is_flexible(api: int, version: int) -> bool:
    """Return whether bodies and headers of this version use compact lengths and tagged fields."""
    return version >= VERSIONS[Api(api)].flexible
