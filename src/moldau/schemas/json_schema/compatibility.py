"""Compatibility: whether every value that one JSON Schema allows is allowed by another.

The check goes through the keywords of both and is on the safe side: what it cannot prove it calls
incompatible. The one exception is Confluent's: a property that becomes required is fine if it has a
default, since readers fill it in. `format` counts as an annotation, as the specification has it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from moldau.schemas.incompatibility import Incompatibility
from moldau.schemas.json_schema.contents import compare_arrays, compare_objects
from moldau.schemas.json_schema.documents import ANNOTATIONS, Documents
from moldau.schemas.json_schema.keywords import (
    HARD,
    disjoint,
    number_problems,
    string_problems,
    types_of,
)

Problems = list[Incompatibility]
_UNIONS = ("anyOf", "oneOf")


def reading_problems(reader: Documents, writer: Documents) -> Problems:
    """Return why a value that is valid by the writer's schema may not be by the reader's."""
    return Comparison(reader, writer).compare(reader.root, writer.root, "#")


class Comparison:
    """One comparison of two schemas. In all of it, `new` is the reader's and `old` the writer's."""

    def __init__(self, reader: Documents, writer: Documents) -> None:
        self._reader = reader
        self._writer = writer
        # Schemas that contain themselves: a pair that is being compared is taken for fine. What is
        # built on the way is kept, so that no identity is given twice.
        self._known: dict[tuple[int, int], Problems] = {}
        self._kept: list[Any] = []
        self._both: dict[int, Any] = {}
        self._branches: dict[int, tuple[Any, list[Any]]] = {}

    def compare(self, new: Any, old: Any, path: str) -> Problems:
        new, old = self._resolved(new, self._reader), self._resolved(old, self._writer)
        if new is True or old is False or new == {}:
            return []
        pair = (id(new), id(old))
        found = self._known.get(pair)
        if found is None:
            self._known[pair] = []
            self._kept += [new, old]
            found = self._known[pair] = self._compare(new, {} if old is True else old, path)
        return found

    def _resolved(self, schema: Any, documents: Documents) -> Any:
        while isinstance(schema, Mapping) and "$ref" in schema:
            target = documents.target(schema)
            rest = {k: v for k, v in schema.items() if k != "$ref" and k not in ANNOTATIONS}
            if rest:
                self._kept.append(schema)
                return self._both.setdefault(id(schema), {"allOf": [target, rest]})
            schema = target
        return schema

    def _compare(self, new: Any, old: Any, path: str) -> Problems:
        if new is False:
            return [
                Incompatibility("TYPE_NARROWED", path, f"nothing is valid at {path} any longer")
            ]
        if _is_plain(new) and new == old:
            return []
        split = self._split_old(new, old, path)
        if split is not None:
            return split
        found: Problems = []
        rest = {k: v for k, v in new.items() if k not in ANNOTATIONS}
        for index, part in enumerate(rest.pop("allOf", ())):
            found += self.compare(part, old, f"{path}/allOf/{index}")
        for union in _UNIONS:
            if union in rest:
                found += self._compare_with_union(union, rest.pop(union), old, path)
        if "not" in rest:
            found += self._compare_not(rest.pop("not"), old, path)
        if not rest:
            return found
        parts = self._all_of(old)
        if len(parts) > 1:
            # A value of the old schema is valid by each part: one that is narrow enough will do.
            tries = [self._compare_keywords(rest, part, path) for part in parts]
            return found + (min(tries, key=len) if all(tries) else [])
        return found + self._compare_keywords(rest, parts[0], path)

    def _split_old(self, new: Any, old: Any, path: str) -> Problems | None:
        """Compare with each branch of the old schema's union; None if it is none."""
        for union in _UNIONS:
            branches = old.get(union)
            if not branches:
                continue
            if union in new and self._same_branches(new[union], branches):
                base = {k: v for k, v in new.items() if k != union}
                return self.compare(base, {k: v for k, v in old.items() if k != union}, path)
            base, both = self._branches_of(old, union)
            found = [problem for branch in both for problem in self.compare(new, branch, path)]
            if found and not self.compare(new, base, path):
                return []
            return found
        return None

    def _branches_of(self, old: Any, union: str) -> tuple[Any, list[Any]]:
        """Return what is beside a union, and each of its branches together with that."""
        found = self._branches.get(id(old))
        if found is None:
            base = {k: v for k, v in old.items() if k != union}
            both = [_merged(base, self._resolved(each, self._writer)) for each in old[union]]
            found = self._branches[id(old)] = (base, both)
        return found

    def _same_branches(self, new: list[Any], old: list[Any]) -> bool:
        return len(new) == len(old) and all(
            _is_plain(one) and one == other for one, other in zip(new, old, strict=True)
        )

    def _all_of(self, old: Any) -> list[Any]:
        parts = old.get("allOf")
        if not parts:
            return [old]
        base = {k: v for k, v in old.items() if k != "allOf"}
        resolved = [self._resolved(part, self._writer) for part in parts]
        found = [base, *(part for part in resolved if isinstance(part, Mapping))]
        whole: Any = base
        for part in found[1:]:
            whole = _merged(whole, part)
        return [whole, *found] if "allOf" not in whole else found

    def _compare_with_union(self, union: str, branches: list[Any], old: Any, path: str) -> Problems:
        resolved = [self._resolved(branch, self._reader) for branch in branches]
        fitting = [
            index
            for index, branch in enumerate(resolved)
            if not self.compare(branch, old, f"{path}/{union}/{index}")
        ]
        if not fitting:
            what = f"no branch of {path}/{union} accepts everything that was valid there"
            return [Incompatibility("SUM_TYPE_NARROWED", f"{path}/{union}", what)]
        if union == "anyOf":
            return []
        others = [branch for index, branch in enumerate(resolved) if index != fitting[0]]
        if all(disjoint(old, other) for other in others):
            return []
        what = f"a value at {path} may match two branches of oneOf at once"
        return [Incompatibility("SUM_TYPE_NARROWED", f"{path}/oneOf", what)]

    def _compare_not(self, excluded: Any, old: Any, path: str) -> Problems:
        if "not" in old:
            # The old one must exclude all that the new one does: here their roles are exchanged.
            back = Comparison(self._writer, self._reader)
            if not back.compare(old["not"], excluded, f"{path}/not"):
                return []
        if isinstance(excluded, Mapping) and disjoint(old, excluded):
            return []
        what = f"{path}/not excludes values that were valid"
        return [Incompatibility("NOT_TYPE_EXTENDED", f"{path}/not", what)]

    def _compare_keywords(self, new: Any, old: Any, path: str) -> Problems:
        found = _type_problems(new, old, path)
        values = _values(old)
        allowed = _values(new)
        if allowed is not None:
            missing = None if values is None else [v for v in values if not _contains(allowed, v)]
            if missing is None or missing:
                what = f"the enum of {path} does not accept everything that was valid"
                return [*found, Incompatibility("ENUM_ARRAY_NARROWED", f"{path}/enum", what)]
        if found:
            return found
        for keyword in HARD:
            if keyword in new and (not _is_plain(new[keyword]) or new[keyword] != old.get(keyword)):
                what = f"{keyword} of {path} is new or changed"
                found.append(Incompatibility("COMBINED_TYPE_CHANGED", f"{path}/{keyword}", what))
        kinds = types_of(old) & types_of(new)
        if kinds & {"number", "integer"}:
            found += number_problems(new, old, path)
        if "string" in kinds:
            found += string_problems(new, old, path)
        if "object" in kinds:
            found += compare_objects(self.compare, new, old, path)
        if "array" in kinds:
            found += compare_arrays(self.compare, new, old, path)
        return found


def _type_problems(new: Any, old: Any, path: str) -> Problems:
    before, after = types_of(old), types_of(new)
    if "number" in after:
        after = after | {"integer"}
    lost = sorted(before - after)
    if not lost:
        return []
    kind = "TYPE_NARROWED" if before & after else "TYPE_CHANGED"
    what = f"{path} no longer accepts {' or '.join(lost)}"
    return [Incompatibility(kind, path, what)]


def _values(schema: Any) -> list[Any] | None:
    """Return the only values that a schema takes, where it lists them."""
    if "const" in schema:
        return [schema["const"]]
    found = schema.get("enum")
    return found if isinstance(found, list) else None


def _contains(values: list[Any], wanted: Any) -> bool:
    """JSON's equality: true is not 1."""
    return any(
        value == wanted and isinstance(value, bool) == isinstance(wanted, bool) for value in values
    )


def _is_plain(schema: Any) -> bool:
    """Tell whether a schema means the same wherever it stands."""
    if isinstance(schema, Mapping):
        references = ("$ref", "$dynamicRef", "$recursiveRef")
        return not any(key in schema for key in references) and all(map(_is_plain, schema.values()))
    return not isinstance(schema, list) or all(map(_is_plain, schema))


def _merged(base: Any, branch: Any) -> Any:
    """Return both at once where their keywords do not meet, else as they are, in `allOf`."""
    if branch is True or branch == {}:
        return base
    if branch is False:
        return False
    if not {k for k in base if k not in ANNOTATIONS}:
        return branch
    if any(k in branch and branch[k] != v for k, v in base.items() if k not in ANNOTATIONS):
        return {"allOf": [base, branch]}
    related = ("properties", "patternProperties", "additionalProperties")
    if any(k in base for k in related) and any(k in branch for k in related):
        return {"allOf": [base, branch]}
    return {**base, **branch}
