"""Contents of objects and arrays: properties and items, in open and closed content models."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from moldau.schemas.incompatibility import Incompatibility
from moldau.schemas.json_schema.keywords import at_least, at_most

Compare = Callable[[Any, Any, str], list[Incompatibility]]


def compare_objects(
    compare: Compare, new: Mapping[str, Any], old: Mapping[str, Any], path: str
) -> list[Incompatibility]:
    found = at_most(new, old, "maxProperties", path, "MAX_PROPERTIES")
    found += at_least(new, old, "minProperties", path, "MIN_PROPERTIES")
    found += _required_problems(new, old, path)
    is_closed = new.get("additionalProperties") is False
    was_open = old.get("additionalProperties", True) is not False
    known, listed = new.get("properties", {}), old.get("properties", {})
    for name in {**listed, **known}:
        place = f"{path}/properties/{name}"
        for schema in _schemas_for(new, name, if_unsure=True):
            tries = [
                compare(schema, before, place)
                for before in _schemas_for(old, name, if_unsure=False)
            ]
            if all(tries):
                found += _named(tries[0], name, place, name in known, name in listed, is_closed)
    found += _pattern_problems(compare, new, old, path)
    if is_closed and was_open and old.get("additionalProperties", True) is True:
        what = f"additionalProperties of {path} is false now"
        place = f"{path}/additionalProperties"
        found.append(Incompatibility("ADDITIONAL_PROPERTIES_REMOVED", place, what))
    else:
        found += [
            Incompatibility("ADDITIONAL_PROPERTIES_NARROWED", each.path, each.message)
            for each in compare(
                new.get("additionalProperties", True),
                old.get("additionalProperties", True),
                f"{path}/additionalProperties",
            )
        ]
    return found


def _named(
    problems: list[Incompatibility],
    name: str,
    place: str,
    is_known: bool,
    was_listed: bool,
    is_closed: bool,
) -> list[Incompatibility]:
    """Say what happened to the property, where it was added or removed as a whole."""
    if is_known and not was_listed:
        what = f"the property {name} is new, but objects could already have it with any type"
        return [Incompatibility("PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL", place, what)]
    if was_listed and not is_known and is_closed:
        what = f"the property {name} was removed, and additionalProperties is false"
        return [Incompatibility("PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL", place, what)]
    if was_listed and not is_known:
        what = f"the property {name} was removed, and additionalProperties accepts less"
        kind = "PROPERTY_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL"
        return [Incompatibility(kind, place, what)]
    return problems


def _schemas_for(schema: Mapping[str, Any], name: str, *, if_unsure: bool) -> list[Any]:
    """Return all that an object's schema says of the property of this name.

    Patterns that only a backtracking matcher understands are not tried: whether they match is not
    known then, and `if_unsure` says whether such a one counts.
    """
    found = []
    is_unsure = False
    if name in schema.get("properties", {}):
        found.append(schema["properties"][name])
    for pattern, inner in schema.get("patternProperties", {}).items():
        is_match = _matches(pattern, name)
        is_unsure = is_unsure or is_match is None
        if is_match or (is_match is None and if_unsure):
            found.append(inner)
    if not found and is_unsure:
        return [True]
    return found or [schema.get("additionalProperties", True)]


def _matches(pattern: str, name: str) -> bool | None:
    import re2

    try:
        return re2.search(pattern, name) is not None
    except re2.error:
        return None


def _required_problems(
    new: Mapping[str, Any], old: Mapping[str, Any], path: str
) -> list[Incompatibility]:
    found = []
    properties = new.get("properties", {})
    for name in new.get("required", ()):
        schema = properties.get(name)
        has_default = isinstance(schema, Mapping) and "default" in schema
        if name not in old.get("required", ()) and not has_default:
            what = f"the property {name} is required now, and has no default"
            place = f"{path}/required/{name}"
            found.append(Incompatibility("REQUIRED_ATTRIBUTE_ADDED", place, what))
    return found


def _pattern_problems(
    compare: Compare, new: Mapping[str, Any], old: Mapping[str, Any], path: str
) -> list[Incompatibility]:
    found = []
    patterns, before = new.get("patternProperties", {}), old.get("patternProperties", {})
    others = [old.get("additionalProperties", True)]
    for pattern, schema in patterns.items():
        place = f"{path}/patternProperties/{pattern}"
        if pattern in before:
            found += compare(schema, before[pattern], place)
            continue
        # A name that it matches may have been anything else.
        for other in [*others, *before.values()]:
            found += compare(schema, other, place)
    for pattern, schema in before.items():
        if pattern not in patterns:
            place = f"{path}/additionalProperties"
            found += compare(new.get("additionalProperties", True), schema, place)
    return found


def compare_arrays(
    compare: Compare, new: Mapping[str, Any], old: Mapping[str, Any], path: str
) -> list[Incompatibility]:
    found = at_most(new, old, "maxItems", path, "MAX_ITEMS")
    found += at_least(new, old, "minItems", path, "MIN_ITEMS")
    if new.get("uniqueItems") is True and old.get("uniqueItems") is not True:
        what = f"the items of {path} must be unique now"
        found.append(Incompatibility("UNIQUE_ITEMS_ADDED", f"{path}/uniqueItems", what))
    first, rest = _items(new)
    first_before, rest_before = _items(old)
    for index in range(max(len(first), len(first_before))):
        schema = first[index] if index < len(first) else rest
        before = first_before[index] if index < len(first_before) else rest_before
        found += compare(schema, before, f"{path}/items/{index}")
    return found + compare(rest, rest_before, f"{path}/items")


def _items(schema: Mapping[str, Any]) -> tuple[list[Any], Any]:
    """Return the schemas of the first items, and the one of all others, in any draft."""
    if "prefixItems" in schema:
        return schema["prefixItems"], schema.get("items", True)
    items = schema.get("items", True)
    if isinstance(items, list):
        return items, schema.get("additionalItems", True)
    return [], items
