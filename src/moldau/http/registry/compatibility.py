"""Compatibility of a schema that is not registered (yet)."""

from __future__ import annotations

from typing import Any

from moldau.http.registry.admission import SchemaRequest, admit, normalizes, of_group
from moldau.http.registry.call import Call, Operation, is_latest
from moldau.http.registry.errors import INVALID_SCHEMA, RegistryError, version_not_found
from moldau.schemas.levels import Level


async def with_version(call: Call) -> Any:
    """Compare with one version, in the directions of the subject's level."""
    subject = call.known_subject()
    given = call.args[1]
    if is_latest(given) and not call.state.has_subject(subject):
        # There is nothing that it could be incompatible with.
        return await _compare(call, subject, None)
    return await _compare(call, subject, call.version_number(given, subject))


async def with_all(call: Call) -> Any:
    """Compare with the versions that the subject's level names."""
    return await _compare(call, call.known_subject(), None)


async def _compare(call: Call, subject: str, number: int | None) -> Any:
    state = call.state
    schema = call.body(SchemaRequest).value()
    versions = of_group(call, subject, schema, state.versions(subject))
    level = state.level(subject)
    looked_at = level.looked_at([version.version for version in versions])
    if number is not None:
        if number not in [version.version for version in versions]:
            raise version_not_found(number)
        looked_at = [] if level is Level.NONE else [number]
    normalize = normalizes(call, subject)
    try:
        found = await admit(
            call, subject, schema, versions, level, looked_at, normalize=normalize, finds=False
        )
    except RegistryError as problem:
        # Who asks for reasons gets them, as from Confluent's registry.
        if problem.code != INVALID_SCHEMA or not call.flag("verbose"):
            raise
        return {"is_compatible": False, "messages": [problem.message]}
    answer: dict[str, Any] = {"is_compatible": not found.problems}
    if call.flag("verbose"):
        old = None if found.version is None else state.version(subject, found.version)
        answer["messages"] = found.messages(level, old)
    return answer


OPERATIONS = (
    Operation("POST", "/compatibility/subjects/*/versions", with_all),
    Operation("POST", "/compatibility/subjects/*/versions/*", with_version),
)
