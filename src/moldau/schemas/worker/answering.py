"""Answers of a worker."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from moldau.schemas.parsing import formatted, parse
from moldau.schemas.schema import Dependency, InvalidSchema, Schema, without_empty
from moldau.schemas.worker.messages import (
    Admit,
    Admitted,
    Answer,
    Done,
    Forgotten,
    Format,
    Formatted,
    Invalid,
    Keep,
    Known,
    Numbered,
    Request,
)

_LONGEST_REASON = 1_000
_parsed_before = lru_cache(maxsize=1_000)(parse)
_kept: dict[int, Numbered] = {}


def answer(request: Request) -> Answer:
    """Return the answer to a request, whatever it does to the parsers."""
    try:
        if isinstance(request, Format):
            return Formatted(formatted(request.schema, request.dependencies, request.form))
        if isinstance(request, Keep):
            return _keep(request)
        if any(number not in _kept for _, number in request.kept):
            return Forgotten()
        return _admit(request)
    except InvalidSchema as problem:
        return Invalid(_cut(str(problem)))
    except (RecursionError, MemoryError) as problem:
        return Invalid(f"it is too large to parse ({type(problem).__name__})")
    except Exception as problem:
        # A schema that a library stumbles over is as bad as one that it refuses.
        return Invalid(_cut(f"cannot parse it: {type(problem).__name__}: {problem}"))


def _keep(request: Keep) -> Done:
    for number in request.gone:
        _kept.pop(number, None)
    _kept.update({each.number: each for each in request.schemas})
    return Done()


def _versions(request: Admit) -> list[Known]:
    kept = [(version, _kept[number]) for version, number in request.kept]
    return request.versions + [
        Known(version, each.schema, each.dependencies) for version, each in kept
    ]


def _cut(reason: str) -> str:
    """Parsers quote what they stumble over, however long it is."""
    return reason if len(reason) <= _LONGEST_REASON else f"{reason[:_LONGEST_REASON]}..."


def _parse(schema: Schema, dependencies: list[Dependency]) -> Any:
    plain = Schema(schema.schema, schema.schema_type)
    return _parsed_before(plain, tuple(dependencies))


def _admit(request: Admit) -> Admitted:
    schema = request.schema
    if not schema.schema.strip():
        raise InvalidSchema("it is empty")
    plain = Schema(schema.schema, schema.schema_type)
    new = parse(plain, request.dependencies, is_new=True)
    text = new.canonical(normalize=request.normalize)
    versions = _versions(request)
    by_number = {known.version: known for known in versions}
    # The latest of several that are the same.
    for known in reversed(versions if request.finds else []):
        if _is_same(request, text, known):
            return Admitted(text, known.version)
    if request.level.value == "NONE":
        return Admitted(text)
    for number in request.looked_at:
        known = by_number[number]
        if known.schema.schema_type is not schema.schema_type:
            what = f"its type is {schema.schema_type}, and was {known.schema.schema_type}"
            return Admitted(
                text, None, number, [f"{{errorType:'TYPE_CHANGED', description:'{what}'}}"]
            )
        try:
            old = _parse(known.schema, known.dependencies)
        except InvalidSchema as problem:
            what = f"cannot compare it with version {number}: {problem}"
            return Admitted(text, None, number, [what])
        found = request.level.problems(new, [(number, old)])
        if found is not None:
            return Admitted(text, None, number, [str(each) for each in found[1]])
    return Admitted(text)


def _is_same(request: Admit, text: str, known: Known) -> bool:
    schema, other = request.schema, known.schema
    if schema.schema_type is not other.schema_type or schema.references != other.references:
        return False
    for mine, theirs in ((schema.metadata, other.metadata), (schema.rule_set, other.rule_set)):
        if mine is not None and mine != without_empty(theirs):
            return False
    if text == other.schema:
        return True
    try:
        parsed = _parse(other, known.dependencies)
    except InvalidSchema:
        return False
    return bool(parsed.canonical(normalize=request.normalize) == text)
