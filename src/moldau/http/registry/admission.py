"""Admission: what a new schema is, and whether it may follow the versions that a subject has."""

from __future__ import annotations

from typing import Any

import msgspec

from moldau.http.registry.call import Call
from moldau.http.registry.errors import hidden_reference, invalid_schema
from moldau.schemas.levels import Level
from moldau.schemas.registry.names import beside, plain_name
from moldau.schemas.registry.state import MissingReference, RegistryState, Version
from moldau.schemas.schema import (
    InvalidSchema,
    Reference,
    Schema,
    SchemaType,
    without_empty,
)
from moldau.schemas.worker.messages import Admit, Admitted, Known


class SchemaRequest(msgspec.Struct, rename="camel"):
    """The body of a request that has a schema."""

    schema: str | None = None
    schema_type: str | None = None
    references: list[Reference] | None = None
    metadata: dict[str, Any] | None = None
    rule_set: dict[str, Any] | None = None
    id: int | None = None
    version: int | None = None

    def value(self) -> Schema:
        if self.schema is None:
            raise invalid_schema("the body contains no schema")
        try:
            kind = SchemaType(self.schema_type or "AVRO")
        except ValueError:
            raise invalid_schema(f"there is no schema type {self.schema_type!r}") from None
        references = tuple(
            Reference(each.name, plain_name(each.subject), each.version)
            for each in self.references or ()
        )
        return Schema(self.schema, kind, references, plain(self.metadata), plain(self.rule_set))


class Candidate(msgspec.Struct, frozen=True):
    """A schema whose text is canonical, and what its subject has to say about it."""

    schema: Schema
    same: Version | None
    version: int | None
    problems: list[str]

    def messages(self, level: Level, old: Version | None) -> list[str]:
        """Say what is wrong, as Confluent's registry does."""
        found = list(self.problems)
        if found and old is not None:
            found.append(f"{{oldSchemaVersion: {old.version}}}")
            found.append(f"{{oldSchema: '{old.schema.schema}'}}")
            found.append(f"{{compatibility: '{level}'}}")
        return found


async def admit(
    call: Call,
    subject: str,
    schema: Schema,
    versions: list[Version],
    level: Level = Level.NONE,
    looked_at: list[int] | None = None,
    *,
    normalize: bool = False,
    finds: bool = True,
    is_new: bool = True,
) -> Candidate:
    """Look at a schema beside versions of its subject; RegistryError if it is none.

    A new one cannot refer to what is deleted."""
    for each in schema.references:
        # What a reference leads to shows in the answers about compatibility.
        if call.rights is not None and not call.rights.may_see(each.subject):
            raise hidden_reference(each.subject)
    try:
        schema = _with_numbers(call.state, subject, schema, is_new)
        dependencies = call.state.dependencies(schema.references, subject)
    except MissingReference as problem:
        raise invalid_schema(problem) from None
    known = [_known(call, version) for version in versions]
    if looked_at is None:
        looked_at = level.looked_at([version.version for version in versions])
    try:
        found = await call.registry.worker.ask(
            Admit(schema, dependencies, normalize, known, level, looked_at, finds)
        )
    except InvalidSchema as problem:
        raise invalid_schema(problem) from None
    assert isinstance(found, Admitted)
    by_number = {version.version: version for version in versions}
    same = None if found.same is None else by_number[found.same]
    canonical = msgspec.structs.replace(schema, schema=found.text)
    return Candidate(canonical, same, found.version, found.problems)


def _with_numbers(state: RegistryState, subject: str, schema: Schema, is_new: bool) -> Schema:
    """Return a schema whose references have the numbers of their versions, for the latest -1."""
    latest: dict[str, int] = {}
    found = []
    for each in schema.references:
        meant = beside(subject, each.subject)
        number = each.version
        if number == -1:
            if meant not in latest:
                latest[meant] = max((one.version for one in state.versions(meant)), default=-1)
            number = latest[meant]
        version = state.version(meant, number)
        if version is None or (version.deleted and is_new):
            raise MissingReference(
                f"the reference {each.name!r} names version {each.version} of {meant!r}, which "
                "does not exist"
            )
        found.append(msgspec.structs.replace(each, version=number))
    return msgspec.structs.replace(schema, references=tuple(found))


def _known(call: Call, version: Version) -> Known:
    try:
        dependencies = call.state.dependencies(version.schema.references, version.subject)
    except MissingReference:
        # One that refers to nothing cannot be parsed, which the worker says in its own words.
        dependencies = []
    return Known(version.version, version.schema, dependencies)


def normalizes(call: Call, subject: str) -> bool:
    return call.flag("normalize") or bool(call.state.config(subject).normalize)


def of_group(call: Call, subject: str, schema: Schema, versions: list[Version]) -> list[Version]:
    """Leave out versions of another compatibility group, where the subject has groups."""
    group = call.state.config(subject).compatibility_group
    if not group:
        return versions
    wanted = _property(schema, group)
    return [version for version in versions if _property(version.schema, group) == wanted]


def with_defaults(call: Call, subject: str, schema: Schema) -> Schema:
    """Return a new schema with the metadata and rules that the subject's config adds to it."""
    config = call.state.config(subject)
    metadata = _joined(config.default_metadata, schema.metadata, config.override_metadata)
    rules = _joined(config.default_rule_set, schema.rule_set, config.override_rule_set)
    return msgspec.structs.replace(schema, metadata=plain(metadata), rule_set=plain(rules))


def plain(part: dict[str, Any] | None) -> dict[str, Any] | None:
    """Return metadata, or rules, as they are kept."""
    try:
        return without_empty(part)
    except InvalidSchema as problem:
        raise invalid_schema(problem) from None


def _joined(*parts: dict[str, Any] | None) -> dict[str, Any] | None:
    """Put objects together, the later over the earlier; rules of a list go by their names."""
    found: dict[str, Any] | None = None
    for part in parts:
        for key, value in (part or {}).items():
            found = found or {}
            before = found.get(key)
            if isinstance(before, dict) and isinstance(value, dict):
                found[key] = {**before, **value}
            elif isinstance(before, list) and isinstance(value, list):
                names = {each.get("name") for each in value if isinstance(each, dict)}
                kept = [each for each in before if each.get("name") not in names]
                found[key] = kept + value
            elif value is not None:
                found[key] = value
    return found


def _property(schema: Schema, name: str) -> Any:
    return ((schema.metadata or {}).get("properties") or {}).get(name)
