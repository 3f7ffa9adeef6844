"""Schemas that were registered after a query began, and what they have that its own lacks.

A record names a schema only after that was registered. So when the end of a batch is known, the
schema store knows every schema that its records can have; and before anything of a batch is read to
be written, the driver can tell whether one of them has fields that would be lost. That costs one
question a batch; the records are looked through only while there is such a schema.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace

from moldau.peer.cluster import LATEST, Cluster
from moldau.schemas.extra_fields import extra_fields
from moldau.schemas.header import HEADER_SIZE, unpack_header
from moldau.schemas.store import TOPIC
from moldau.spark.formats.errors import NewFields
from moldau.spark.formats.spec import ValueSpec
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
        self._read = replace(options.read, columns=("value", "offset"))
        self._seen_up_to = -1
        # By id, the fields of those that have some which the running schema lacks.
        self._richer: dict[int, list[str]] = {}

    def check(self, cluster: Cluster, ranges: Iterable[object]) -> None:
        """NewFields if a record of these ranges has fields that the running schema lacks."""
        if not cluster.metadata([TOPIC]).topics[TOPIC].exists:
            return
        end = cluster.list_offsets({_PLACE: LATEST})[_PLACE].offset
        if end != self._seen_up_to:
            self._richer = self._look()
            self._seen_up_to = end
        if self._richer:
            for each in ranges:
                if isinstance(each, OffsetRange):
                    self._look_through(each)

    def _look(self) -> dict[int, list[str]]:
        from moldau.spark.formats.avro_values import store_of

        store = store_of(self._spec.bootstrap)
        reader = json.loads(self._spec.reader_schema)
        found = {
            version.id: extra_fields(reader, json.loads(version.text))
            for subject in store.subjects()
            if self._is_ours(subject)
            for version in store.versions(subject)
            if version.id not in self._spec.known_schemas
        }
        return {schema_id: fields for schema_id, fields in found.items() if fields}

    def _is_ours(self, subject: str) -> bool:
        if self._pattern is None or self._spec.subjects:
            return subject in self._spec.subjects
        topic = subject.removesuffix(_SUFFIX)
        return topic != subject and java_pattern(self._pattern).search(topic) is not None

    def _look_through(self, wanted: OffsetRange) -> None:
        from moldau.spark.source.reading import read_range

        for batch in read_range(wanted, self._read):
            for row, value in enumerate(batch.column("value").to_pylist()):
                if value is None or len(value) < HEADER_SIZE or value[0]:
                    continue
                fields = self._richer.get(schema_id := unpack_header(value))
                if fields:
                    offset = batch.column("offset")[row].as_py()
                    problem = NewFields(row, schema_id, fields, self._spec.remedy)
                    raise problem.at(wanted.topic, wanted.partition, offset)
