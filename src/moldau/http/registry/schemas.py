"""Schemas by id and guid."""

from __future__ import annotations

from typing import Any

import msgspec

from moldau.broker.slices import Slices
from moldau.http.registry.call import Call, Operation
from moldau.http.registry.errors import bad_request, invalid_schema, schema_not_found
from moldau.schemas.parsing import FORMS
from moldau.schemas.registry.names import (
    DEFAULT_CONTEXT,
    beside,
    context_of,
    in_context,
    unqualified,
)
from moldau.schemas.registry.state import RegistryState, Version
from moldau.schemas.schema import InvalidSchema, Reference, Schema, SchemaType
from moldau.schemas.worker.messages import Format, Formatted

# Before the beginning of a name: of whatever context.
EVERY_CONTEXT = ":*:"
# How long an answer is put together before others are served.
_SLICE_S = 0.005


async def by_id(call: Call) -> Any:
    schema, context = find_by_id(call)
    found = await described(call, schema, context)
    found["guid"] = call.state.guid(context, int(call.args[0]))
    if call.flag("fetchMaxId"):
        found["maxId"] = call.state.next_id(context) - 1
    return found


async def text_by_id(call: Call) -> Any:
    return msgspec.Raw((await _text(call, *find_by_id(call))).encode())


async def by_guid(call: Call) -> Any:
    found = call.state.by_guid(call.args[0].lower())
    if not found:
        raise schema_not_found(call.args[0])
    context, schema_id = found[0]
    schema = call.state.by_id(schema_id, context)
    assert schema is not None
    return {**await described(call, schema, context), "guid": call.state.guid(context, schema_id)}


async def ids_by_guid(call: Call) -> Any:
    found = call.state.by_guid(call.args[0].lower())
    if not found:
        raise schema_not_found(call.args[0])
    return [{"context": context, "id": schema_id} for context, schema_id in found]


async def types(call: Call) -> Any:
    return [each.value for each in SchemaType]


async def subjects_of_id(call: Call) -> Any:
    return call.page(sorted({version.subject for version in _holders(call)}))


async def versions_of_id(call: Call) -> Any:
    found = sorted((version.subject, version.version) for version in _holders(call))
    return call.page([{"subject": subject, "version": version} for subject, version in found])


async def every_schema(call: Call) -> Any:
    prefix = call.subject_prefix("")
    deleted, latest = call.flag("deleted"), call.flag("latestOnly")
    found: list[Version] = []
    for subject, _ in call.state.subjects():
        if matches_prefix(subject, prefix):
            versions = call.state.versions(subject, deleted=deleted)
            found += versions[-1:] if latest else versions
    slices = Slices()
    described = []
    for version in call.page(found):
        described.append(await version_described(call, version))
        if slices.took_s > _SLICE_S:
            await slices.rest()
    return described


def matches_prefix(subject: str, prefix: str) -> bool:
    """Tell whether a subject is among those of a prefix; `:*:` stands for all contexts."""
    if prefix.startswith(EVERY_CONTEXT):
        return unqualified(subject).startswith(prefix.removeprefix(EVERY_CONTEXT))
    if prefix.startswith(":.:"):
        return context_of(subject) == DEFAULT_CONTEXT and subject.startswith(prefix[3:])
    if not prefix.startswith(":"):
        return context_of(subject) == DEFAULT_CONTEXT and subject.startswith(prefix)
    return subject.startswith(prefix)


def find_by_id(call: Call) -> tuple[Schema, str]:
    """Return the schema of the id in the path, and its context.

    An id alone is one of the default context; with a subject, it is one of a context that has it.
    """
    given, subject = call.args[0], call.text("subject")
    if not is_id(given):
        raise bad_request(f"{given[:100]!r} is not the id of a schema")
    name = None if subject is None else call.subject(subject)
    context = context_of_id(call.state, int(given), call.context, name)
    if context is None:
        raise schema_not_found(given)
    found = call.state.by_id(int(given), context)
    assert found is not None
    return found, context


def is_id(given: str) -> bool:
    """Tell whether the text of a path can be the id of a schema."""
    return given.isascii() and given.isdigit() and len(given) < 11


def context_of_id(
    state: RegistryState, schema_id: int, context: str, subject: str | None
) -> str | None:
    """Return the context in which an id is looked up, with or without a subject; None if nobody
    has it."""
    contexts = [context]
    if subject is not None:
        contexts = [context_of(subject)]
        if contexts == [DEFAULT_CONTEXT]:
            contexts += [
                each
                for each in state.contexts()
                if state.has_subject(in_context(each, subject), deleted=True)
            ]
    return next((each for each in contexts if state.by_id(schema_id, each) is not None), None)


def _holders(call: Call) -> list[Version]:
    _, context = find_by_id(call)
    deleted = call.flag("deleted")
    subject = call.text("subject")
    wanted = None if subject is None else call.subject(subject)
    holders = call.state.holders(context, int(call.args[0]))
    return [
        version
        for version in holders
        if (deleted or not version.deleted) and wanted in (None, version.subject)
    ]


async def described(call: Call, schema: Schema, context: str) -> dict[str, Any]:
    """Return a schema as answers have it: the type is left out where it is Avro."""
    found: dict[str, Any] = {"schema": await _text(call, schema, context)}
    if schema.schema_type is not SchemaType.AVRO:
        found["schemaType"] = schema.schema_type
    if schema.references:
        found["references"] = [_shown(call, each, context) for each in schema.references]
    if schema.metadata is not None:
        found["metadata"] = schema.metadata
    if schema.rule_set is not None:
        found["ruleSet"] = schema.rule_set
    return found


def _shown(call: Call, reference: Reference, context: str) -> Reference:
    """Return a reference as the request wants it: by default as it was given."""
    wanted = call.text("referenceFormat") or call.text("reference_format")
    if wanted is None or wanted.lower() != "qualified":
        return reference
    return msgspec.structs.replace(
        reference, subject=beside(in_context(context, ""), reference.subject)
    )


async def version_described(call: Call, version: Version) -> dict[str, Any]:
    context = context_of(version.subject)
    found = {
        "subject": version.subject,
        "version": version.version,
        "id": version.id,
        "guid": call.state.guid(context, version.id),
        **await described(call, version.schema, context),
    }
    return {**found, "deleted": True} if version.deleted else found


async def _text(call: Call, schema: Schema, context: str) -> str:
    """Return the text in the form that the request wants."""
    form = call.text("format")
    if form is None or form not in FORMS[schema.schema_type]:
        # As Confluent's registry: one that a type does not have is the usual one.
        return schema.schema
    try:
        inside = in_context(context, "")
        dependencies = call.state.dependencies(schema.references, inside)
        found = await call.registry.worker.ask(Format(schema, form, dependencies))
    except (InvalidSchema, LookupError) as problem:
        raise invalid_schema(problem) from None
    assert isinstance(found, Formatted)
    return found.text


OPERATIONS = (
    Operation("GET", "/schemas", every_schema),
    Operation("GET", "/schemas/types", types),
    Operation("GET", "/schemas/ids/*", by_id),
    Operation("GET", "/schemas/ids/*/schema", text_by_id),
    Operation("GET", "/schemas/ids/*/subjects", subjects_of_id),
    Operation("GET", "/schemas/ids/*/versions", versions_of_id),
    Operation("GET", "/schemas/guids/*", by_guid),
    Operation("GET", "/schemas/guids/*/ids", ids_by_guid),
)
