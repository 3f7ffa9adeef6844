"""Debezium's events: changes of a table's rows, to columns of the row and of the change.

An event is an envelope: the row `before` and `after`, what kind of change it is (`op`), and where
and when the database made it (`source`). In JSON it may be inside of another one, with its schema.

    r, c, u   read by a snapshot, created, updated: the row after
    d         deleted: the row before, which may lack all but its key
    t         all rows are gone: only people know what a table should do then
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from uuid import UUID

import msgspec
import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    BooleanType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from moldau.spark.formats.arrow_columns import Reasons, to_column
from moldau.spark.formats.avro_values import Names
from moldau.spark.formats.errors import FormatError, Truncated
from moldau.spark.formats.json_values import NOT_JSON, json_type
from moldau.spark.formats.spec import Truncates
from moldau.spark.names import CHANGED, DELETED, POSITION

Event = Mapping[str, Any]
# Gives the events of values, None where there is none, and why some are bad.
Read = Callable[[Sequence[bytes | None], Names, Reasons], Sequence[Event | None]]

_FILE_NUMBER = re.compile(r"(\d+)$")


def change_columns(row: StructType) -> StructType:
    """Return the columns of a source: those of the row, and those of the change."""
    taken = {DELETED, CHANGED, POSITION} & set(row.fieldNames())
    if taken:
        raise FormatError(
            f"{min(taken)} is a column of the change itself; the row must not have a column of "
            "that name"
        )
    return StructType(
        [
            *row.fields,
            StructField(DELETED, BooleanType()),
            StructField(CHANGED, TimestampType()),
            StructField(POSITION, StringType()),
        ]
    )


def row_of_envelope(envelope: StructType) -> StructType:
    """Return the columns of the rows in envelopes of this schema; FormatError if it is none."""
    known = {field.name: field.dataType for field in envelope.fields}
    row = known.get("after")
    if not isinstance(row, StructType) or "op" not in known:
        raise FormatError("the schema is not one of a Debezium envelope: it has no after and op")
    return row


class DebeziumDecoder:
    """Reads events as rows with the columns of a change."""

    def __init__(self, schema: StructType, read: Read, truncates: Truncates = "fail") -> None:
        self._row = [
            field for field in schema.fields if field.name not in (DELETED, CHANGED, POSITION)
        ]
        self._kinds = {field.name: field.type for field in to_arrow_schema(schema, timezone="UTC")}
        self._read = read
        self._truncates = truncates

    def decode(
        self, values: Sequence[bytes | None], names: Names = None
    ) -> tuple[list[pa.Array], Reasons]:
        """Return the columns, with nulls in the rows that are bad, and why those are.

        A record without a value is a row of nulls.
        """
        bad: Reasons = {}
        events = self._read(values, names, bad)
        rows: list[Event | None] = []
        for number, event in enumerate(events):
            try:
                rows.append(None if event is None else self._changed(number, event))
            except ValueError as problem:
                bad[number] = str(problem)
                rows.append(None)
        found = [
            None if row is None or event is None else event
            for row, event in zip(rows, events, strict=True)
        ]
        columns = [
            to_column(
                field.name,
                [None if row is None else _plain(row.get(field.name)) for row in rows],
                self._kinds[field.name],
                bad,
            )
            for field in self._row
        ]
        times = [None if event is None else changed_us(event) for event in found]
        columns.append(pa.array([event and event["op"] == "d" for event in found], pa.bool_()))
        columns.append(pa.array(times, pa.int64()).cast(self._kinds[CHANGED]))
        columns.append(pa.array([event and position(event) for event in found], pa.string()))
        return columns, bad

    def _changed(self, number: int, event: Event) -> Event | None:
        op = event.get("op")
        if op == "t":
            if self._truncates == "fail":
                raise Truncated(number)
            raise ValueError("the table was truncated: all rows up to this event were deleted")
        if op not in ("r", "c", "u", "d"):
            raise ValueError(
                "not a Debezium event: it has no op"
                if op is None
                else f"the op {op!r} does not change a row"
            )
        row: Event | None = event.get("before" if op == "d" else "after")
        if row is None:
            raise ValueError(
                "a delete without the deleted row: configure the database to log the keys of "
                "deleted rows (REPLICA IDENTITY)"
                if op == "d"
                else f"the op {op!r} comes without the new row"
            )
        if changed_us(event) is None:
            raise ValueError("the event has no time of the change: source.ts_ms is missing")
        for field in self._row:
            if op != "d" and not field.nullable and row.get(field.name) is None:
                raise ValueError(f"{field.name} is missing")
        return row


def _plain(value: Any) -> Any:
    return str(value) if isinstance(value, UUID) else value


def changed_us(event: Event) -> int | None:
    """Return when the database made the change, in microseconds."""
    source = event.get("source") or {}
    precise = source.get("ts_us")
    if isinstance(precise, int):
        return precise
    for coarse in (source.get("ts_ms"), event.get("ts_ms")):
        if isinstance(coarse, int):
            return coarse * 1000
    return None


def position(event: Event) -> str | None:
    """Return where the change is in the database's log, as text that sorts in that order.

    None for databases whose position is not known: then the order of the records has to do.
    """
    source = event.get("source") or {}
    place = _place(source)
    transaction = event.get("transaction") or {}
    number = transaction.get("total_order")
    return f"{place}:{number:010}" if place is not None and isinstance(number, int) else place


def _place(source: Event) -> str | None:
    lsn, file, scn = source.get("lsn"), source.get("file"), source.get("scn")
    if isinstance(lsn, int):
        # PostgreSQL.
        return f"{lsn:020}"
    if source.get("commit_lsn") is not None:
        # SQL Server and Db2: digits of a fixed width.
        serial = source.get("event_serial_no") or 0
        return f"{source['commit_lsn']}:{source.get('change_lsn') or ''}:{serial:010}"
    if file and isinstance(source.get("pos"), int):
        # MySQL and MariaDB, whose log is in files that are counted.
        found = _FILE_NUMBER.search(file)
        number = int(found[1]) if found else 0
        return f"{number:010}:{source['pos']:020}:{source.get('row') or 0:010}"
    if scn is not None and str(scn).isdecimal():
        # Oracle.
        committed = source.get("commit_scn")
        last = int(committed or scn) if str(committed or scn).isdecimal() else int(scn)
        return f"{last:020}:{int(scn):020}:{source.get('ssn') or 0:010}"
    if isinstance(source.get("ord"), int) and isinstance(source.get("ts_ms"), int):
        # MongoDB.
        return f"{source['ts_ms']:015}:{source['ord']:010}"
    return None


def events_of_records(decoder: Any) -> Read:
    """Return a function that reads events in Avro, by a decoder of envelopes."""

    def read(values: Sequence[bytes | None], names: Names, bad: Reasons) -> Sequence[Event | None]:
        found = decoder.records(values, names, bad)
        return [record or None for record in found]

    return read


def json_events(row: StructType) -> Read:
    """Return a function that reads events in JSON, with a schema around them or not."""
    row = StructType([each for each in row.fields if each.name not in (DELETED, CHANGED, POSITION)])
    # What a delete knows of its row may be the key alone.
    nullable = StructType([StructField(each.name, each.dataType) for each in row.fields])
    envelope = {
        "before": (json_type(nullable) | None, None),
        "after": (json_type(row) | None, None),
        "source": (dict[str, Any] | None, None),
        "op": (str | None, None),
        "ts_ms": (int | None, None),
        "transaction": (dict[str, Any] | None, None),
    }
    fields: list[Any] = [(name, *kind) for name, kind in envelope.items()]
    inner = msgspec.defstruct("Envelope", fields)
    outer = msgspec.defstruct("Message", [*fields, ("payload", inner | None, None)])
    decode = msgspec.json.Decoder(outer).decode

    def one(number: int, value: bytes | None, bad: Reasons) -> Event | None:
        if value is None:
            return None
        try:
            message: Any = decode(value)
        except NOT_JSON as problem:
            text = str(problem) or type(problem).__name__
            is_json = isinstance(problem, msgspec.ValidationError)
            bad[number] = text if is_json else f"not JSON: {text}"
            return None
        return msgspec.structs.asdict(message if message.payload is None else message.payload)

    def read(values: Sequence[bytes | None], _: Names, bad: Reasons) -> Sequence[Event | None]:
        return [one(number, value, bad) for number, value in enumerate(values)]

    return read
