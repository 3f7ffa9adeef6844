"""Extra fields: those of a writer's schema that a reader's lacks, which resolution would drop."""

from __future__ import annotations

from typing import Any

from fastavro import parse_schema


def extra_fields(reader: Any, writer: Any) -> list[str]:
    """Return each as a path from the outermost record with its type: `place.lat (double)`.

    What lies in arrays, maps and unions counts too. A field that the reader has under another name
    is there if the reader lists the writer's name among its aliases.
    """
    return _Comparison(reader, writer).found()


class _Comparison:
    """One comparison of two schemas, with the named types of each."""

    def __init__(self, reader: Any, writer: Any) -> None:
        self._reader_names: dict[str, Any] = {}
        self._writer_names: dict[str, Any] = {}
        self._reader = parse_schema(reader, named_schemas=self._reader_names)
        self._writer = parse_schema(writer, named_schemas=self._writer_names)
        # Types that contain themselves are compared once.
        self._seen: set[tuple[str, str]] = set()
        self._found: list[str] = []

    def found(self) -> list[str]:
        self._compare(self._reader, self._writer, "")
        return self._found

    def _compare(self, reader: Any, writer: Any, path: str) -> None:
        reader = _resolved(reader, self._reader_names)
        writer = _resolved(writer, self._writer_names)
        if isinstance(writer, list):
            for branch in writer:
                self._compare(reader, branch, path)
            return
        if not isinstance(writer, dict):
            return
        kind = writer["type"]
        branch = self._branch(reader, writer)
        if branch is None:
            return
        if kind == "array":
            self._compare(branch["items"], writer["items"], f"{path}[]")
        elif kind == "map":
            self._compare(branch["values"], writer["values"], f"{path}{{}}")
        elif kind in ("record", "error"):
            self._compare_records(branch, writer, path)

    def _branch(self, reader: Any, writer: Any) -> Any:
        """Return the part of the reader's schema that a value of the writer's is read with."""
        branches = reader if isinstance(reader, list) else [reader]
        alike = [
            resolved
            for resolved in (_resolved(each, self._reader_names) for each in branches)
            if isinstance(resolved, dict) and resolved["type"] == writer["type"]
        ]
        same = [each for each in alike if _short(each) == _short(writer)]
        return next(iter(same or alike), None)

    def _compare_records(self, reader: Any, writer: Any, path: str) -> None:
        pair = (reader["name"], writer["name"])
        if pair in self._seen:
            return
        self._seen.add(pair)
        known = {
            name: field
            for field in reader["fields"]
            for name in (*field.get("aliases", ()), field["name"])
        }
        for field in writer["fields"]:
            inner = f"{path}.{field['name']}" if path else field["name"]
            if field["name"] in known:
                self._compare(known[field["name"]]["type"], field["type"], inner)
            else:
                self._found.append(f"{inner} ({_type(field['type'])})")


def _resolved(schema: Any, names: dict[str, Any]) -> Any:
    return names.get(schema, schema) if isinstance(schema, str) else schema


def _short(schema: Any) -> str:
    return str(schema.get("name", "")).rpartition(".")[2]


def _type(schema: Any) -> str:
    if isinstance(schema, list):
        return " or ".join(map(_type, schema))
    if isinstance(schema, dict):
        return str(schema.get("logicalType") or schema.get("name") or _type(schema["type"]))
    return str(schema)
