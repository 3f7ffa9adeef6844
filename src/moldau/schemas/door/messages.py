"""Messages between a broker and the process that checks its batches."""

from __future__ import annotations

import msgspec

from moldau.schemas.schema import Dependency, Schema


class KnownSchema(msgspec.Struct, frozen=True):
    id: int
    schema: Schema
    dependencies: list[Dependency] = []
    guid: str = ""


class Table(msgspec.Struct, frozen=True):
    """The schemas that records of a subject may name."""

    subject: str
    schemas: list[KnownSchema]


class CheckBatch(msgspec.Struct, frozen=True):
    """Asks for the check of a batch; `tables` are those that are new or changed."""

    batch: bytes
    key_subject: str | None = None
    value_subject: str | None = None
    tables: list[Table] = []
    sets_aside: bool = False


class Letter(msgspec.Struct, frozen=True):
    """A record that is set aside, and why."""

    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]
    reason: str


class Checked(msgspec.Struct, frozen=True):
    """The records that are not values of their schemas, by index, and the ids and guids that no
    table has.

    `problem` is what is wrong with the batch as such. Where records are to be set aside, `rest` is
    the batch without them, which spans the same offsets.
    """

    problems: list[tuple[int, str]]
    unknown: list[int | str] = []
    problem: str | None = None
    rest: bytes | None = None
    letters: list[Letter] = []


decode_request = msgspec.msgpack.Decoder(CheckBatch).decode
decode_answer = msgspec.msgpack.Decoder(Checked).decode
