"""The settings of a pipeline file, typed. Every setting is defined here and nowhere else."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import msgspec

from moldau.schemas.registry_settings import RegistrySettings
from moldau.spark.formats import Format, Tombstones
from moldau.spark.formats.spec import Registered, SourceFormat, Truncates

Start = str
# A newer version of a schema: taken up, or the sinks that meet it wait, or the pipeline stops.
Evolution = Literal["add", "pause", "fail"]
Mode = Literal["append", "upsert", "update", "complete"]
SinkType = Literal["topic", "delta", "iceberg", "parquet", "console"]
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
    format: SourceFormat = "json"
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
    # Debezium's events that say that a table was truncated.
    truncates: Truncates = "fail"
    metadata: list[str] = []
    # The pipeline's own, unless it is said here.
    evolution: Evolution | None = None
    # Columns that a newer schema may take away, or give another type.
    may_change: list[str] = []
    group: str | None = None
    options: dict[str, str | int | float | bool] = {}

    @property
    def topics(self) -> list[str]:
        if self.topic is None:
            return []
        return [self.topic] if isinstance(self.topic, str) else self.topic

    @property
    def value_format(self) -> Format:
        """The format of values: Debezium's events are JSON if there are columns to read them by."""
        if self.format != "debezium":
            return self.format
        is_avro = self.schema is None and (self.schema_file or ".avsc").endswith(".avsc")
        return "avro" if is_avro else "json"

    @property
    def no_values(self) -> Tombstones:
        """What to do with records without a value; Debezium's follow deletes."""
        usual: dict[str, Tombstones] = {"string": "row", "debezium": "skip"}
        return self.tombstones or usual.get(self.format, "dead-letter")


class TableSettings(_Strict, frozen=True, kw_only=True):
    """A table: Spark SQL over the sources, and over the tables above it."""

    sql: str


class StepSettings(_Strict, frozen=True, kw_only=True):
    """A step: a function of Python from DataFrames to a DataFrame, `module:function`."""

    from_: str | list[str] = msgspec.field(name="from")
    python: str

    @property
    def inputs(self) -> list[str]:
        return [self.from_] if isinstance(self.from_, str) else self.from_


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


class LakeSinkSettings(SinkSettings, frozen=True, kw_only=True):
    """The settings that tables of a lake share, whatever keeps their log."""

    keys: list[str] = []
    # For upsert: the columns by which of two rows with the same keys the greater is newer.
    order_by: str | list[str] = []
    # An SQL condition, for upsert: rows of which it holds delete theirs in the table.
    delete_where: str = ""
    # How long an older row cannot bring a deleted one back.
    delete_retention: str = "7 days"
    # An SQL condition over `source` and `target`: without it a row of the table stays.
    merge_where: str = ""
    # 2 keeps all versions of a row, each with the time that it was valid.
    scd: Literal[1, 2] = 1
    valid_from: str = ""
    partition_by: list[str] = []
    optimize_every: int = 20

    @property
    def orders(self) -> list[str]:
        return [self.order_by] if isinstance(self.order_by, str) else self.order_by


class DeltaSinkSettings(LakeSinkSettings, frozen=True, kw_only=True):
    path: str
    storage_options: dict[str, str] = {}
    # The name in a catalog, if it has one there: database.table.
    table: str = ""
    # The settings of that catalog, which is AWS Glue, by pyiceberg's names.
    catalog: dict[str, str] = {}

    def __repr__(self) -> str:
        # What a store or a catalog is told may be secret.
        return f"DeltaSinkSettings(path={self.path!r})"


class IcebergSinkSettings(LakeSinkSettings, frozen=True, kw_only=True):
    # The name in the catalog: namespace.table.
    table: str
    # The folder of tables, and of the catalog if no other is given.
    warehouse: str = ""
    # The settings of a catalog by pyiceberg's names: type, uri, ...
    catalog: dict[str, str] = {}

    def __repr__(self) -> str:
        # What a catalog is told may be secret.
        return f"IcebergSinkSettings(table={self.table!r})"


class ParquetSink(SinkSettings, frozen=True, kw_only=True):
    path: str
    partition_by: list[str] = []


class ConsoleSink(SinkSettings, frozen=True, kw_only=True):
    rows: int = 20


AnySink = TopicSink | DeltaSinkSettings | IcebergSinkSettings | ParquetSink | ConsoleSink
SINKS: dict[str, type[AnySink]] = {
    "topic": TopicSink,
    "delta": DeltaSinkSettings,
    "iceberg": IcebergSinkSettings,
    "parquet": ParquetSink,
    "console": ConsoleSink,
}


class RestartSettings(_Strict, frozen=True, kw_only=True):
    """How a pipeline that has failed is started again: after a pause that doubles each time."""

    # How often in a row, without a finished batch between; 0 never restarts.
    limit: int = 10
    first_pause: str = "1 second"
    longest_pause: str = "1 minute"


class GeneralSettings(_Strict, frozen=True, kw_only=True):
    """The settings at the top of a file."""

    name: str
    bootstrap: str
    checkpoint: str
    # A schema registry: its URL, or a table with that and more by the names of Confluent's clients.
    # Without one, schemas are those in the brokers.
    registry: str | dict[str, str] = ""
    trigger: str = "1 second"
    evolution: Evolution = "add"
    spark: dict[str, str | int | float | bool] = {}
    # How to get in at the brokers, by Kafka's names: security.protocol, ssl.*, sasl.*
    client: dict[str, str] = {}
    restarts: RestartSettings = RestartSettings()
    # A shell command to run when the pipeline has failed.
    alert: str = ""
    # Whether its status is written to a topic of the brokers.
    status: bool = True

    def __repr__(self) -> str:
        # What Spark is told may be secret.
        return f"GeneralSettings(name={self.name!r}, bootstrap={self.bootstrap!r})"


@dataclass(frozen=True, slots=True)
class PipelineSettings:
    """A whole file."""

    general: GeneralSettings
    sources: dict[str, SourceSettings]
    tables: dict[str, TableSettings]
    steps: dict[str, StepSettings]
    sinks: dict[str, AnySink]

    @property
    def name(self) -> str:
        return self.general.name

    @property
    def needs_schemas(self) -> bool:
        """Whether something is written or read by registered schemas."""
        return any(source.value_format in Registered for source in self.sources.values()) or any(
            isinstance(sink, TopicSink) and sink.format in Registered
            for sink in self.sinks.values()
        )

    def registry(self) -> RegistrySettings | None:
        """Return the schema registry, with references as the file has them; InvalidSetting."""
        given = self.general.registry
        if not given:
            return None
        return RegistrySettings.parse({"url": given} if isinstance(given, str) else given)

    @property
    def bootstrap(self) -> str:
        return self.general.bootstrap
