"""Associations: which subject the keys or values of a resource, such as a topic, belong to."""

from __future__ import annotations

from typing import Any

import msgspec

from moldau.http.registry.admission import SchemaRequest
from moldau.http.registry.call import Call, Operation
from moldau.http.registry.errors import (
    association_exists,
    association_frozen,
    association_not_found,
    invalid_association,
    no_active_version,
)
from moldau.http.registry.registry import Write
from moldau.http.registry.subjects import register_schema
from moldau.schemas.registry.records import (
    Association,
    AssociationKey,
    DeleteSubjectKey,
    DeleteSubjectValue,
)

STRONG = "STRONG"
# Stands for every namespace.
_ANY = "-"


class Wanted(msgspec.Struct, rename="camel"):
    """One association of a request; with a schema, that is registered under the subject."""

    subject: str | None = None
    association_type: str | None = None
    lifecycle: str | None = None
    frozen: bool | None = None
    schema: SchemaRequest | None = None
    normalize: bool | None = None


class AssociationsRequest(msgspec.Struct, rename="camel"):
    resource_name: str | None = None
    resource_namespace: str | None = None
    resource_id: str | None = None
    resource_type: str | None = None
    associations: list[Wanted] | None = None


async def create(call: Call) -> Any:
    """Create associations of a resource, none of which it has in another form."""
    request = call.body(AssociationsRequest)
    for wanted in request.associations or ():
        found = _association(call, request, wanted)
        before = call.state.associations.get(_key(found))
        if before not in (None, found):
            raise association_exists(found.association_type, found.resource_name)
    return await _write(call, request)


async def create_or_update(call: Call) -> Any:
    """Create or change associations of the resource in the path, or in the body."""
    request = call.body(AssociationsRequest)
    if call.args:
        request.resource_id = call.args[0]
    return await _write(call, request)


async def _write(call: Call, request: AssociationsRequest) -> Any:
    if not (request.resource_name and request.resource_namespace and request.resource_id):
        raise invalid_association("resourceName, resourceNamespace and resourceId are needed")
    for wanted in request.associations or ():
        if wanted.schema is not None:
            await register_schema(call, _subject(call, request, wanted), wanted.schema)

    async def decide() -> tuple[list[Write], list[Association]]:
        found = [_allowed(call, request, wanted) for wanted in request.associations or ()]
        return [(_key(each), each) for each in found], found

    found = await call.registry.write(decide)
    return {
        "resourceName": request.resource_name,
        "resourceNamespace": request.resource_namespace,
        "resourceId": request.resource_id,
        "resourceType": request.resource_type or "topic",
        "associations": [
            {
                "subject": each.subject,
                "associationType": each.association_type,
                "lifecycle": each.lifecycle,
                "frozen": each.frozen,
            }
            for each in found
        ],
    }


def _subject(call: Call, request: AssociationsRequest, wanted: Wanted) -> str:
    kind = wanted.association_type or "value"
    return call.subject(wanted.subject or f"{request.resource_name}-{kind}")


def _association(call: Call, request: AssociationsRequest, wanted: Wanted) -> Association:
    return Association(
        _subject(call, request, wanted),
        request.resource_name or "",
        request.resource_namespace or "",
        request.resource_id or "",
        request.resource_type or "topic",
        wanted.association_type or "value",
        wanted.lifecycle or "WEAK",
        bool(wanted.frozen),
    )


def _allowed(call: Call, request: AssociationsRequest, wanted: Wanted) -> Association:
    found = _association(call, request, wanted)
    if not call.state.has_subject(found.subject):
        raise no_active_version(found.subject)
    before = call.state.associations.get(_key(found))
    if before is not None and before.frozen and before != found:
        raise association_frozen(before.association_type, before.subject)
    return found


def _key(association: Association) -> AssociationKey:
    return AssociationKey(
        association.resource_id, association.resource_type, association.association_type
    )


async def of_resource(call: Call) -> Any:
    """Return the associations of a resource by its name."""
    namespace, name = call.args
    found = [
        each
        for each in call.state.associations.values()
        if each.resource_name == name
        and namespace in (_ANY, each.resource_namespace)
        and _is_wanted(call, each)
    ]
    return call.page([msgspec.to_builtins(each) for each in found])


async def of_resource_id(call: Call) -> Any:
    found = [
        each
        for each in call.state.associations.values()
        if each.resource_id == call.args[0] and _is_wanted(call, each)
    ]
    return call.page([msgspec.to_builtins(each) for each in found])


async def of_subject(call: Call) -> Any:
    subject = call.subject()
    found = [
        each
        for each in call.state.associations.values()
        if each.subject == subject and _is_wanted(call, each)
    ]
    return call.page([msgspec.to_builtins(each) for each in found])


async def delete(call: Call) -> Any:
    """Delete a resource's associations; on demand also the subjects that live with it."""
    cascades = call.flag("cascadeLifecycle")

    async def decide() -> tuple[list[Write], None]:
        records: list[Write] = []
        for key, each in call.state.associations.items():
            if each.resource_id != call.args[0] or not _is_wanted(call, each):
                continue
            if each.frozen and not cascades:
                raise association_frozen(each.association_type, each.subject)
            records.append((key, None))
            versions = call.state.versions(each.subject)
            if cascades and each.lifecycle == STRONG and versions:
                last = DeleteSubjectValue(each.subject, versions[-1].version)
                records.append((DeleteSubjectKey(each.subject), last))
        if not records:
            raise association_not_found(call.args[0])
        return records, None

    await call.registry.write(decide)
    return {}


def _is_wanted(call: Call, association: Association) -> bool:
    kind, types = call.text("resourceType"), call.texts("associationType")
    return kind in (None, association.resource_type) and (
        not types or association.association_type in types
    )


OPERATIONS = (
    Operation("POST", "/associations", create, is_write=True),
    Operation("PUT", "/associations", create_or_update, is_write=True),
    Operation("PUT", "/associations/resources/*", create_or_update, is_write=True),
    Operation("GET", "/associations/subjects/*", of_subject),
    Operation("GET", "/associations/resources/*", of_resource_id),
    Operation("GET", "/associations/resources/*/*", of_resource),
    Operation("DELETE", "/associations/resources/*", delete, is_write=True),
)
