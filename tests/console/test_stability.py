"""The API stays as it is: what programs were promised is kept in `surface.txt`, line by line.

    GET api/topics <- internal boolean              it takes this
    POST api/topics <- name string, required        it takes this, and needs it
    GET api/topics -> topics[].name string          it answers with this

New lines are added by `python -m tests.console.test_stability`. None is ever taken away, and no
call begins to need what it did not need.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from moldau.console.api.modules import MODULES
from moldau.console.api.openapi import document

assert MODULES
KEPT = Path(__file__).with_name("surface.txt")
_DEEPEST = 6


def surface() -> list[str]:
    """Return what the API takes and answers, a line for each field."""
    described = document()
    known = described["components"]["schemas"]
    found = set()
    for path, methods in described["paths"].items():
        for method, operation in methods.items():
            call = f"{method.upper()} {path.removeprefix('/')}"
            found.add(call)
            for each in operation.get("parameters", ()):
                needed = ", required" if each["required"] else ""
                found.add(f"{call} <- {each['name']} {_kind(each['schema'])}{needed}")
            asked = operation.get("requestBody", {}).get("content", {})
            for content in asked.values():
                found.update(f"{call} <- {line}" for line in _fields(content["schema"], known))
            for status, answer in operation["responses"].items():
                # Errors are alike for all.
                for content in answer["content"].values() if status != "default" else ():
                    lines = _fields(content["schema"], known)
                    found.update(f"{call} -> {line.removesuffix(', required')}" for line in lines)
    return sorted(found)


def _fields(schema: dict[str, Any], known: dict[str, Any], at: str = "") -> Iterator[str]:
    if at.count(".") > _DEEPEST:
        return
    if "$ref" in schema:
        schema = known[schema["$ref"].rpartition("/")[2]]
    for each in schema.get("anyOf", ()):
        yield from _fields(each, known, at)
    if isinstance(schema.get("items"), dict):
        yield from _fields(schema["items"], known, f"{at}[]")
    for name, inner in schema.get("properties", {}).items():
        place = f"{at}.{name}" if at else name
        needed = ", required" if name in schema.get("required", ()) else ""
        yield f"{place} {_kind(inner)}{needed}"
        yield from _fields(inner, known, place)


def _kind(schema: dict[str, Any]) -> str:
    if "anyOf" in schema:
        return "|".join(sorted(_kind(each) for each in schema["anyOf"]))
    if "$ref" in schema:
        return "object"
    kind = schema.get("type", "any")
    return "|".join(sorted(kind)) if isinstance(kind, list) else str(kind)


def test_what_programs_rely_on_is_not_taken_away_and_nothing_more_is_asked_of_them() -> None:
    kept, now = set(KEPT.read_text("utf-8").splitlines()), set(surface())
    assert kept - now == set()
    calls = {line for line in kept if "<-" not in line and "->" not in line}
    added = now - kept
    assert [
        line for line in added if line.endswith(", required") and line.partition(" <-")[0] in calls
    ] == []
    assert added == set(), "add them: python -m tests.console.test_stability"


if __name__ == "__main__":
    KEPT.write_text("\n".join(surface()) + "\n", "utf-8")
