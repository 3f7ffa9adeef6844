"""Schemas: subjects, versions, and compatibility tried before registering."""

from __future__ import annotations

from typing import Literal

import msgspec

from moldau.console.call import Call
from moldau.console.endpoint import endpoint
from moldau.console.errors import not_found
from moldau.schemas.errors import SchemaError, SchemaNotFound
from moldau.schemas.registered import RegisteredSchema
from moldau.schemas.schema import Reference, SchemaType

Type = Literal["AVRO", "JSON", "PROTOBUF"]


class SubjectRow(msgspec.Struct):
    subject: str
    type: str
    version: int
    id: int


class SubjectList(msgspec.Struct):
    """Subjects. `operations` are what one may do with some subject or other: with Write, there may
    be new ones; null where the registry does not tell."""

    schemas: list[SubjectRow]
    operations: list[str] | None


class SchemaVersion(msgspec.Struct):
    subject: str
    version: int
    id: int
    type: str
    schema: str
    references: list[Reference]


class SubjectInfo(msgspec.Struct):
    """A subject. `compatibility` and `mode` are what is in force, its own or the registry's.

    `operations` are what one may do with it: Write to register, Delete, AlterConfigs; null where
    the registry does not tell.
    """

    subject: str
    versions: list[int]
    compatibility: str | None
    mode: str | None
    latest: SchemaVersion
    operations: list[str] | None


class SchemaText(msgspec.Struct):
    schema: str
    type: Type = "AVRO"
    references: list[Reference] = []


class Compatibility(msgspec.Struct):
    compatible: bool
    reasons: list[str]


class VersionQuery(msgspec.Struct):
    """`permanent` deletes for good what was deleted before."""

    permanent: bool = False


class Deleted(msgspec.Struct):
    versions: list[int]


@endpoint("GET", "api/schemas")
def list_subjects(call: Call) -> SubjectList:
    """List subjects with their latest versions."""
    rows = []
    for subject in call.registry.subjects():
        try:
            found = call.registry.version(subject)
        except SchemaNotFound:
            continue
        rows.append(SubjectRow(subject, found.type.value, found.version, found.id))
    return SubjectList(rows, call.registry.operations())


@endpoint("GET", "api/schemas/{subject:path}")
def get_subject(call: Call) -> SubjectInfo:
    """Describe a subject: its versions, how it may change, and its latest schema."""
    subject = call.path["subject"]
    numbers = call.registry.version_numbers(subject)
    if not numbers:
        raise not_found(f"subject {subject}")
    level = mode = None
    try:
        level = call.registry.mode(subject).value
        mode = call.registry.write_mode(subject)
    except SchemaError:
        # A registry of another kind may not tell.
        pass
    latest = _version(call.registry.version(subject))
    return SubjectInfo(subject, numbers, level, mode, latest, call.registry.operations(subject))


@endpoint("GET", "api/schemas/{subject:path}/versions/{version}")
def get_version(call: Call) -> SchemaVersion:
    """Return one version of a subject; `latest` is the last."""
    return _version(call.registry.version(call.path["subject"], _number(call)))


@endpoint("POST", "api/schemas/{subject:path}/check", changes=False)
def check_schema(call: Call, asked: SchemaText) -> Compatibility:
    """Say whether a schema could be registered, and why not."""
    problem = call.registry.problem(
        call.path["subject"], asked.schema, SchemaType(asked.type), asked.references
    )
    return Compatibility(problem is None, [] if problem is None else problem.splitlines())


@endpoint("POST", "api/schemas/{subject:path}/versions", status=201)
def register_schema(call: Call, asked: SchemaText) -> SchemaVersion:
    """Register a schema as the next version of a subject."""
    subject = call.path["subject"]
    found = call.registry.register(subject, asked.schema, SchemaType(asked.type), asked.references)
    call.note("registered schema", subject=subject, version=found.version, id=found.id)
    return _version(found)


@endpoint("DELETE", "api/schemas/{subject:path}")
def delete_subject(call: Call, asked: VersionQuery) -> Deleted:
    """Delete a subject with all its versions."""
    subject = call.path["subject"]
    deleted = call.registry.delete(subject, permanent=asked.permanent)
    call.note("deleted subject", subject=subject, permanent=asked.permanent)
    return Deleted(deleted)


@endpoint("DELETE", "api/schemas/{subject:path}/versions/{version}")
def delete_version(call: Call, asked: VersionQuery) -> Deleted:
    """Delete one version of a subject."""
    subject, number = call.path["subject"], _number(call)
    if number is None:
        number = call.registry.version(subject).version
    deleted = call.registry.delete(subject, number, permanent=asked.permanent)
    call.note("deleted schema", subject=subject, version=number, permanent=asked.permanent)
    return Deleted(deleted)


def _number(call: Call) -> int | None:
    text = call.path["version"]
    if text == "latest":
        return None
    if not text.isdecimal() or not 0 < int(text) < 1 << 31:
        raise not_found(f"version {text}")
    return int(text)


def _version(found: RegisteredSchema) -> SchemaVersion:
    return SchemaVersion(
        found.subject,
        found.version,
        found.id,
        found.type.value,
        found.text,
        list(found.references),
    )
