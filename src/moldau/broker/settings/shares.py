"""The settings of share groups and of the coordinator of their state."""

from __future__ import annotations

from moldau.broker.settings.groups import GroupSettings
from moldau.settings import INT_MAX, setting


class ShareSettings(GroupSettings):
    """The settings of a broker that say how it shares partitions (KIP-932).

    It has the others' settings only because a class with slots can have one such parent.
    """

    share_coordinator_write_timeout_ms: int = setting(
        "share.coordinator.write.timeout.ms",
        5_000,
        "How long a write to __share_group_state waits for all in-sync replicas.",
        minimum=1,
        maximum=INT_MAX,
    )
    share_coordinator_state_topic_num_partitions: int = setting(
        "share.coordinator.state.topic.num.partitions",
        50,
        "The number of partitions of __share_group_state when it is created.",
        minimum=1,
        maximum=INT_MAX,
    )
    share_coordinator_state_topic_replication_factor: int = setting(
        "share.coordinator.state.topic.replication.factor",
        3,
        "The replication factor of __share_group_state; fewer if there are fewer brokers.",
        minimum=1,
        maximum=32767,
    )
    share_coordinator_state_topic_min_isr: int = setting(
        "share.coordinator.state.topic.min.isr",
        2,
        "min.insync.replicas of __share_group_state when it is created; no more than it "
        "has replicas.",
        minimum=1,
        maximum=INT_MAX,
    )
    share_coordinator_state_topic_segment_bytes: int = setting(
        "share.coordinator.state.topic.segment.bytes",
        100 << 20,
        "The segment size of __share_group_state.",
        minimum=14,
        maximum=INT_MAX,
    )
    share_coordinator_snapshot_update_records_per_snapshot: int = setting(
        "share.coordinator.snapshot.update.records.per.snapshot",
        500,
        "How many updates of a share-group state are written before the whole state is "
        "written again.",
        minimum=0,
        maximum=500,
    )
    share_coordinator_state_topic_prune_interval_ms: int = setting(
        "share.coordinator.state.topic.prune.interval.ms",
        300_000,
        "How often records of __share_group_state that are no longer needed are deleted.",
        minimum=1,
        maximum=INT_MAX,
    )
    share_coordinator_cold_partition_snapshot_interval_ms: int = setting(
        "share.coordinator.cold.partition.snapshot.interval.ms",
        300_000,
        "How long a share-group state may stay unchanged before it is written again, so that "
        "older records can be deleted.",
        minimum=1,
        maximum=INT_MAX,
    )
    group_share_session_timeout_ms: int = setting(
        "group.share.session.timeout.ms",
        45_000,
        "How long a member of a share group may be silent before it is removed.",
        minimum=1,
        maximum=INT_MAX,
    )
    group_share_min_session_timeout_ms: int = setting(
        "group.share.min.session.timeout.ms",
        45_000,
        "The shortest session timeout that a share group can be given.",
        minimum=1,
        maximum=INT_MAX,
    )
    group_share_max_session_timeout_ms: int = setting(
        "group.share.max.session.timeout.ms",
        60_000,
        "The longest session timeout that a share group can be given.",
        minimum=1,
        maximum=INT_MAX,
    )
    group_share_heartbeat_interval_ms: int = setting(
        "group.share.heartbeat.interval.ms",
        5000,
        "How often members of share groups are asked to send heartbeats.",
        minimum=1,
        maximum=INT_MAX,
    )
    group_share_min_heartbeat_interval_ms: int = setting(
        "group.share.min.heartbeat.interval.ms",
        5000,
        "The shortest heartbeat interval that a share group can be given.",
        minimum=1,
        maximum=INT_MAX,
    )
    group_share_max_heartbeat_interval_ms: int = setting(
        "group.share.max.heartbeat.interval.ms",
        15_000,
        "The longest heartbeat interval that a share group can be given.",
        minimum=1,
        maximum=INT_MAX,
    )
    group_share_record_lock_duration_ms: int = setting(
        "group.share.record.lock.duration.ms",
        30_000,
        "How long a member holds the lock of a record that it was given.",
        minimum=1,
        maximum=INT_MAX,
    )
    group_share_min_record_lock_duration_ms: int = setting(
        "group.share.min.record.lock.duration.ms",
        15_000,
        "The shortest lock of records that a share group can be given.",
        minimum=1,
        maximum=INT_MAX,
    )
    group_share_max_record_lock_duration_ms: int = setting(
        "group.share.max.record.lock.duration.ms",
        60_000,
        "The longest lock of records that a share group can be given.",
        minimum=1,
        maximum=INT_MAX,
    )
    group_share_delivery_count_limit: int = setting(
        "group.share.delivery.count.limit",
        5,
        "How many times a record is delivered to a share group before the group gives up on it.",
        minimum=1,
        maximum=INT_MAX,
    )
    group_share_min_delivery_count_limit: int = setting(
        "group.share.min.delivery.count.limit",
        2,
        "The lowest limit of deliveries that a share group can be given.",
        minimum=1,
        maximum=INT_MAX,
    )
    group_share_max_delivery_count_limit: int = setting(
        "group.share.max.delivery.count.limit",
        10,
        "The highest limit of deliveries that a share group can be given.",
        minimum=1,
        maximum=INT_MAX,
    )
    group_share_partition_max_record_locks: int = setting(
        "group.share.partition.max.record.locks",
        2000,
        "The most records of a partition that a share group may have in flight.",
        minimum=1,
        maximum=INT_MAX,
    )
    group_share_min_partition_max_record_locks: int = setting(
        "group.share.min.partition.max.record.locks",
        100,
        "The lowest limit of records in flight that a share group can be given.",
        minimum=1,
        maximum=INT_MAX,
    )
    group_share_max_partition_max_record_locks: int = setting(
        "group.share.max.partition.max.record.locks",
        4000,
        "The highest limit of records in flight that a share group can be given.",
        minimum=1,
        maximum=INT_MAX,
    )
    group_share_max_size: int = setting(
        "group.share.max.size",
        200,
        "The most members that a share group may have.",
        minimum=1,
        maximum=1000,
    )
    group_share_max_share_sessions: int = setting(
        "group.share.max.share.sessions",
        2000,
        "The most share sessions, one for each member that fetches, to keep.",
        minimum=1,
        maximum=INT_MAX,
    )
    errors_deadletterqueue_topic_name_prefix: str = setting(
        "errors.deadletterqueue.topic.name.prefix",
        "dlq.",
        "The prefix that the names of dead-letter topics must have (KIP-1191). If empty, any "
        "name is allowed.",
    )
    errors_deadletterqueue_auto_create_topics_enable: bool = setting(
        "errors.deadletterqueue.auto.create.topics.enable",
        True,
        "Whether a dead-letter topic is created when a share group first needs it.",
    )
