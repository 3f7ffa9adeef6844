"""The settings that a group can have of its own; the rest come from its coordinator's settings."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from moldau.broker.settings.broker import BrokerSettings
from moldau.broker.settings.offset_reset import parse_offset_reset
from moldau.settings import (
    INT_MAX,
    InvalidSetting,
    Setting,
    Settings,
    definitions,
    setting,
    unknown,
)


class GroupConfig(Settings):
    """What is in force for one group: its own setting, or else that of the broker."""

    consumer_session_timeout_ms: int = setting(
        "consumer.session.timeout.ms",
        45_000,
        "How long a member of the consumer group may be silent before it is removed.",
        minimum=1,
        maximum=INT_MAX,
        synonyms=(("group.consumer.session.timeout.ms", 1),),
    )
    consumer_heartbeat_interval_ms: int = setting(
        "consumer.heartbeat.interval.ms",
        5_000,
        "How often members of the consumer group are asked to send heartbeats.",
        minimum=1,
        maximum=INT_MAX,
        synonyms=(("group.consumer.heartbeat.interval.ms", 1),),
    )
    consumer_assignment_interval_ms: int = setting(
        "consumer.assignment.interval.ms",
        1_000,
        "The least time between two assignments of the consumer group.",
        minimum=0,
        maximum=INT_MAX,
        synonyms=(("group.consumer.assignment.interval.ms", 1),),
    )
    share_session_timeout_ms: int = setting(
        "share.session.timeout.ms",
        45_000,
        "How long a member of the share group may be silent before it is removed.",
        minimum=1,
        maximum=INT_MAX,
        synonyms=(("group.share.session.timeout.ms", 1),),
    )
    share_heartbeat_interval_ms: int = setting(
        "share.heartbeat.interval.ms",
        5_000,
        "How often members of the share group are asked to send heartbeats.",
        minimum=1,
        maximum=INT_MAX,
        synonyms=(("group.share.heartbeat.interval.ms", 1),),
    )
    share_record_lock_duration_ms: int = setting(
        "share.record.lock.duration.ms",
        30_000,
        "How long a member holds the lock of a record that it was given.",
        minimum=1,
        maximum=INT_MAX,
        synonyms=(("group.share.record.lock.duration.ms", 1),),
    )
    share_delivery_count_limit: int = setting(
        "share.delivery.count.limit",
        5,
        "How many times a record is delivered before the group gives up on it.",
        minimum=1,
        maximum=INT_MAX,
        synonyms=(("group.share.delivery.count.limit", 1),),
    )
    share_partition_max_record_locks: int = setting(
        "share.partition.max.record.locks",
        2000,
        "The most records of a partition that the share group may have in flight.",
        minimum=1,
        maximum=INT_MAX,
        synonyms=(("group.share.partition.max.record.locks", 1),),
    )
    share_auto_offset_reset: str = setting(
        "share.auto.offset.reset",
        "latest",
        "Where a share group begins in a partition that it has not read yet: earliest, latest or "
        "by_duration:DURATION (ISO 8601, as PT1H) for records that are no older.",
    )
    share_isolation_level: str = setting(
        "share.isolation.level",
        "read_uncommitted",
        "Whether the share group gets records of open and aborted transactions, or only "
        "committed records.",
        choices=("read_uncommitted", "read_committed"),
    )
    share_renew_acknowledge_enable: bool = setting(
        "share.renew.acknowledge.enable",
        True,
        "Whether members of the share group may renew the locks of their records (KIP-1222).",
    )
    errors_deadletterqueue_topic_name: str = setting(
        "errors.deadletterqueue.topic.name",
        "",
        "The topic for records that the share group rejects or that were delivered too often "
        "(KIP-1191). If empty, they are dropped.",
    )


class OfBroker(NamedTuple):
    """What a broker's settings say of one of a group's: the default, and the bounds if any."""

    default: Any
    least: int | None = None
    most: int | None = None


_OF_BROKER: dict[str, Callable[[BrokerSettings], OfBroker]] = {
    "consumer.session.timeout.ms": lambda settings: OfBroker(
        settings.group_consumer_session_timeout_ms,
        settings.group_consumer_min_session_timeout_ms,
        settings.group_consumer_max_session_timeout_ms,
    ),
    "consumer.heartbeat.interval.ms": lambda settings: OfBroker(
        settings.group_consumer_heartbeat_interval_ms,
        settings.group_consumer_min_heartbeat_interval_ms,
        settings.group_consumer_max_heartbeat_interval_ms,
    ),
    "consumer.assignment.interval.ms": lambda settings: OfBroker(
        settings.group_consumer_assignment_interval_ms,
        settings.group_consumer_min_assignment_interval_ms,
        settings.group_consumer_max_assignment_interval_ms,
    ),
    "share.session.timeout.ms": lambda settings: OfBroker(
        settings.group_share_session_timeout_ms,
        settings.group_share_min_session_timeout_ms,
        settings.group_share_max_session_timeout_ms,
    ),
    "share.heartbeat.interval.ms": lambda settings: OfBroker(
        settings.group_share_heartbeat_interval_ms,
        settings.group_share_min_heartbeat_interval_ms,
        settings.group_share_max_heartbeat_interval_ms,
    ),
    "share.record.lock.duration.ms": lambda settings: OfBroker(
        settings.group_share_record_lock_duration_ms,
        settings.group_share_min_record_lock_duration_ms,
        settings.group_share_max_record_lock_duration_ms,
    ),
    "share.delivery.count.limit": lambda settings: OfBroker(
        settings.group_share_delivery_count_limit,
        settings.group_share_min_delivery_count_limit,
        settings.group_share_max_delivery_count_limit,
    ),
    "share.partition.max.record.locks": lambda settings: OfBroker(
        settings.group_share_partition_max_record_locks,
        settings.group_share_min_partition_max_record_locks,
        settings.group_share_max_partition_max_record_locks,
    ),
}


def of_broker(each: Setting, settings: BrokerSettings) -> OfBroker:
    """Return what a group has that does not set this itself, and what it can set it to."""
    found = _OF_BROKER.get(each.name)
    return OfBroker(each.default) if found is None else found(settings)


def group_config(configs: Mapping[str, str], settings: BrokerSettings) -> GroupConfig:
    """Return what is in force for a group with these settings of its own.

    One that this broker cannot take, for its bounds may be others, is brought within them.
    """
    values: dict[str, Any] = {}
    for name, each in definitions(GroupConfig).items():
        value, least, most = of_broker(each, settings)
        if name in configs:
            try:
                value = each.parse(configs[name])
            except InvalidSetting:
                continue
            value = value if least is None else max(value, least)
            value = value if most is None else min(value, most)
        values[each.attribute] = value
    return GroupConfig(**values)


def check_group_configs(configs: Mapping[str, str], settings: BrokerSettings) -> None:
    """Raise InvalidSetting if a group cannot have these settings."""
    known = definitions(GroupConfig)
    for name, text in configs.items():
        if name not in known:
            raise unknown(name, known)
        value = known[name].parse(text)
        if name == "share.auto.offset.reset":
            parse_offset_reset(value)
        _, least, most = of_broker(known[name], settings)
        kind, _, rest = name.partition(".")
        if least is not None and value < least:
            reason = f"must be at least {least}, by group.{kind}.min.{rest}"
            raise InvalidSetting(name, text, reason)
        if most is not None and value > most:
            reason = f"must be at most {most}, by group.{kind}.max.{rest}"
            raise InvalidSetting(name, text, reason)
    _check_heartbeats(configs, settings)


def _check_heartbeats(configs: Mapping[str, str], settings: BrokerSettings) -> None:
    known = definitions(GroupConfig)
    effective = group_config(configs, settings)
    for name in known.keys() & configs.keys():
        kind = name.partition(".")[0]
        interval, session = f"{kind}.heartbeat.interval.ms", f"{kind}.session.timeout.ms"
        if name not in (interval, session):
            continue
        values = [getattr(effective, known[each].attribute) for each in (interval, session)]
        if values[0] >= values[1]:
            raise InvalidSetting(name, configs[name], f"{interval} must be below {session}")
