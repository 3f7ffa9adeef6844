"""Avro schemas, parsed."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import fastavro

from moldau.schemas.avro.canonical import canonical
from moldau.schemas.avro.compatibility import reading_problems
from moldau.schemas.avro.defaults import default_problem
from moldau.schemas.incompatibility import Incompatibility
from moldau.schemas.schema import Dependency, InvalidSchema, check_depth


class AvroSchema:
    """A valid schema, with the named types of those that it refers to."""

    def __init__(self, text: str, dependencies: Sequence[Dependency] = ()) -> None:
        self._names: dict[str, Any] = {}
        for dependency in dependencies:
            _parse(_loaded(dependency.schema), self._names)
        self.plain = _loaded(text)
        self._names_of_others = dict(self._names)
        self.parsed = _parse(self.plain, self._names)

    @property
    def names(self) -> dict[str, Any]:
        """Every named type, its own and those of the schemas that it refers to."""
        return self._names

    def canonical(self, *, normalize: bool = False) -> str:
        return canonical(self.plain, normalize=normalize)

    def problems_reading(self, writer: AvroSchema) -> list[Incompatibility]:
        """Return why this schema cannot read what the other one writes."""
        return reading_problems(
            self.plain, writer.plain, self._names_of_others, writer._names_of_others
        )

    def check_defaults(self) -> None:
        """Raise InvalidSchema where a default is no value of its field.

        Only new schemas are asked: old ones may be as they are.
        """
        problem = default_problem(self.parsed, self._names)
        if problem is not None:
            raise InvalidSchema(problem)

    @property
    def full_name(self) -> str:
        return str(self.parsed.get("name", "")) if isinstance(self.parsed, dict) else ""


def self_contained(text: str, dependencies: Sequence[Dependency]) -> str:
    """Return a schema with the types of others written out where they are first named."""
    known: dict[str, Any] = {}
    for dependency in dependencies:
        _define(_loaded(dependency.schema), "", known)
    return json.dumps(_with_types(_loaded(text), "", known, set()))


def _define(schema: Any, namespace: str, known: dict[str, Any]) -> None:
    """Collect the named types of a schema by their full names."""
    if isinstance(schema, list):
        for branch in schema:
            _define(branch, namespace, known)
    elif isinstance(schema, dict):
        if "name" in schema and "type" in schema and isinstance(schema["type"], str):
            full, namespace = _full_name(schema, namespace)
            known.setdefault(full, {**schema, "name": full})
        for inner in (schema.get("items"), schema.get("values"), schema.get("type")):
            if not isinstance(inner, str):
                _define(inner, namespace, known)
        for field in schema.get("fields", ()):
            _define(field["type"], namespace, known)


def _with_types(schema: Any, namespace: str, known: dict[str, Any], seen: set[str]) -> Any:
    if isinstance(schema, str):
        full = f"{namespace}.{schema}" if namespace and "." not in schema else schema
        full = full if full in known else schema
        if full not in known or full in seen:
            return schema
        return _with_types(known[full], "", known, seen)
    if isinstance(schema, list):
        return [_with_types(branch, namespace, known, seen) for branch in schema]
    if not isinstance(schema, dict):
        return schema
    found = dict(schema)
    if "name" in schema and isinstance(schema.get("type"), str):
        full, namespace = _full_name(schema, namespace)
        if full in seen:
            return full
        seen.add(full)
    for key in ("items", "values", "type"):
        if key in found:
            found[key] = _with_types(found[key], namespace, known, seen)
    if "fields" in found:
        found["fields"] = [
            {**field, "type": _with_types(field["type"], namespace, known, seen)}
            for field in found["fields"]
        ]
    return found


def _full_name(schema: Any, around: str) -> tuple[str, str]:
    """Return the full name of a named type, and the namespace inside of it."""
    name = schema["name"]
    if "." in name:
        return name, name.rpartition(".")[0]
    namespace = schema.get("namespace", around)
    return (f"{namespace}.{name}" if namespace else name), namespace


def _loaded(text: str) -> Any:
    check_depth(text)
    # A bare name (`string`) is a schema too, and is not JSON.
    named = text.strip()
    if named.replace(".", "_").isidentifier():
        return named
    try:
        return json.loads(named)
    except ValueError as problem:
        raise InvalidSchema(f"not JSON: {problem}") from None


def _parse(schema: Any, names: dict[str, Any]) -> Any:
    try:
        return fastavro.parse_schema(schema, named_schemas=names)
    except Exception as problem:
        reason = str(problem) or type(problem).__name__
        raise InvalidSchema(f"not an Avro schema: {reason}") from None
