"""Subjects and their versions."""

from __future__ import annotations

from typing import Any

import msgspec

from moldau.http.registry.admission import (
    SchemaRequest,
    admit,
    normalizes,
    of_group,
    with_defaults,
)
from moldau.http.registry.call import LAST, Call, Operation
from moldau.http.registry.errors import (
    association_of_subject,
    incompatible,
    invalid_schema,
    no_ids_left,
    not_permitted,
    reference_exists,
    schema_not_found,
    subject_not_found,
    subject_not_soft_deleted,
    subject_soft_deleted,
    version_not_found,
    version_not_soft_deleted,
    version_soft_deleted,
)
from moldau.http.registry.registry import Write, record_of
from moldau.http.registry.rules import check_rules
from moldau.http.registry.schemas import EVERY_CONTEXT, matches_prefix, version_described
from moldau.schemas.registry.names import context_of
from moldau.schemas.registry.records import (
    ConfigKey,
    DeleteSubjectKey,
    DeleteSubjectValue,
    ModeKey,
    NoopKey,
    SchemaKey,
)
from moldau.schemas.registry.state import IMPORT, READWRITE, RegistryState, Version
from moldau.schemas.schema import Schema


async def every_subject(call: Call) -> Any:
    prefix = call.subject_prefix(EVERY_CONTEXT)
    only = _only_deleted(call)
    deleted = call.flag("deleted") or only
    found = []
    for name, is_live in call.state.subjects():
        versions = call.state.versions(name, deleted=True)
        wanted = any(each.deleted for each in versions) if only else is_live or deleted
        is_visible = call.rights is None or call.rights.may_see(name)
        if wanted and matches_prefix(name, prefix) and is_visible:
            found.append(name)
    return call.page(found)


def _only_deleted(call: Call) -> bool:
    """Confluent's server knows the one name, and its client in Python sends the other."""
    return call.flag("deletedOnly") or call.flag("deleted_only")


async def every_version(call: Call) -> Any:
    subject = call.known_subject()
    only = _only_deleted(call)
    versions = call.state.versions(subject, deleted=call.flag("deleted") or only)
    if not versions:
        raise subject_not_found(subject)
    if only:
        versions = [version for version in versions if version.deleted]
    return call.page([version.version for version in versions])


async def one_version(call: Call) -> Any:
    deleted = call.flag("deleted")
    return await version_described(
        call, call.version(call.known_subject(), call.args[1], deleted=deleted)
    )


async def version_text(call: Call) -> Any:
    deleted = call.flag("deleted")
    found = call.version(call.known_subject(), call.args[1], deleted=deleted)
    described = await version_described(call, found)
    return msgspec.Raw(described["schema"].encode())


async def referenced_by(call: Call) -> Any:
    found = call.version(call.known_subject(), call.args[1], deleted=True)
    referrers = call.state.referrers(found.subject, found.version)
    deleted = call.flag("deleted")
    return call.page(sorted({each.id for each in referrers if deleted or not each.deleted}))


async def latest_with_metadata(call: Call) -> Any:
    subject = call.known_subject()
    deleted = call.flag("deleted")
    wanted = dict(zip(call.texts("key"), call.texts("value"), strict=False))
    for version in reversed(call.state.versions(subject, deleted=deleted)):
        properties = (version.schema.metadata or {}).get("properties") or {}
        if all(properties.get(key) == value for key, value in wanted.items()):
            return await version_described(call, version)
    if not call.state.has_subject(subject, deleted=deleted):
        raise subject_not_found(subject)
    raise schema_not_found()


async def look_up(call: Call) -> Any:
    """Find the version of a subject that has a schema."""
    subject = call.known_subject()
    deleted = call.flag("deleted")
    versions = call.state.versions(subject, deleted=deleted)
    if not versions:
        raise subject_not_found(subject)
    schema = call.body(SchemaRequest).value()
    normalize = normalizes(call, subject)
    found = await admit(call, subject, schema, versions, normalize=normalize, is_new=False)
    if found.same is None:
        raise schema_not_found()
    return await version_described(call, found.same)


async def register(call: Call) -> Any:
    found = await register_schema(call, call.known_subject(), call.body(SchemaRequest))
    return await version_described(call, found)


async def register_schema(call: Call, subject: str, request: SchemaRequest) -> Version:
    """Register a schema unless it is there; the version that has it."""

    check_rules(request.rule_set)

    async def decide() -> tuple[list[Write], Version]:
        state = call.state
        schema = with_defaults(call, subject, request.value())
        mode = state.mode(subject)
        if mode == IMPORT:
            return await _import(call, subject, request, schema)
        if mode != READWRITE:
            raise not_permitted(f"Subject {subject} is in read-only mode")
        if (request.id or -1) >= 0:
            raise not_permitted(f"Subject {subject} is not in import mode")
        versions = state.versions(subject)
        level = state.level(subject)
        beside = of_group(call, subject, schema, versions)
        looked_at = level.looked_at([version.version for version in beside])
        found = await admit(
            call, subject, schema, versions, level, looked_at, normalize=normalizes(call, subject)
        )
        if found.same is not None:
            return [], found.same
        if found.problems:
            old = state.version(subject, found.version or 0)
            details = ", ".join(found.messages(level, old))
            raise incompatible(
                "Schema being registered is incompatible with an earlier schema for subject "
                f'"{subject}", details: [{details}]'
            )
        number = state.next_version(subject)
        if request.version is not None and request.version > 0 and request.version != number:
            raise invalid_schema(
                f"its version is {request.version}, but the next version is {number}"
            )
        context = context_of(subject)
        schema_id = state.id_of(context, found.schema) or state.next_id(context)
        if schema_id > LAST:
            raise no_ids_left(context)
        version = Version(subject, number, schema_id, found.schema)
        return [record_of(version)], version

    return await call.registry.write(decide)


async def _import(
    call: Call, subject: str, request: SchemaRequest, schema: Schema
) -> tuple[list[Write], Version]:
    """Take id and version as they are given: they come from another registry."""
    if request.id is None or request.id < 0:
        raise not_permitted(f"Subject {subject} is in import mode, and the schema has no id")
    if not 0 < request.id < LAST or (request.version or 0) >= LAST:
        raise not_permitted(f"Ids and versions must be between 1 and {LAST - 1}")
    state = call.state
    found = await admit(call, subject, schema, [], normalize=normalizes(call, subject))
    holder = state.by_id(request.id, context_of(subject))
    if holder is not None and holder != found.schema:
        raise not_permitted(
            f"Overwrite new schema with id {request.id} is not permitted: another schema has it"
        )
    number = request.version if request.version and request.version > 0 else None
    if number is None:
        for each in reversed(state.versions(subject)):
            # It has been sent before, by one who did not hear the answer.
            if each.id == request.id and each.schema == found.schema:
                return [], each
    version = Version(subject, number or state.next_version(subject), request.id, found.schema)
    return [record_of(version)], version


async def delete_subject(call: Call) -> Any:
    subject = call.known_subject()
    permanent = call.flag("permanent")

    async def decide() -> tuple[list[Write], list[int]]:
        state = call.state
        _check_writable(state, subject)
        versions = state.versions(subject, deleted=True)
        if not versions:
            raise subject_not_found(subject)
        live = [version for version in versions if not version.deleted]
        if permanent and live:
            raise subject_not_soft_deleted(subject)
        if not permanent and not live:
            raise subject_soft_deleted(subject)
        if any(each.subject == subject for each in state.associations.values()):
            raise association_of_subject(subject)
        for version in versions if permanent else live:
            # Versions that refer to each other go together.
            _check_unreferenced(state, version, permanent=permanent, but=subject)
        numbers = [version.version for version in (versions if permanent else live)]
        if not permanent:
            last = DeleteSubjectValue(subject, versions[-1].version)
            return [(DeleteSubjectKey(subject), last)], numbers
        records: list[Write] = [(NoopKey(), state.highest_ids())]
        records += [(SchemaKey(subject, number), None) for number in numbers]
        return [*records, *_rest_of_subject(state, subject)], numbers

    return await call.registry.write(decide)


async def delete_version(call: Call) -> Any:
    subject = call.known_subject()
    permanent = call.flag("permanent")

    async def decide() -> tuple[list[Write], int]:
        state = call.state
        _check_writable(state, subject)
        if not state.has_subject(subject, deleted=True):
            raise subject_not_found(subject)
        number = call.version_number(call.args[1], subject, deleted=permanent)
        version = state.version(subject, number)
        if version is None:
            raise version_not_found(number)
        if permanent and not version.deleted:
            raise version_not_soft_deleted(subject, number)
        if not permanent and version.deleted:
            raise version_soft_deleted(subject, number)
        _check_unreferenced(state, version, permanent=permanent)
        if permanent:
            records: list[Write] = [(NoopKey(), state.highest_ids())]
            records.append((SchemaKey(subject, number), None))
            is_last = len(state.versions(subject, deleted=True)) == 1
            return records + (_rest_of_subject(state, subject) if is_last else []), number
        return [record_of(msgspec.structs.replace(version, deleted=True))], number

    return await call.registry.write(decide)


def _check_writable(state: RegistryState, subject: str) -> None:
    if state.mode(subject) not in (READWRITE, IMPORT):
        raise not_permitted(f"Subject {subject} is in read-only mode")


def _rest_of_subject(state: RegistryState, subject: str) -> list[Write]:
    """Return what goes with the last version of a subject: what is set for it."""
    records: list[Write] = [(DeleteSubjectKey(subject), None)]
    records += [(ConfigKey(subject), None)] if subject in state.configs else []
    records += [(ModeKey(subject), None)] if subject in state.modes else []
    return records


def _check_unreferenced(
    state: RegistryState, version: Version, *, permanent: bool, but: str | None = None
) -> None:
    """Refuse to delete what others refer to, for ever also what deleted ones do: messages that
    were written with these can still be read."""
    for each in state.referrers(version.subject, version.version):
        if each.subject != but and (permanent or not each.deleted):
            raise reference_exists(version.subject, version.version)


OPERATIONS = (
    Operation("GET", "/subjects", every_subject),
    Operation("POST", "/subjects/*", look_up),
    Operation("DELETE", "/subjects/*", delete_subject, is_write=True),
    Operation("GET", "/subjects/*/versions", every_version),
    Operation("POST", "/subjects/*/versions", register, is_write=True),
    Operation("GET", "/subjects/*/versions/*", one_version),
    Operation("DELETE", "/subjects/*/versions/*", delete_version, is_write=True),
    Operation("GET", "/subjects/*/versions/*/schema", version_text),
    Operation("GET", "/subjects/*/versions/*/referencedby", referenced_by),
    Operation("GET", "/subjects/*/metadata", latest_with_metadata),
)
