"""The settings of groups whose members the coordinator assigns partitions to (KIP-848)."""

from __future__ import annotations

from moldau.broker.settings.transactions import TransactionSettings
from moldau.settings import INT_MAX, setting


class GroupSettings(TransactionSettings):
    """The settings of a broker that say how it coordinates groups of the consumer protocol.

    It has the others' settings only because a class with slots can have one such parent.
    """

    group_consumer_session_timeout_ms: int = setting(
        "group.consumer.session.timeout.ms",
        45_000,
        "How long a member of a consumer group may be silent before it is removed.",
        minimum=1,
        maximum=INT_MAX,
    )
    group_consumer_min_session_timeout_ms: int = setting(
        "group.consumer.min.session.timeout.ms",
        45_000,
        "The shortest session timeout that a consumer group can be given.",
        minimum=1,
        maximum=INT_MAX,
    )
    group_consumer_max_session_timeout_ms: int = setting(
        "group.consumer.max.session.timeout.ms",
        60_000,
        "The longest session timeout that a consumer group can be given.",
        minimum=1,
        maximum=INT_MAX,
    )
    group_consumer_heartbeat_interval_ms: int = setting(
        "group.consumer.heartbeat.interval.ms",
        5_000,
        "How often members of consumer groups are asked to send heartbeats.",
        minimum=1,
        maximum=INT_MAX,
    )
    group_consumer_min_heartbeat_interval_ms: int = setting(
        "group.consumer.min.heartbeat.interval.ms",
        5_000,
        "The shortest heartbeat interval that a consumer group can be given.",
        minimum=1,
        maximum=INT_MAX,
    )
    group_consumer_max_heartbeat_interval_ms: int = setting(
        "group.consumer.max.heartbeat.interval.ms",
        15_000,
        "The longest heartbeat interval that a consumer group can be given.",
        minimum=1,
        maximum=INT_MAX,
    )
    group_consumer_max_size: int = setting(
        "group.consumer.max.size",
        INT_MAX,
        "The most members that a consumer group may have.",
        minimum=1,
        maximum=INT_MAX,
    )
    group_consumer_assignors: tuple[str, ...] = setting(
        "group.consumer.assignors",
        ("uniform", "range"),
        "The assignors that consumer groups can use; the first is the default.",
        choices=("uniform", "range"),
    )
    group_consumer_migration_policy: str = setting(
        "group.consumer.migration.policy",
        "bidirectional",
        "Whether groups change their protocol while members use both: upgrade (from classic to "
        "consumer), downgrade, bidirectional or disabled.",
        choices=("bidirectional", "upgrade", "downgrade", "disabled"),
    )
    group_consumer_assignment_interval_ms: int = setting(
        "group.consumer.assignment.interval.ms",
        1_000,
        "The least time between two assignments of a consumer group.",
        minimum=0,
        maximum=INT_MAX,
        dynamic=True,
    )
    group_consumer_min_assignment_interval_ms: int = setting(
        "group.consumer.min.assignment.interval.ms",
        0,
        "The shortest assignment interval that a consumer group can be given.",
        minimum=0,
        maximum=INT_MAX,
    )
    group_consumer_max_assignment_interval_ms: int = setting(
        "group.consumer.max.assignment.interval.ms",
        15_000,
        "The longest assignment interval that a consumer group can be given.",
        minimum=0,
        maximum=INT_MAX,
    )
    group_consumer_regex_refresh_interval_ms: int = setting(
        "group.consumer.regex.refresh.interval.ms",
        600_000,
        "How often the topics that match a group's regular expressions are looked up again. New "
        "topics are noticed earlier.",
        minimum=10000,
        maximum=INT_MAX,
    )
