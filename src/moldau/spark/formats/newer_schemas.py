"""Schemas that were registered after a query began, and what they have that its own cannot hold.

A record names a schema only after that was registered. So when the end of a batch is known, the
schema store knows every schema that its records can have; and before anything of a batch is read to
be written, the driver can tell whether one of them has fields that would be lost, or types that
are wider or others. That costs one question a batch; the records are looked through only while
there is such a schema.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace

from pyspark.sql.types import StructType

from moldau.peer.cluster import LATEST, Cluster
from moldau.schemas import RegisteredSchema
from moldau.schemas.avro.extra_fields import extra_fields
from moldau.schemas.header import read_name
from moldau.schemas.store import TOPIC
from moldau.spark.formats.column_changes import column_changes
from moldau.spark.formats.errors import FormatError, NewFields
from moldau.spark.formats.schema_names import schema_names
from moldau.spark.formats.spec import ValueSpec
from moldau.spark.names import HEADERS
from moldau.spark.source.java_pattern import java_pattern
from moldau.spark.source.options import SourceOptions
from moldau.spark.source.ranges import OffsetRange

_PLACE = (TOPIC, 0)
_SUFFIX = "-value"


class NewerSchemas:
    """The schemas of one source's subjects that came after its query began."""

    def __init__(self, spec: ValueSpec, options: SourceOptions) -> None:
        self._spec = spec
        self._pattern = options.subscription.pattern
        self._read = replace(options.read, columns=("value", "offset", HEADERS))
        self._seen_up_to = -1
        # By id and by guid, the fields of each that the running schema cannot hold.
        self._richer: dict[int | str, list[str]] = {}

    def check(self, cluster: Cluster, ranges: Iterable[object]) -> None:
        """NewFields if a record of these ranges has fields that the running schema cannot hold."""
        if self._spec.registry:
            # Another's registry: only asking it tells whether it has something new.
            self._richer = self._look()
        elif not cluster.metadata([TOPIC]).topics[TOPIC].exists:
            return
        else:
            end = cluster.list_offsets({_PLACE: LATEST})[_PLACE].offset
            if end != self._seen_up_to:
                self._richer = self._look()
                self._seen_up_to = end
        if self._richer:
            for each in ranges:
                if isinstance(each, OffsetRange):
                    self._look_through(each)

    def _look(self) -> dict[int | str, list[str]]:
        from moldau.spark.formats.avro_values import store_of

        security = self._read.peer.security
        store = store_of(self._spec.bootstrap, self._spec.registry, security)
        found: dict[int | str, list[str]] = {}
        for subject in filter(self._is_ours, store.subjects()):
            for version in store.versions(subject):
                if version.id not in self._spec.known_schemas:
                    found[version.id] = found[version.guid] = self._extra(version)
        return {name: fields for name, fields in found.items() if name and fields}

    def _extra(self, version: RegisteredSchema) -> list[str]:
        spec = self._spec
        found: list[str] = []
        if spec.format == "avro":
            reader = json.loads(spec.reader_schema)
            found = extra_fields(reader, json.loads(version.self_contained))
        running = StructType.fromJson(json.loads(spec.schema))
        if spec.is_debezium:
            # Its columns are those inside of what is registered.
            running = _avro_columns(spec.reader_schema)
        try:
            changes = column_changes(running, _columns(spec.format, version))
        except FormatError:
            # Its records are dead letters, which lose nothing.
            return found
        added = [] if spec.format == "avro" else changes.added
        return [*found, *added, *changes.widened, *changes.changed]

    def _is_ours(self, subject: str) -> bool:
        if self._pattern is None or self._spec.subjects:
            return subject in self._spec.subjects
        topic = subject.removesuffix(_SUFFIX)
        return topic != subject and java_pattern(self._pattern).search(topic) is not None

    def _look_through(self, wanted: OffsetRange) -> None:
        from moldau.spark.source.reading import read_range

        for batch in read_range(wanted, self._read):
            values = batch.column("value").to_pylist()
            for row, (value, header) in enumerate(zip(values, schema_names(batch), strict=True)):
                try:
                    schema = -1 if value is None else read_name(value, header).schema
                except ValueError:
                    # A dead letter, which loses nothing.
                    continue
                fields = self._richer.get(schema)
                if fields:
                    offset = batch.column("offset")[row].as_py()
                    problem = NewFields(row, schema, fields, self._spec.remedy)
                    raise problem.at(wanted.topic, wanted.partition, offset)


def _columns(format: str, version: RegisteredSchema) -> StructType:
    if format == "avro":
        return _avro_columns(version.self_contained)
    from moldau.spark.formats.registered_values import registered_columns

    return registered_columns(format, version.text, version.dependencies)


def _avro_columns(text: str) -> StructType:
    from moldau.spark.formats.avro_types import spark_schema_of

    return spark_schema_of(text)
