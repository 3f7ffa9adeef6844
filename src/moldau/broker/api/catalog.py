"""The catalog: which module declares which APIs, so that a broker imports it on their first use.

All modules together would take much of a start, and few brokers are asked for half of the APIs. A
module says the rest itself, and a test compares it with what stands here.
"""

from __future__ import annotations

from moldau.wire.apis import Api

MODULES: dict[str, tuple[Api, ...]] = {
    "access.acls": (Api.DESCRIBE_ACLS, Api.CREATE_ACLS, Api.DELETE_ACLS),
    "access.client_quotas": (Api.DESCRIBE_CLIENT_QUOTAS, Api.ALTER_CLIENT_QUOTAS),
    "access.user_scram_credentials": (
        Api.DESCRIBE_USER_SCRAM_CREDENTIALS,
        Api.ALTER_USER_SCRAM_CREDENTIALS,
    ),
    "cluster.alter_replica_log_dirs": (Api.ALTER_REPLICA_LOG_DIRS,),
    "cluster.api_versions": (Api.API_VERSIONS,),
    "cluster.describe_cluster": (Api.DESCRIBE_CLUSTER,),
    "cluster.describe_log_dirs": (Api.DESCRIBE_LOG_DIRS,),
    "cluster.describe_quorum": (Api.DESCRIBE_QUORUM,),
    "cluster.elect_leaders": (Api.ELECT_LEADERS,),
    "cluster.envelope": (Api.ENVELOPE,),
    "cluster.metadata": (Api.METADATA,),
    "cluster.partition_reassignments": (
        Api.ALTER_PARTITION_REASSIGNMENTS,
        Api.LIST_PARTITION_REASSIGNMENTS,
    ),
    "cluster.sasl": (Api.SASL_HANDSHAKE, Api.SASL_AUTHENTICATE),
    "groups.consumer_groups": (Api.CONSUMER_GROUP_HEARTBEAT, Api.CONSUMER_GROUP_DESCRIBE),
    "groups.find_coordinator": (Api.FIND_COORDINATOR,),
    "groups.group_membership": (
        Api.JOIN_GROUP,
        Api.HEARTBEAT,
        Api.LEAVE_GROUP,
        Api.SYNC_GROUP,
    ),
    "groups.groups": (Api.DESCRIBE_GROUPS, Api.LIST_GROUPS, Api.DELETE_GROUPS),
    "groups.offsets": (Api.OFFSET_COMMIT, Api.OFFSET_FETCH, Api.OFFSET_DELETE),
    "records.delete_records": (Api.DELETE_RECORDS,),
    "records.describe_producers": (Api.DESCRIBE_PRODUCERS,),
    "records.fetch": (Api.FETCH,),
    "records.list_offsets": (Api.LIST_OFFSETS,),
    "records.offset_for_leader_epoch": (Api.OFFSET_FOR_LEADER_EPOCH,),
    "records.produce": (Api.PRODUCE,),
    "records.write_txn_markers": (Api.WRITE_TXN_MARKERS,),
    "sharing.share_acknowledge": (Api.SHARE_ACKNOWLEDGE,),
    "sharing.share_fetch": (Api.SHARE_FETCH,),
    "sharing.share_group_offsets": (
        Api.DESCRIBE_SHARE_GROUP_OFFSETS,
        Api.ALTER_SHARE_GROUP_OFFSETS,
        Api.DELETE_SHARE_GROUP_OFFSETS,
    ),
    "sharing.share_group_state": (
        Api.INITIALIZE_SHARE_GROUP_STATE,
        Api.READ_SHARE_GROUP_STATE,
        Api.WRITE_SHARE_GROUP_STATE,
        Api.DELETE_SHARE_GROUP_STATE,
        Api.READ_SHARE_GROUP_STATE_SUMMARY,
    ),
    "sharing.share_groups": (Api.SHARE_GROUP_HEARTBEAT, Api.SHARE_GROUP_DESCRIBE),
    "topics.configs": (
        Api.DESCRIBE_CONFIGS,
        Api.ALTER_CONFIGS,
        Api.INCREMENTAL_ALTER_CONFIGS,
    ),
    "topics.describe_topic_partitions": (Api.DESCRIBE_TOPIC_PARTITIONS,),
    "topics.list_config_resources": (Api.LIST_CONFIG_RESOURCES,),
    "topics.topics": (Api.CREATE_TOPICS, Api.DELETE_TOPICS, Api.CREATE_PARTITIONS),
    "transactions.add_offsets_to_txn": (Api.ADD_OFFSETS_TO_TXN,),
    "transactions.add_partitions_to_txn": (Api.ADD_PARTITIONS_TO_TXN,),
    "transactions.describe_transactions": (Api.DESCRIBE_TRANSACTIONS,),
    "transactions.end_txn": (Api.END_TXN,),
    "transactions.init_producer_id": (Api.INIT_PRODUCER_ID,),
    "transactions.list_transactions": (Api.LIST_TRANSACTIONS,),
    "transactions.txn_offset_commit": (Api.TXN_OFFSET_COMMIT,),
}

# Those that are imported when a broker starts: what clients ask for most, and what is declared with
# more than versions that others have to know before its first use.
AT_START = (
    "cluster.api_versions",
    "cluster.envelope",
    "cluster.sasl",
    "records.fetch",
    "records.produce",
)
