"""The requests of the protocol: their keys, and the versions that are spoken."""

from __future__ import annotations

from enum import IntEnum
from functools import cache
from typing import NamedTuple

# What a client calls its software (KIP-511) that asks for somebody at another address; in place of
# the version it has a broker's token for that.
ORIGIN = "moldau-origin"
# The header, behind `x-`, in which a registry says what one may do with a subject.
RIGHTS = "moldau-operations"


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
    SASL_HANDSHAKE = 17
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    DELETE_RECORDS = 21
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    WRITE_TXN_MARKERS = 27
    TXN_OFFSET_COMMIT = 28
    DESCRIBE_ACLS = 29
    CREATE_ACLS = 30
    DELETE_ACLS = 31
    DESCRIBE_CONFIGS = 32
    ALTER_CONFIGS = 33
    ALTER_REPLICA_LOG_DIRS = 34
    DESCRIBE_LOG_DIRS = 35
    SASL_AUTHENTICATE = 36
    CREATE_PARTITIONS = 37
    DELETE_GROUPS = 42
    ELECT_LEADERS = 43
    INCREMENTAL_ALTER_CONFIGS = 44
    ALTER_PARTITION_REASSIGNMENTS = 45
    LIST_PARTITION_REASSIGNMENTS = 46
    OFFSET_DELETE = 47
    DESCRIBE_CLIENT_QUOTAS = 48
    ALTER_CLIENT_QUOTAS = 49
    DESCRIBE_USER_SCRAM_CREDENTIALS = 50
    ALTER_USER_SCRAM_CREDENTIALS = 51
    DESCRIBE_QUORUM = 55
    ENVELOPE = 58
    DESCRIBE_CLUSTER = 60
    DESCRIBE_PRODUCERS = 61
    DESCRIBE_TRANSACTIONS = 65
    LIST_TRANSACTIONS = 66
    CONSUMER_GROUP_HEARTBEAT = 68
    CONSUMER_GROUP_DESCRIBE = 69
    LIST_CONFIG_RESOURCES = 74
    DESCRIBE_TOPIC_PARTITIONS = 75
    SHARE_GROUP_HEARTBEAT = 76
    SHARE_GROUP_DESCRIBE = 77
    SHARE_FETCH = 78
    SHARE_ACKNOWLEDGE = 79
    INITIALIZE_SHARE_GROUP_STATE = 83
    READ_SHARE_GROUP_STATE = 84
    WRITE_SHARE_GROUP_STATE = 85
    DELETE_SHARE_GROUP_STATE = 86
    READ_SHARE_GROUP_STATE_SUMMARY = 87
    DESCRIBE_SHARE_GROUP_OFFSETS = 90
    ALTER_SHARE_GROUP_OFFSETS = 91
    DELETE_SHARE_GROUP_OFFSETS = 92


class Versions(NamedTuple):
    """The versions of one API, both ends included, and the first with compact types (KIP-482)."""

    first: int
    last: int
    flexible: int


# Loading kio's schemas to learn this takes longer than starting a broker may; a test compares. One
# ends before kio's does: DescribeLogDirs v5 tells of cordoned folders (KIP-1066), which are none
# here.
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
    Api.SASL_HANDSHAKE: Versions(0, 1, 2),
    Api.API_VERSIONS: Versions(0, 4, 3),
    Api.CREATE_TOPICS: Versions(2, 7, 5),
    Api.DELETE_TOPICS: Versions(1, 6, 4),
    Api.DELETE_RECORDS: Versions(0, 2, 2),
    Api.INIT_PRODUCER_ID: Versions(0, 6, 2),
    Api.OFFSET_FOR_LEADER_EPOCH: Versions(2, 4, 4),
    Api.ADD_PARTITIONS_TO_TXN: Versions(0, 5, 3),
    Api.ADD_OFFSETS_TO_TXN: Versions(0, 4, 3),
    Api.END_TXN: Versions(0, 5, 3),
    Api.WRITE_TXN_MARKERS: Versions(1, 2, 1),
    Api.TXN_OFFSET_COMMIT: Versions(0, 5, 3),
    Api.DESCRIBE_ACLS: Versions(1, 3, 2),
    Api.CREATE_ACLS: Versions(1, 3, 2),
    Api.DELETE_ACLS: Versions(1, 3, 2),
    Api.DESCRIBE_CONFIGS: Versions(1, 4, 4),
    Api.ALTER_CONFIGS: Versions(0, 2, 2),
    Api.ALTER_REPLICA_LOG_DIRS: Versions(1, 2, 2),
    Api.DESCRIBE_LOG_DIRS: Versions(1, 4, 2),
    Api.SASL_AUTHENTICATE: Versions(0, 2, 2),
    Api.CREATE_PARTITIONS: Versions(0, 3, 2),
    Api.DELETE_GROUPS: Versions(0, 2, 2),
    Api.ELECT_LEADERS: Versions(0, 2, 2),
    Api.INCREMENTAL_ALTER_CONFIGS: Versions(0, 1, 1),
    Api.ALTER_PARTITION_REASSIGNMENTS: Versions(0, 1, 0),
    Api.LIST_PARTITION_REASSIGNMENTS: Versions(0, 0, 0),
    Api.OFFSET_DELETE: Versions(0, 0, 1),
    Api.DESCRIBE_CLIENT_QUOTAS: Versions(0, 1, 1),
    Api.ALTER_CLIENT_QUOTAS: Versions(0, 1, 1),
    Api.DESCRIBE_USER_SCRAM_CREDENTIALS: Versions(0, 0, 0),
    Api.ALTER_USER_SCRAM_CREDENTIALS: Versions(0, 0, 0),
    Api.DESCRIBE_QUORUM: Versions(0, 2, 0),
    Api.ENVELOPE: Versions(0, 0, 0),
    Api.DESCRIBE_CLUSTER: Versions(0, 2, 0),
    Api.DESCRIBE_PRODUCERS: Versions(0, 0, 0),
    Api.DESCRIBE_TRANSACTIONS: Versions(0, 0, 0),
    Api.LIST_TRANSACTIONS: Versions(0, 2, 0),
    Api.CONSUMER_GROUP_HEARTBEAT: Versions(0, 1, 0),
    Api.CONSUMER_GROUP_DESCRIBE: Versions(0, 1, 0),
    Api.LIST_CONFIG_RESOURCES: Versions(0, 1, 0),
    Api.DESCRIBE_TOPIC_PARTITIONS: Versions(0, 0, 0),
    Api.SHARE_GROUP_HEARTBEAT: Versions(1, 1, 0),
    Api.SHARE_GROUP_DESCRIBE: Versions(1, 1, 0),
    Api.SHARE_FETCH: Versions(1, 2, 0),
    Api.SHARE_ACKNOWLEDGE: Versions(1, 2, 0),
    Api.INITIALIZE_SHARE_GROUP_STATE: Versions(0, 0, 0),
    Api.READ_SHARE_GROUP_STATE: Versions(0, 0, 0),
    Api.WRITE_SHARE_GROUP_STATE: Versions(0, 1, 0),
    Api.DELETE_SHARE_GROUP_STATE: Versions(0, 0, 0),
    Api.READ_SHARE_GROUP_STATE_SUMMARY: Versions(0, 1, 0),
    Api.DESCRIBE_SHARE_GROUP_OFFSETS: Versions(0, 1, 0),
    Api.ALTER_SHARE_GROUP_OFFSETS: Versions(0, 0, 0),
    Api.DELETE_SHARE_GROUP_OFFSETS: Versions(0, 0, 0),
}


@cache
def is_flexible(api: int, version: int) -> bool:
    """Return whether bodies and headers of this version use compact lengths and tagged fields."""
    return version >= VERSIONS[Api(api)].flexible
