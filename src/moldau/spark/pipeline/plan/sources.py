"""Sources: from settings to frames with the columns of their values."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

import msgspec

from moldau.spark.errors import log
from moldau.spark.formats import BadRecords, ValueSpec
from moldau.spark.formats.errors import FormatError
from moldau.spark.formats.spec import BAD, Registered, Sharing
from moldau.spark.names import ORDER_FIELDS, RECORD_ORDER
from moldau.spark.pipeline.errors import PipelineError, nearest
from moldau.spark.pipeline.file.file import PipelineFile
from moldau.spark.pipeline.plan.last_reading import LastReading
from moldau.spark.pipeline.plan.registered_reading import (
    VALUE,
    RegisteredReading,
    subjects_of,
)
from moldau.spark.pipeline.plan.topics import dead_letter_topic, matching, written_topics
from moldau.spark.pipeline.reasons import in_words
from moldau.spark.source.java_pattern import PatternError, java_pattern

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Observation, SparkSession
    from pyspark.sql.types import StructType

    from moldau.schemas import RegisteredSchema
    from moldau.schemas.catalog import SchemaCatalog
    from moldau.schemas.schema import Dependency


@dataclass(frozen=True, slots=True)
class Reading:
    """The way a source is read for one query: bounds that override its own, and who sends dead
    letters.

    `start` is the value of `startingOffsets`; the times are milliseconds and for batch queries.
    With `is_ordered` there is the column RECORD_ORDER. With `sharing`, what is read is there for
    other sinks, too.
    """

    kind: Literal["stream", "batch"] = "stream"
    sends: bool = False
    start: str | None = None
    from_ms: int | None = None
    until_ms: int | None = None
    is_ordered: bool = False
    sharing: Sharing | None = None


class Sources:
    """The sources of a file, as frames of one session. Frames are kept: each costs a process.

    `last` is how those were read that a run goes on with.
    """

    def __init__(
        self,
        file: PipelineFile,
        spark: SparkSession,
        store: Callable[[], SchemaCatalog],
        last: Mapping[str, LastReading],
    ) -> None:
        self._file = file
        self._spark = spark
        self._store = store
        self._last = last
        # How those with registered schemas are read now.
        self.readings: dict[str, LastReading] = {}
        self._specs: dict[str, ValueSpec] = {}
        self._frames: dict[tuple[str, Reading], DataFrame] = {}
        # Counters of the records of the sources that were last read as batches.
        self.observations: dict[str, Observation] = {}

    def frame(self, name: str, reading: Reading) -> DataFrame:
        """Return the source's columns; PipelineError says what is wrong with its settings."""
        found = self._frames.get((name, reading))
        if found is None:
            found = self._frames[name, reading] = self._build(name, reading)
        return found

    def columns(self, name: str) -> StructType:
        """Return the columns of the source's values."""
        from pyspark.sql.types import StructType

        return StructType.fromJson(json.loads(self._spec(name).schema))

    def forget_batches(self) -> None:
        """Build frames of batches anew: an observation counts one action."""
        self._frames = {
            key: frame for key, frame in self._frames.items() if key[1].kind == "stream"
        }
        self.observations.clear()

    def _build(self, name: str, reading: Reading) -> DataFrame:
        from pyspark.errors import PySparkException
        from pyspark.sql import Observation
        from pyspark.sql import functions as F

        from moldau.spark.formats.source import NAME, source_options

        spec = self._spec(name)
        bad = msgspec.structs.replace(spec.bad_records, sends=reading.sends)
        spec = msgspec.structs.replace(
            spec, bad_records=bad, is_ordered=reading.is_ordered, sharing=reading.sharing
        )
        reader: Any = self._spark.readStream if reading.kind == "stream" else self._spark.read
        options = source_options(spec, self._options(name, reading))
        try:
            frame: DataFrame = reader.format(NAME).options(**options).load()
        except PySparkException as problem:
            raise self._error(in_words(problem), name, "options") from None
        if spec.format != "raw":
            counts = (
                F.count(F.lit(1)).alias("records"),
                F.count(F.when(F.col(BAD), 1)).alias("dead_letters"),
            )
            watch: Any = observation(name)
            if reading.kind == "batch":
                watch = self.observations[name] = Observation(watch)
            frame = frame.observe(watch, *counts).where(~F.col(BAD)).drop(BAD)
        elif reading.is_ordered:
            parts = [F.col(of).alias(name) for name, of in ORDER_FIELDS.items()]
            frame = frame.withColumn(RECORD_ORDER, F.struct(*parts))
        return self._watermarked(frame, name)

    def _watermarked(self, frame: DataFrame, name: str) -> DataFrame:
        watermark = self._file.settings.sources[name].watermark
        if watermark is None:
            return frame
        kinds = {field.name: field.dataType.simpleString() for field in frame.schema.fields}
        kind = kinds.get(watermark.column)
        if kind is None:
            hint = nearest(watermark.column, kinds)
            raise self._error(f"there is no column {watermark.column!r}{hint}", name, "watermark")
        if kind not in ("timestamp", "timestamp_ntz"):
            raise self._error(
                f"the watermark's column {watermark.column!r} is {kind}, but must be a timestamp",
                name,
                "watermark",
            )
        return frame.withWatermark(watermark.column, watermark.delay)

    def _options(self, name: str, reading: Reading) -> dict[str, str]:
        settings = self._file.settings
        source = settings.sources[name]
        options = {
            "kafka.bootstrap.servers": settings.bootstrap,
            # What another pipeline staged and never committed is not to be read.
            "kafka.isolation.level": "read_committed",
            **self._file.client_options(),
        }
        options |= {key: _text(value) for key, value in source.options.items()}
        if source.pattern:
            try:
                java_pattern(source.pattern)
            except PatternError as problem:
                raise self._error(str(problem), name, "pattern") from None
            options["subscribePattern"] = source.pattern
        else:
            options["subscribe"] = ",".join(source.topics)
        if reading.kind == "batch":
            options["startingOffsetsByTimestampStrategy"] = "latest"
            if reading.from_ms is not None:
                options["startingTimestamp"] = str(reading.from_ms)
            if reading.until_ms is not None:
                options["endingTimestamp"] = str(reading.until_ms)
            return options
        options.setdefault("maxOffsetsPerTrigger", str(source.max_records_per_batch))
        if source.group and reading.sends:
            options["commitGroup"] = source.group
        return options | (
            self._start(name) if reading.start is None else {"startingOffsets": reading.start}
        )

    def _start(self, name: str) -> dict[str, str]:
        start = self._file.settings.sources[name].start
        if start in ("earliest", "latest"):
            return {"startingOffsets": start}
        try:
            moment = datetime.fromisoformat(start)
        except ValueError:
            raise self._error(
                f"start is {start!r}, but must be earliest, latest or a time such "
                "as 2024-02-29T12:00Z",
                name,
                "start",
            ) from None
        moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
        return {
            "startingTimestamp": str(int(moment.timestamp() * 1000)),
            "startingOffsetsByTimestampStrategy": "latest",
        }

    def _spec(self, name: str) -> ValueSpec:
        found = self._specs.get(name)
        if found is None:
            found = self._specs[name] = self._new_spec(name)
        return found

    def _new_spec(self, name: str) -> ValueSpec:
        from pyspark.sql.types import StringType, StructField, StructType

        from moldau.spark.formats.parsing import RECORD_TYPES

        settings = self._file.settings
        source = settings.sources[name]
        registered: RegisteredReading | None = None
        if source.value_format == "json":
            schema = self._json_schema(name)
        elif source.value_format in Registered:
            registered = self._registered(name)
            schema = registered.schema
        elif source.format == "string":
            schema = StructType([StructField("value", StringType())])
        else:
            wanted = [n for n in RECORD_TYPES if n != "headers" or "headers" in source.metadata]
            schema = StructType([StructField(n, RECORD_TYPES[n]) for n in wanted])
        schema = self._with_changes(name, schema, registered is not None)
        if registered is not None:
            self.readings[name] = LastReading(schema, registered.version)
        return ValueSpec(
            format=source.value_format,
            schema=json.dumps(schema.jsonValue()),
            metadata=tuple(source.metadata),
            bad_records=BadRecords(dead_letter_topic(self._file, name)),
            source=name,
            bootstrap=settings.bootstrap,
            registry=settings.registry(),
            reader_schema=registered.text if registered else "",
            reader_dependencies=registered.dependencies if registered else (),
            known_schemas=registered.known if registered else {},
            known_guids=registered.guids if registered else {},
            subjects=registered.subjects if registered else (),
            remedy=registered.remedy if registered else "",
            left_out=tuple(written_topics(self._file)),
            tombstones=source.no_values,
            is_debezium=source.format == "debezium",
            truncates=source.truncates,
        )

    def _with_changes(self, name: str, schema: StructType, is_envelope: bool) -> StructType:
        """Return the columns of the source's values; Debezium's are those of rows and changes."""
        from moldau.spark.formats.debezium import change_columns, row_of_envelope

        if self._file.settings.sources[name].format != "debezium":
            return schema
        try:
            return change_columns(row_of_envelope(schema) if is_envelope else schema)
        except FormatError as problem:
            raise self._error(str(problem), name, "format") from None

    def _json_schema(self, name: str) -> StructType:
        from pyspark.errors import PySparkException
        from pyspark.sql.types import StructType

        from moldau.spark.formats.json_values import json_type

        text, setting = self._schema_text(name)
        try:
            if text.lstrip().startswith("{"):
                schema = StructType.fromJson(json.loads(text))
            else:
                schema = cast(StructType, StructType.fromDDL(text))
            json_type(schema)
        except (PySparkException, FormatError, ValueError, KeyError) as problem:
            raise self._error(f"not a schema: {in_words(problem)}", name, setting) from None
        return schema

    def _registered(self, name: str) -> RegisteredReading:
        from moldau.client.errors import ClientError

        source = self._file.settings.sources[name]
        text, setting = self._schema_text(name)
        subjects = (source.subject,) if source.subject else subjects_of(source.topics)
        try:
            known = self._versions(name, subjects)
            dependencies: tuple[Dependency, ...] = ()
            version: tuple[str, int] | None = None
            latest = next((known[each][-1] for each in subjects if known.get(each)), None)
            if not text and latest is not None:
                chosen = self._version_to_read_by(name, latest, known)
                text, dependencies = chosen.self_contained, chosen.dependencies
                version = chosen.subject, chosen.version
            if not text:
                raise self._error(
                    "the schema registry has no subject "
                    f"{', '.join(map(repr, subjects)) or repr('')}; give a 'schema_file'",
                    name,
                    "format",
                )
            schema = self._columns_of(name, text, dependencies)
        except ClientError as problem:
            raise self._error(f"the schema registry does not answer: {problem}", name) from None
        except FormatError as problem:
            raise self._error(str(problem), name, setting) from None
        versions = [version for each in known.values() for version in each]
        reading = RegisteredReading(
            source.value_format,
            schema,
            text,
            dependencies,
            versions,
            subjects,
            source.schema_file,
            version,
        )
        reading.say_what_is_left_out(name)
        return reading

    def _version_to_read_by(
        self, name: str, latest: RegisteredSchema, known: Mapping[str, list[RegisteredSchema]]
    ) -> RegisteredSchema:
        """Return the latest version, unless the columns of the last run need theirs; or
        FormatError."""
        last = self._last.get(name)
        if last is None:
            return latest
        source = self._file.settings.sources[name]

        def columns_of(version: RegisteredSchema) -> StructType:
            found = self._columns_of(name, version.self_contained, version.dependencies)
            return self._with_changes(name, found, is_envelope=True)

        versions = [version for each in known.values() for version in each]
        chosen, said = last.version_to_read_by(
            latest,
            versions,
            columns_of,
            accepted=source.may_change,
            keeps=(source.evolution or self._file.settings.general.evolution) == "add",
        )
        if said:
            log.warning("source %s: %s", name, said)
        return chosen

    def _columns_of(self, name: str, text: str, dependencies: tuple[Dependency, ...]) -> StructType:
        """Return the columns of a registered schema."""
        from moldau.spark.formats.avro_types import spark_schema_of
        from moldau.spark.formats.registered_values import registered_columns

        format = self._file.settings.sources[name].value_format
        if format == "avro":
            return spark_schema_of(text)
        return registered_columns(format, text, dependencies)

    def _versions(self, name: str, subjects: tuple[str, ...]) -> dict[str, list[RegisteredSchema]]:
        """Return the versions of the source's subjects as they are now."""
        pattern = self._file.settings.sources[name].pattern
        store = self._store()
        if not subjects and pattern:
            found = (subject.removesuffix(VALUE) for subject in store.subjects())
            subjects = subjects_of(matching(self._file, pattern, found))
        return {subject: store.versions(subject) for subject in subjects}

    def _schema_text(self, name: str) -> tuple[str, str]:
        """Return the schema as the file has it or points to it, and by which setting."""
        source = self._file.settings.sources[name]
        if source.schema_file is None:
            return source.schema or "", "schema"
        # Beside the pipeline file, wherever results go.
        path = Path(self._file.path).resolve().parent / source.schema_file
        try:
            return path.read_text("utf-8"), "schema_file"
        except (OSError, UnicodeDecodeError) as problem:
            reason = problem.strerror if isinstance(problem, OSError) else "it is not UTF-8"
            raise self._error(f"{path} cannot be read: {reason}", name, "schema_file") from None

    def _error(self, message: str, name: str, *setting: str) -> PipelineError:
        return PipelineError(self._file.problem(message, "sources", name, *setting))


def observation(source: str) -> str:
    """Return the name under which Spark counts the records of a source."""
    return f"source {source}"


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
