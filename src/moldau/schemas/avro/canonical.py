"""The canonical text of an Avro schema: one for all ways to write the same schema.

It is what Java's `Schema.toString` prints, which is what Confluent's registry keeps: names without
the namespace where they are in that of the type around them, each named type written out where it
comes first, fixed order of the known attributes. Documentation, defaults, aliases and attributes
that Avro does not know stay.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

_PRIMITIVES = frozenset(
    ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
)  # fmt: skip
_KNOWN = {
    "record": ("type", "name", "namespace", "doc", "fields", "aliases"),
    "error": ("type", "name", "namespace", "doc", "fields", "aliases"),
    "enum": ("type", "name", "namespace", "doc", "symbols", "default", "aliases"),
    "fixed": ("type", "name", "namespace", "doc", "size", "aliases"),
    "array": ("type", "items"),
    "map": ("type", "values"),
}
_FIELD = ("name", "type", "doc", "default", "order", "aliases")


def canonical(schema: Any, *, normalize: bool = False) -> str:
    """Return the text of a valid schema; normalized, attributes that Avro lacks are in order."""
    plain = _Writer(normalize).plain(schema, "")
    return json.dumps(plain, separators=(",", ":"), ensure_ascii=False)


class _Writer:
    def __init__(self, normalize: bool) -> None:
        self._normalize = normalize

    def plain(self, schema: Any, namespace: str) -> Any:
        """Return a type as it is written inside of this namespace."""
        if isinstance(schema, str):
            return schema if schema in _PRIMITIVES else _reference(schema, namespace)
        if isinstance(schema, list):
            return [self.plain(branch, namespace) for branch in schema]
        kind = schema["type"]
        if not isinstance(kind, str):
            # {"type": {"type": ...}}: the outer one says nothing.
            return self.plain(kind, namespace)
        if kind not in _KNOWN:
            extra = self._extra(schema, ("type",))
            if kind in _PRIMITIVES:
                return {"type": kind, **extra} if extra else kind
            return _reference(kind, namespace)
        if kind == "array":
            items = self.plain(schema["items"], namespace)
            return {"type": kind, "items": items, **self._extra(schema, _KNOWN[kind])}
        if kind == "map":
            values = self.plain(schema["values"], namespace)
            return {"type": kind, "values": values, **self._extra(schema, _KNOWN[kind])}
        return self._named(kind, schema, namespace)

    def _named(self, kind: str, schema: Mapping[str, Any], around: str) -> Any:
        space, name = _split(schema["name"], schema.get("namespace"), around)
        found: dict[str, Any] = {"type": kind, "name": name}
        if space != around:
            found["namespace"] = space
        if schema.get("doc") is not None:
            found["doc"] = schema["doc"]
        if kind in ("record", "error"):
            found["fields"] = [self._field(field, space) for field in schema.get("fields", ())]
        elif kind == "enum":
            found["symbols"] = list(schema["symbols"])
            if "default" in schema:
                found["default"] = schema["default"]
        else:
            found["size"] = schema["size"]
        found |= self._extra(schema, _KNOWN[kind])
        if schema.get("aliases"):
            found["aliases"] = [_reference(alias, space) for alias in schema["aliases"]]
        return found

    def _field(self, field: Mapping[str, Any], namespace: str) -> dict[str, Any]:
        found = {"name": field["name"], "type": self.plain(field["type"], namespace)}
        if field.get("doc") is not None:
            found["doc"] = field["doc"]
        if "default" in field:
            found["default"] = field["default"]
        if field.get("order", "ascending") != "ascending":
            found["order"] = field["order"]
        if field.get("aliases"):
            found["aliases"] = list(field["aliases"])
        return found | self._extra(field, _FIELD)

    def _extra(self, schema: Mapping[str, Any], known: tuple[str, ...]) -> dict[str, Any]:
        names = [name for name in schema if name not in known]
        return {name: schema[name] for name in (sorted(names) if self._normalize else names)}


def _split(name: str, namespace: str | None, around: str) -> tuple[str, str]:
    if "." in name:
        space, _, unqualified = name.rpartition(".")
        return space, unqualified
    return around if namespace is None else namespace, name


def _reference(name: str, namespace: str) -> str:
    space, _, unqualified = name.rpartition(".")
    return unqualified if space == namespace else name
