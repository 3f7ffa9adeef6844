"""The settings of a topic that its log follows."""

from __future__ import annotations

from collections.abc import Mapping

from moldau.settings import (
    INT_MAX,
    LONG_MAX,
    InvalidSetting,
    Setting,
    Settings,
    definitions,
    replace,
    setting,
)

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS


class LogConfig(Settings):
    """Topic settings under Kafka's names and with Kafka's defaults.

    A broker-level synonym (`log.retention.hours`) supplies the default of every topic.
    """

    cleanup_policy: tuple[str, ...] = setting(
        "cleanup.policy",
        ("delete",),
        "What to do with old segments: delete them by age and size, compact them by key, or both.",
        choices=("delete", "compact"),
        synonyms=("log.cleanup.policy",),
    )
    retention_ms: int = setting(
        "retention.ms",
        7 * DAY_MS,
        "How long records are kept before their segment may be deleted; -1 means for ever.",
        minimum=-1,
        synonyms=(
            "log.retention.ms",
            ("log.retention.minutes", 60_000),
            ("log.retention.hours", HOUR_MS),
        ),
    )
    retention_bytes: int = setting(
        "retention.bytes",
        -1,
        "How large a partition may grow before its oldest segments are deleted; -1 means no limit.",
        synonyms=("log.retention.bytes",),
    )
    segment_bytes: int = setting(
        "segment.bytes",
        1 << 30,
        "The size at which a segment is closed and the next one begins.",
        minimum=14,
        maximum=INT_MAX,
        synonyms=("log.segment.bytes",),
    )
    segment_ms: int = setting(
        "segment.ms",
        7 * DAY_MS,
        "The age at which a segment is closed even if it is not full.",
        minimum=1,
        synonyms=("log.roll.ms", ("log.roll.hours", HOUR_MS)),
    )
    segment_jitter_ms: int = setting(
        "segment.jitter.ms",
        0,
        "The largest random amount to subtract from segment.ms, so that segments do "
        "not all roll at once.",
        minimum=0,
        synonyms=("log.roll.jitter.ms", ("log.roll.jitter.hours", HOUR_MS)),
    )
    segment_index_bytes: int = setting(
        "segment.index.bytes",
        10 << 20,
        "The size at which an offset index is full, so that its segment is closed.",
        minimum=4,
        maximum=INT_MAX,
        synonyms=("log.index.size.max.bytes",),
    )
    index_interval_bytes: int = setting(
        "index.interval.bytes",
        4096,
        "The bytes of records between two entries of the offset index.",
        minimum=0,
        maximum=INT_MAX,
        synonyms=("log.index.interval.bytes",),
    )
    max_message_bytes: int = setting(
        "max.message.bytes",
        1_048_588,
        "The largest record batch that a producer may send.",
        minimum=0,
        maximum=INT_MAX,
        synonyms=("message.max.bytes",),
    )
    message_timestamp_type: str = setting(
        "message.timestamp.type",
        "CreateTime",
        "Whether a record carries the producer's timestamp or the time of the append.",
        choices=("CreateTime", "LogAppendTime"),
        synonyms=("log.message.timestamp.type",),
    )
    message_timestamp_before_max_ms: int = setting(
        "message.timestamp.before.max.ms",
        LONG_MAX,
        "How far a producer's timestamp may lie behind the broker's clock.",
        minimum=0,
        synonyms=("log.message.timestamp.before.max.ms",),
    )
    message_timestamp_after_max_ms: int = setting(
        "message.timestamp.after.max.ms",
        HOUR_MS,
        "How far a producer's timestamp may lie ahead of the broker's clock.",
        minimum=0,
        synonyms=("log.message.timestamp.after.max.ms",),
    )
    compression_type: str = setting(
        "compression.type",
        "producer",
        "The codec of stored batches; `producer` keeps the producer's choice.",
        choices=("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
        synonyms=("compression.type",),
    )
    compression_gzip_level: int = setting(
        "compression.gzip.level",
        -1,
        "The level to compress with if compression.type is gzip.",
        minimum=-1,
        maximum=9,
        synonyms=("compression.gzip.level",),
    )
    compression_lz4_level: int = setting(
        "compression.lz4.level",
        9,
        "The level to compress with if compression.type is lz4.",
        minimum=1,
        maximum=17,
        synonyms=("compression.lz4.level",),
    )
    compression_zstd_level: int = setting(
        "compression.zstd.level",
        3,
        "The level to compress with if compression.type is zstd.",
        minimum=-131072,
        maximum=22,
        synonyms=("compression.zstd.level",),
    )
    min_insync_replicas: int = setting(
        "min.insync.replicas",
        1,
        "How many replicas must be in sync for a write with acks=all to be accepted, "
        "and for any write to become visible.",
        minimum=1,
        maximum=INT_MAX,
        synonyms=("min.insync.replicas",),
    )
    flush_messages: int = setting(
        "flush.messages",
        LONG_MAX,
        "How many messages may be written before the log is flushed to disk.",
        minimum=1,
        synonyms=("log.flush.interval.messages",),
    )
    flush_ms: int = setting(
        "flush.ms",
        LONG_MAX,
        "How long a message may wait before it is flushed to disk.",
        minimum=0,
        synonyms=("log.flush.interval.ms",),
    )
    file_delete_delay_ms: int = setting(
        "file.delete.delay.ms",
        60_000,
        "Accepted for compatibility; a segment is deleted at once, and consumers "
        "that are reading it are not disturbed.",
        minimum=0,
        synonyms=("log.segment.delete.delay.ms",),
    )
    delete_retention_ms: int = setting(
        "delete.retention.ms",
        DAY_MS,
        "How long a tombstone stays in a compacted topic.",
        minimum=0,
        synonyms=("log.cleaner.delete.retention.ms",),
    )
    min_cleanable_dirty_ratio: float = setting(
        "min.cleanable.dirty.ratio",
        0.5,
        "The share of a log that must be dirty (not yet compacted) before it is compacted.",
        minimum=0,
        maximum=1,
        synonyms=("log.cleaner.min.cleanable.ratio",),
    )
    min_compaction_lag_ms: int = setting(
        "min.compaction.lag.ms",
        0,
        "The shortest time that a record stays uncompacted.",
        minimum=0,
        synonyms=("log.cleaner.min.compaction.lag.ms",),
    )
    max_compaction_lag_ms: int = setting(
        "max.compaction.lag.ms",
        LONG_MAX,
        "The longest time that a record stays uncompacted.",
        minimum=1,
        synonyms=("log.cleaner.max.compaction.lag.ms",),
    )
    preallocate: bool = setting(
        "preallocate",
        False,
        "Accepted for compatibility; segments grow as they are written.",
        synonyms=("log.preallocate",),
    )
    unclean_leader_election_enable: bool = setting(
        "unclean.leader.election.enable",
        False,
        "Whether a replica that is not in sync may become leader, which can lose records.",
        synonyms=("unclean.leader.election.enable",),
    )

    moldau_value_schema_validation: bool = setting(
        "moldau.value.schema.validation",
        False,
        "Whether a record's value must match the schema that it names, which must be registered "
        "under the topic's name with -value. Needs `http.listen` and the extra moldau[checks].",
    )
    moldau_key_schema_validation: bool = setting(
        "moldau.key.schema.validation",
        False,
        "The same for keys, under the topic's name with -key.",
    )

    moldau_schema_validation_quarantine: str = setting(
        "moldau.schema.validation.quarantine",
        "",
        "A topic for records that fail the check against their schemas: the rest of their batch "
        "is accepted, and one transaction covers both writes. Without it, the whole batch is "
        "refused.",
    )

    @property
    def compacts(self) -> bool:
        return "compact" in self.cleanup_policy

    @property
    def looks_into_records(self) -> bool:
        """Whether batches are decoded before they are written."""
        return self.compacts or self.compression_type != "producer" or self.validates_schemas

    @property
    def validates_schemas(self) -> bool:
        """Whether records are checked against the schemas that they name."""
        return self.moldau_value_schema_validation or self.moldau_key_schema_validation

    @property
    def deletes(self) -> bool:
        return "delete" in self.cleanup_policy

    @property
    def flushes(self) -> bool:
        """Whether there is a flush policy: then only what is on disk counts as written."""
        return self.flush_messages < LONG_MAX or self.flush_ms < LONG_MAX

    @property
    def uses_append_time(self) -> bool:
        return self.message_timestamp_type == "LogAppendTime"

    @classmethod
    def parse(cls, values: Mapping[str, str], defaults: LogConfig) -> LogConfig:
        """`defaults` with a topic's own settings; InvalidSetting for a bad one."""
        config = replace(defaults, values)
        if config.min_compaction_lag_ms > config.max_compaction_lag_ms:
            raise InvalidSetting(
                "min.compaction.lag.ms",
                str(config.min_compaction_lag_ms),
                f"must not exceed max.compaction.lag.ms ({config.max_compaction_lag_ms})",
            )
        return config


def topic_defaults(broker_values: Mapping[str, str]) -> LogConfig:
    """Return the topic settings that a broker's own settings imply (`log.retention.hours` and so
    on)."""
    values = {}
    for definition in definitions(LogConfig).values():
        for name, factor in definition.synonyms:
            if name in broker_values:
                values[definition.name] = _in_own_unit(
                    definition, name, factor, broker_values[name]
                )
                break
    return LogConfig.parse(values, LogConfig())


def _in_own_unit(definition: Setting, name: str, factor: int, text: str) -> str:
    """Return a broker-level text as the topic setting takes it; errors speak of what was really
    set."""
    try:
        if factor != 1:
            # A negative number is no time but means something, whatever the unit.
            number = int(text)
            value = str(number * factor if number >= 0 else number)
        else:
            value = text
        definition.parse(value)
    except InvalidSetting as wrong:
        raise InvalidSetting(name, text, wrong.reason) from None
    except ValueError:
        raise InvalidSetting(name, text, "expected a whole number") from None
    return value
