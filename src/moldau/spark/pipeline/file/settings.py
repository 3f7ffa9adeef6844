"""The settings of a pipeline file, typed. Every setting is defined here and nowhere else."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import msgspec

from moldau.spark.formats import Format, Tombstones

Start = str
Mode = Literal["append", "upsert", "update", "complete"]
SinkType = Literal["topic", "delta", "parquet", "console"]
SINK_TYPES: tuple[str, ...] = get_args(SinkType)


class _Strict(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    pass


class Watermark(_Strict, frozen=True, kw_only=True):
    """The bound for late events: windows older than the newest event by `delay` are closed."""

    column: str
    delay: str


class SourceSettings(_Strict, frozen=True, kw_only=True):
    """One or more topics, and how to read their values."""

    topic: str | list[str] | None = None
    pattern: str | None = None
    format: Format = "json"
    schema: str | None = None
    schema_file: str | None = None
    subject: str | None = None
    watermark: Watermark | None = None
    # earliest, latest, or a moment: where to begin without a checkpoint.
    start: Start = "earliest"
    # A bound on the time and memory of a batch; what is left comes in the next.
    max_records_per_batch: int = 1_000_000
    dead_letters: str | bool = True
    # Records without a value; dead letters if not said, and null in the format string.
    tombstones: Tombstones | None = None
    metadata: list[str] = []
    group: str | None = None
    options: dict[str, str | int | float | bool] = {}

    @property
    def topics(self) -> list[str]:
        if self.topic is None:
            return []
        return [self.topic] if isinstance(self.topic, str) else self.topic


class TableSettings(_Strict, frozen=True, kw_only=True):
    """A table: Spark SQL over the sources, and over the tables above it."""

    sql: str


class SinkSettings(_Strict, frozen=True, kw_only=True):
    """The settings that all sinks have."""

    from_: str = msgspec.field(name="from")
    type: SinkType
    mode: Mode | None = None
    trigger: str | None = None


class TopicSink(SinkSettings, frozen=True, kw_only=True):
    topic: str
    format: Format = "json"
    key: str | list[str] = []
    schema_file: str | None = None
    subject: str | None = None
    partitions: int | None = None
    options: dict[str, str | int | float | bool] = {}

    @property
    def keys(self) -> list[str]:
        return [self.key] if isinstance(self.key, str) else self.key


class DeltaSinkSettings(SinkSettings, frozen=True, kw_only=True):
    path: str
    keys: list[str] = []
    # For upsert: the columns by which of two rows with the same keys the greater is newer.
    order_by: str | list[str] = []
    # An SQL condition, for upsert: rows of which it holds delete theirs in the table.
    delete_where: str = ""
    partition_by: list[str] = []
    optimize_every: int = 20
    storage_options: dict[str, str] = {}

    @property
    def orders(self) -> list[str]:
        return [self.order_by] if isinstance(self.order_by, str) else self.order_by


class ParquetSink(SinkSettings, frozen=True, kw_only=True):
    path: str
    partition_by: list[str] = []


class ConsoleSink(SinkSettings, frozen=True, kw_only=True):
    rows: int = 20


AnySink = TopicSink | DeltaSinkSettings | ParquetSink | ConsoleSink
SINKS: dict[str, type[AnySink]] = {
    "topic": TopicSink,
    "delta": DeltaSinkSettings,
    "parquet": ParquetSink,
    "console": ConsoleSink,
}


class GeneralSettings(_Strict, frozen=True, kw_only=True):
    """The settings at the top of a file."""

    name: str
    bootstrap: str
    checkpoint: str
    trigger: str = "1 second"
    spark: dict[str, str | int | float | bool] = {}


@dataclass(frozen=True, slots=True)
class PipelineSettings:
    """A whole file."""

    general: GeneralSettings
    sources: dict[str, SourceSettings]
    tables: dict[str, TableSettings]
    sinks: dict[str, AnySink]

    @property
    def name(self) -> str:
        return self.general.name

    @property
    def has_avro(self) -> bool:
        return any(source.format == "avro" for source in self.sources.values()) or any(
            isinstance(sink, TopicSink) and sink.format == "avro" for sink in self.sinks.values()
        )

    @property
    def bootstrap(self) -> str:
        return self.general.bootstrap
