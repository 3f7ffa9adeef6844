"""Keywords of JSON Schema that stand for themselves: types, bounds of numbers and strings."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from moldau.schemas.incompatibility import Incompatibility

ALL_TYPES = frozenset(("null", "boolean", "integer", "number", "string", "object", "array"))
# Keywords that are compared as a whole: those of the new schema must be those of the old one.
HARD = (
    "if", "then", "else", "dependencies", "dependentRequired", "dependentSchemas",
    "propertyNames", "contains", "minContains", "maxContains", "unevaluatedProperties",
    "unevaluatedItems", "$dynamicRef", "$recursiveRef",
)  # fmt: skip


def types_of(schema: Mapping[str, Any]) -> frozenset[str]:
    """Return the types that a schema takes; every number includes the integers."""
    given = schema.get("type")
    if given is None:
        values = [schema["const"]] if "const" in schema else schema.get("enum")
        return ALL_TYPES if values is None else frozenset(type_of(value) for value in values)
    found = frozenset([given] if isinstance(given, str) else given)
    return found | {"integer"} if "number" in found else found


def type_of(value: Any) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int():
            return "integer"
        case float():
            return "integer" if value.is_integer() else "number"
        case str():
            return "string"
        case list():
            return "array"
    return "object"


def at_most(
    new: Mapping[str, Any], old: Mapping[str, Any], keyword: str, path: str, kind: str
) -> list[Incompatibility]:
    """Compare an upper bound, which may only grow."""
    return _bound(new, old, keyword, path, kind, is_upper=True)


def at_least(
    new: Mapping[str, Any], old: Mapping[str, Any], keyword: str, path: str, kind: str
) -> list[Incompatibility]:
    """Compare a lower bound, which may only shrink."""
    return _bound(new, old, keyword, path, kind, is_upper=False)


def _bound(
    new: Mapping[str, Any],
    old: Mapping[str, Any],
    keyword: str,
    path: str,
    kind: str,
    is_upper: bool,
) -> list[Incompatibility]:
    wanted, had = new.get(keyword), old.get(keyword)
    if wanted is None or (not is_upper and wanted == 0):
        return []
    if had is None:
        change = "ADDED"
    elif is_upper and wanted < had:
        change = "DECREASED"
    elif not is_upper and wanted > had:
        change = "INCREASED"
    else:
        return []
    what = f"{keyword} of {path} is {wanted}, and was {'not given' if had is None else had}"
    return [Incompatibility(f"{kind}_{change}", f"{path}/{keyword}", what)]


def string_problems(
    new: Mapping[str, Any], old: Mapping[str, Any], path: str
) -> list[Incompatibility]:
    found = at_most(new, old, "maxLength", path, "MAX_LENGTH")
    found += at_least(new, old, "minLength", path, "MIN_LENGTH")
    if "pattern" in new and new["pattern"] != old.get("pattern"):
        kind = "PATTERN_CHANGED" if "pattern" in old else "PATTERN_ADDED"
        what = f"the pattern of {path} is new or changed"
        found.append(Incompatibility(kind, f"{path}/pattern", what))
    return found


def number_problems(
    new: Mapping[str, Any], old: Mapping[str, Any], path: str
) -> list[Incompatibility]:
    found = []
    for keyword, exclusive, sign, narrowed in (
        ("maximum", "exclusiveMaximum", 1, "DECREASED"),
        ("minimum", "exclusiveMinimum", -1, "INCREASED"),
    ):
        wanted, had = _limit(new, keyword, exclusive, sign), _limit(old, keyword, exclusive, sign)
        if wanted is None or (had is not None and had <= wanted):
            continue
        change = "ADDED" if had is None else narrowed
        what = f"the {keyword} of {path} is narrower than it was"
        found.append(Incompatibility(f"{keyword.upper()}_{change}", f"{path}/{keyword}", what))
    step, was = new.get("multipleOf"), old.get("multipleOf")
    if step is not None and not (was is None and step == 1 and types_of(old) <= {"integer"}):
        if was is None:
            what = f"multipleOf of {path} is {step}, and was not given"
            found.append(Incompatibility("MULTIPLE_OF_ADDED", f"{path}/multipleOf", what))
        elif _exact(was) % _exact(step):
            what = f"multipleOf of {path} is {step}, and was {was}"
            found.append(Incompatibility("MULTIPLE_OF_CHANGED", f"{path}/multipleOf", what))
    return found


def _limit(
    schema: Mapping[str, Any], keyword: str, exclusive: str, sign: int
) -> tuple[Fraction, int] | None:
    """Return a bound so that a narrower one compares as smaller; drafts before 6 had a flag."""
    found = []
    bound, flag = schema.get(keyword), schema.get(exclusive)
    if bound is not None:
        found.append((sign * _exact(bound), 0 if flag is True else 1))
    if flag is not None and not isinstance(flag, bool):
        found.append((sign * _exact(flag), 0))
    return min(found, default=None)


def _exact(number: Any) -> Fraction:
    return Fraction(str(number))


def disjoint(one: Any, other: Any) -> bool:
    """Tell whether no value can be valid by both schemas, as far as that is easy to see."""
    if one is False or other is False:
        return True
    if not isinstance(one, Mapping) or not isinstance(other, Mapping) or "$ref" in (*one, *other):
        return False
    both = types_of(one) & types_of(other)
    if not both:
        return True
    for mine, theirs in ((one, other), (other, one)):
        values = [mine["const"]] if "const" in mine else mine.get("enum")
        allowed = [theirs["const"]] if "const" in theirs else theirs.get("enum")
        if values is not None and allowed is not None:
            return not any(value in allowed for value in values)
    if both != {"object"}:
        return False
    required = {name for side in (one, other) for name in side.get("required", ())}
    for name in required:
        mine = one.get("properties", {}).get(name)
        theirs = other.get("properties", {}).get(name)
        if mine is not None and theirs is not None and disjoint(mine, theirs):
            return True
        for side, schema in ((one, mine), (other, theirs)):
            if (
                schema is None
                and side.get("additionalProperties") is False
                and "patternProperties" not in side
            ):
                return True
    return False
