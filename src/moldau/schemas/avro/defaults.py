"""Defaults of Avro fields: whether they are values of their fields."""

from __future__ import annotations

import math
from typing import Any

_INTEGERS = {"int": 31, "long": 63}


def default_problem(parsed: Any, names: dict[str, Any]) -> str | None:
    """Return what is wrong with the default of a field somewhere in a parsed schema."""
    if isinstance(parsed, list):
        return _first(default_problem(branch, names) for branch in parsed)
    if not isinstance(parsed, dict):
        return None
    kind = parsed["type"]
    if kind == "array":
        return default_problem(parsed["items"], names)
    if kind == "map":
        return default_problem(parsed["values"], names)
    if kind == "enum":
        default = parsed.get("default")
        if default is not None and default not in parsed["symbols"]:
            return f"enum {parsed['name']}: the default {default!r} is not one of its symbols"
    if kind in ("record", "error"):
        for field in parsed["fields"]:
            if "default" in field and not _fits(field["type"], field["default"], names):
                return (
                    f"field {field['name']} of {parsed['name']}: "
                    f"{field['default']!r} is not a value of its type"
                )
            problem = default_problem(field["type"], names)
            if problem is not None:
                return problem
    return None


def _first(problems: Any) -> str | None:
    return next((problem for problem in problems if problem is not None), None)


def _fits(schema: Any, value: Any, names: dict[str, Any]) -> bool:
    """Tell whether JSON is a default of a type; unions have one for any of their branches."""
    if isinstance(schema, list):
        return any(_fits(branch, value, names) for branch in schema)
    if isinstance(schema, str):
        schema = names.get(schema, schema)
    kind = schema["type"] if isinstance(schema, dict) else schema
    match kind:
        case "null":
            return value is None
        case "boolean":
            return isinstance(value, bool)
        case "int" | "long":
            is_whole = isinstance(value, int) or (isinstance(value, float) and value.is_integer())
            bits = _INTEGERS[kind]
            return is_whole and not isinstance(value, bool) and -(1 << bits) <= value < 1 << bits
        case "float" | "double":
            is_number = isinstance(value, int | float) and not isinstance(value, bool)
            return (is_number and math.isfinite(value)) or value in ("NaN", "Infinity", "-Infinity")
        case "string":
            return isinstance(value, str)
        case "bytes":
            return isinstance(value, str) and all(ord(character) < 256 for character in value)
        case "fixed":
            is_bytes = isinstance(value, str) and all(ord(character) < 256 for character in value)
            return is_bytes and len(value) == schema["size"]
        case "enum":
            return value in schema["symbols"]
        case "array":
            return isinstance(value, list) and all(
                _fits(schema["items"], each, names) for each in value
            )
        case "map":
            return isinstance(value, dict) and all(
                _fits(schema["values"], each, names) for each in value.values()
            )
    if not isinstance(value, dict):
        return False
    return all(
        _fits(field["type"], value[field["name"]], names)
        if field["name"] in value
        else "default" in field
        for field in schema["fields"]
    )
