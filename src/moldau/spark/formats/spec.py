"""The specification of a source's values, in a form that fits into an option of the source."""

from __future__ import annotations

from typing import Literal, get_args

import msgspec

from moldau.schemas.registry_settings import RegistrySettings
from moldau.schemas.schema import Dependency
from moldau.spark.names import ALL, HEADERS, ORDER_FIELDS, WITHOUT_HEADERS

Format = Literal["json", "avro", "json-schema", "protobuf", "string", "raw"]
# A source may have events of changes too, in JSON or Avro.
SourceFormat = Literal["json", "avro", "json-schema", "protobuf", "string", "raw", "debezium"]
# Those whose values begin with a header that names a schema.
Registered = ("avro", "json-schema", "protobuf")
FORMATS: tuple[str, ...] = get_args(Format)

# The ways to treat records without a value, which mark deleted keys in compacted topics.
Tombstones = Literal["dead-letter", "skip", "row"]

# The ways to treat events that say that all rows of a table are gone.
Truncates = Literal["fail", "dead-letter"]

# Metadata of a record, as columns with a leading underscore.
METADATA = tuple(name for name in ALL if name != "value")

# True where a record did not parse; counted, and taken out before anybody sees it.
BAD = "__bad"


class BadRecords(msgspec.Struct, frozen=True):
    """The ways to treat records that do not parse.

    With a topic they are sent there, by the one query of a source that `sends`; the others pass
    over them. Without one, the first of them stops the query.
    """

    topic: str | None = None
    sends: bool = True


class Sharing(msgspec.Struct, frozen=True):
    """The sinks that read a source in one run of a pipeline; `is_ordered` if any of them is."""

    run: str
    sink: str
    sinks: int
    is_ordered: bool


class ValueSpec(msgspec.Struct, frozen=True):
    """A format with all that tasks need to read it; `schema` is Spark's JSON of its columns."""

    format: Format
    schema: str
    metadata: tuple[str, ...] = ()
    bad_records: BadRecords = BadRecords()
    source: str = ""
    bootstrap: str = ""
    # Without one, schemas are read from the brokers. It holds references, for Spark shows options.
    registry: RegistrySettings | None = None
    # How the reader sees the values, and the schemas of the store by id, as known so far.
    reader_schema: str = ""
    reader_dependencies: tuple[Dependency, ...] = ()
    known_schemas: dict[int, str] = {}
    # The ids of those by their guids.
    known_guids: dict[str, int] = {}
    # The subjects of these; none for a pattern. And what to do where a record has more fields.
    subjects: tuple[str, ...] = ()
    remedy: str = ""
    tombstones: Tombstones = "dead-letter"
    # Topics that a pattern must not match: a pipeline would read what it writes.
    left_out: tuple[str, ...] = ()
    # Values are events of Debezium's, with rows of the schema inside.
    is_debezium: bool = False
    truncates: Truncates = "fail"
    # With the column RECORD_ORDER, by which rows of the same key are put in order.
    is_ordered: bool = False
    # With others: what one of their tasks has read and parsed serves all of them.
    sharing: Sharing | None = None

    def to_option(self) -> str:
        return msgspec.json.encode(self).decode()

    @classmethod
    def of_option(cls, text: str) -> ValueSpec:
        return msgspec.json.decode(text, type=cls)

    def resolved(self) -> ValueSpec:
        """Return what tasks work with, where references may lead nowhere."""
        if self.registry is None:
            return self
        return msgspec.structs.replace(self, registry=self.registry.resolved())

    @property
    def common(self) -> ValueSpec:
        """What is parsed: the same for all sinks that share it, with all that any of them needs."""
        if self.sharing is None:
            return self
        bad = msgspec.structs.replace(self.bad_records, sends=True)
        return msgspec.structs.replace(
            self, bad_records=bad, is_ordered=self.sharing.is_ordered, sharing=None
        )

    @property
    def record_columns(self) -> tuple[str, ...]:
        """The columns of the record that have to be read for this, in the source's order."""
        if self.format == "raw":
            return ALL if HEADERS in self.metadata else WITHOUT_HEADERS
        wanted = {"value", "offset", *self.metadata}
        if self.is_ordered:
            wanted.update(ORDER_FIELDS.values())
        if self.format in Registered:
            # One of them may name the schema.
            wanted.add(HEADERS)
        if self.bad_records.topic is not None and self.bad_records.sends:
            wanted |= {"key", HEADERS}
        return tuple(name for name in ALL if name in wanted)
