"""Messages between a worker and whoever started it: msgpack, each behind its length."""

from __future__ import annotations

import struct

import msgspec

from moldau.schemas.levels import Level
from moldau.schemas.schema import Dependency, Schema

LENGTH = struct.Struct(">I")


class Known(msgspec.Struct, frozen=True):
    """A version that a subject has, with the schemas that it refers to."""

    version: int
    schema: Schema
    dependencies: list[Dependency] = []


class Numbered(msgspec.Struct, frozen=True):
    """A schema that is kept under a number."""

    number: int
    schema: Schema
    dependencies: list[Dependency] = []


class Keep(msgspec.Struct, frozen=True, tag=True):
    """Tells schemas that later questions name by their numbers, and the numbers that none will."""

    schemas: list[Numbered] = []
    gone: list[int] = []


class Done(msgspec.Struct, frozen=True, tag=True):
    """The answer to what is no question."""


class Forgotten(msgspec.Struct, frozen=True, tag=True):
    """The answer where a number stands for nothing: the process that was told it is gone."""


class Admit(msgspec.Struct, frozen=True, tag=True):
    """Asks for the canonical text of a schema, the version that has the same one, and what is wrong
    with it beside the versions `looked_at`, in their order. One that is found is not compared.

    `kept` are versions, too, each with the number of its schema.
    """

    schema: Schema
    dependencies: list[Dependency] = []
    normalize: bool = False
    versions: list[Known] = []
    level: Level = Level.NONE
    looked_at: list[int] = []
    finds: bool = True
    kept: list[tuple[int, int]] = []


class Admitted(msgspec.Struct, frozen=True, tag=True):
    """The answer; `version` is the one that `problems` are with."""

    text: str
    same: int | None = None
    version: int | None = None
    problems: list[str] = []


class Format(msgspec.Struct, frozen=True, tag=True):
    """Asks for the text of a schema in another form; see `formatted`."""

    schema: Schema
    form: str
    dependencies: list[Dependency] = []


class Formatted(msgspec.Struct, frozen=True, tag=True):
    text: str


class Invalid(msgspec.Struct, frozen=True, tag=True):
    """The answer where the schema is none."""

    reason: str


Request = Admit | Format | Keep
Answer = Admitted | Formatted | Invalid | Done | Forgotten

encode = msgspec.msgpack.Encoder().encode
decode_request = msgspec.msgpack.Decoder(Request).decode
decode_answer = msgspec.msgpack.Decoder(Answer).decode
