"""Random Avro schemas, and others that differ from them in a few places."""

from __future__ import annotations

import copy
import random
from typing import Any

PRIMITIVES = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
DEFAULTS = {
    "null": None, "boolean": True, "int": 7, "long": 8, "float": 0.5, "double": 1.5,
    "bytes": "\u00ff", "string": "x",
}  # fmt: skip


class RandomSchemas:
    """Schemas of one seed; names are few, so that two of them often have the same."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def pair(self) -> tuple[Any, Any]:
        """Return two that are unrelated, or of which one is the other with changes."""
        one = self.schema()
        if self._random.random() < 0.2:
            return one, self.schema()
        other = copy.deepcopy(one)
        for _ in range(self._random.choice((0, 1, 1, 2))):
            other = self._changed(other)
        return (one, other) if self._random.random() < 0.5 else (other, one)

    def schema(self) -> Any:
        self._names: list[str] = []
        # All or none: what a name without a namespace means inside of one is read in two ways.
        self._spaces = self._random.choice((("",), ("n", "n.m")))
        if self._random.random() < 0.85:
            return self._record(3)
        return self._type(3)

    def _type(self, depth: int) -> Any:
        choose = self._random
        kinds = ["primitive"] * 4 + ["enum", "fixed", "known", "logical"]
        if depth > 0:
            kinds += ["array", "map", "record", "union", "union"]
        match choose.choice(kinds):
            case "enum":
                return self._enum()
            case "fixed":
                return self._named({"type": "fixed", "size": choose.randint(1, 3)}, "F")
            case "known" if self._names:
                return choose.choice(self._names)
            case "logical":
                return {"type": "long", "logicalType": "timestamp-millis"}
            case "array":
                return {"type": "array", "items": self._type(depth - 1)}
            case "map":
                return {"type": "map", "values": self._type(depth - 1)}
            case "record":
                return self._record(depth - 1)
            case "union":
                return self._union(depth - 1)
        return choose.choice(PRIMITIVES)

    def _union(self, depth: int) -> Any:
        branches: list[Any] = self._random.sample(PRIMITIVES, self._random.randint(1, 3))
        if self._random.random() < 0.4:
            branches.append(self._record(depth))
        if self._random.random() < 0.2:
            branches.append({"type": "array", "items": self._type(depth - 1)})
        return branches

    def _enum(self) -> Any:
        symbols = self._random.sample("ABCDE", self._random.randint(1, 4))
        found = {"type": "enum", "symbols": symbols}
        if self._random.random() < 0.3:
            found["default"] = symbols[0]
        return self._named(found, "E")

    def _record(self, depth: int) -> Any:
        found = self._named({"type": "record"}, "R")
        names = self._random.sample("abcdef", self._random.randint(0, 4))
        fields = []
        for name in names:
            kind = self._type(depth)
            field: dict[str, Any] = {"name": name, "type": kind}
            if isinstance(kind, str) and kind in DEFAULTS and self._random.random() < 0.5:
                field["default"] = DEFAULTS[kind]
            if isinstance(kind, list) and str(kind[0]) in DEFAULTS and self._random.random() < 0.5:
                field["default"] = DEFAULTS[kind[0]]
            if self._random.random() < 0.1:
                field["aliases"] = [self._random.choice("uvwxyz")]
            if self._random.random() < 0.1:
                field["doc"] = 'a "field"'
            fields.append(field)
        found["fields"] = fields
        if self._random.random() < 0.1:
            found["doc"] = "a record"
        return found

    def _named(self, schema: dict[str, Any], letter: str) -> dict[str, Any]:
        space = self._random.choice(self._spaces)
        number = 1
        taken = {name.rpartition(".")[2] for name in self._names}
        while f"{letter}{number}" in taken:
            number += 1
        name = f"{letter}{number}"
        self._names.append(f"{space}.{name}" if space else name)
        if space and self._random.random() < 0.5:
            schema["name"] = f"{space}.{name}"
        else:
            schema["name"], schema["namespace"] = name, space
        if self._random.random() < 0.1:
            schema["aliases"] = [self._random.choice((f"{letter}9", f"n.{letter}1"))]
        return schema

    def _changed(self, schema: Any) -> Any:
        """Change one place that is drawn."""
        places: list[dict[str, Any]] = []
        _collect(schema, places)
        if not places:
            return self._random.choice(PRIMITIVES)
        place = self._random.choice(places)
        if "name" not in place or place.get("type") not in ("record", "enum", "fixed"):
            key = next((k for k in ("type", "items", "values") if k in place), "type")
            if key == "type" and place.get("type") in ("array", "map"):
                key = "items" if place["type"] == "array" else "values"
            if str(place[key]) in PRIMITIVES:
                place[key] = self._random.choice(PRIMITIVES)
                place.pop("default", None)
                place.pop("logicalType", None)
            elif isinstance(place[key], list):
                # A type must stand before its name is used, so others stay where they are.
                plain = [each for each in place[key] if str(each) in PRIMITIVES]
                self._random.shuffle(plain)
                others = [each for each in place[key] if str(each) not in PRIMITIVES]
                place[key] = plain[self._random.randint(0, 1) :] + others or ["null"]
                place.pop("default", None)
            return schema
        match place["type"]:
            case "enum":
                place["symbols"] = self._random.sample("ABCDE", 3)
                place.pop("default", None)
            case "fixed":
                place["size"] = self._random.randint(1, 3)
            case "record":
                self._change_fields(place)
        return schema

    def _change_fields(self, record: dict[str, Any]) -> None:
        fields = record["fields"]
        choice = self._random.random()
        if choice < 0.3 and fields:
            # A type that others name must not go.
            plain = [field for field in fields if str(field["type"]) in PRIMITIVES]
            if plain:
                fields.remove(self._random.choice(plain))
        elif choice < 0.8:
            free = [name for name in "abcdef" if all(name != each["name"] for each in fields)]
            kind = self._random.choice(PRIMITIVES)
            field: dict[str, Any] = {"name": self._random.choice(free), "type": kind}
            if self._random.random() < 0.6:
                field["default"] = DEFAULTS[kind]
            fields.append(field)
        elif fields:
            field = self._random.choice(fields)
            field["aliases"] = [field["name"]]
            field["name"] = "g"
            names = [each["name"] for each in fields]
            if names.count("g") > 1:
                field["name"] = field.pop("aliases")[0]


def _collect(schema: Any, places: list[dict[str, Any]]) -> None:
    if isinstance(schema, dict):
        places.append(schema)
        for key, inner in schema.items():
            if key in ("type", "items", "values", "fields"):
                _collect(inner, places)
    elif isinstance(schema, list):
        for inner in schema:
            _collect(inner, places)
