"""Compatibility: whether data written with one Avro schema can be read with another.

These are the schema resolution rules of the Avro specification, applied before any data is there:
the answer is yes only if every value that the writer's schema allows can be read.
"""

from __future__ import annotations

from typing import Any

from fastavro import parse_schema

# The types to which a writer's type may be promoted (specification, "Schema Resolution").
_PROMOTIONS = {
    "int": {"long", "float", "double"},
    "long": {"float", "double"},
    "float": {"double"},
    "string": {"bytes"},
    "bytes": {"string"},
}
_NAMED = ("record", "error", "enum", "fixed")


def reading_problem(reader: Any, writer: Any) -> str | None:
    """Return why data of the writer's schema cannot be read with the reader's; None if it can.

    The reason names the field, as a path from the outermost record.
    """
    return _Resolution(reader, writer).problem()


class _Resolution:
    """One comparison of two schemas, with the named types of each."""

    def __init__(self, reader: Any, writer: Any) -> None:
        self._reader_names: dict[str, Any] = {}
        self._writer_names: dict[str, Any] = {}
        self._reader = parse_schema(reader, named_schemas=self._reader_names)
        self._writer = parse_schema(writer, named_schemas=self._writer_names)
        # Types that contain themselves: a pair that is being compared is taken for fine.
        self._open: set[tuple[str, str]] = set()

    def problem(self) -> str | None:
        return self._compare(self._reader, self._writer, "")

    def _compare(self, reader: Any, writer: Any, path: str) -> str | None:
        reader, writer = (
            self._resolve(reader, self._reader_names),
            self._resolve(writer, self._writer_names),
        )
        if isinstance(writer, list):
            # Any branch may have been written.
            for branch in writer:
                problem = self._compare(reader, branch, path)
                if problem is not None:
                    return problem
            return None
        if isinstance(reader, list):
            return self._compare_with_union(reader, writer, path)
        wanted, written = _kind(reader), _kind(writer)
        if wanted == written:
            return self._compare_same_kind(wanted, reader, writer, path)
        if wanted in _PROMOTIONS.get(written, ()):
            return None
        return _at(path, f"{_name(writer)} cannot be read as {_name(reader)}")

    def _compare_with_union(self, reader: list[Any], writer: Any, path: str) -> str | None:
        problems = [self._compare(branch, writer, path) for branch in reader]
        if not all(problems):
            return None
        # The branch of the same kind, where there is one, is what the author had in mind.
        for branch, problem in zip(reader, problems, strict=True):
            if _kind(self._resolve(branch, self._reader_names)) == _kind(writer):
                return problem
        names = ", ".join(_name(branch) for branch in reader)
        return _at(path, f"{_name(writer)} is not one of the union's types ({names or 'none'})")

    def _compare_same_kind(self, kind: str, reader: Any, writer: Any, path: str) -> str | None:
        if kind in _NAMED:
            problem = _name_problem(reader, writer, path)
            if problem is not None:
                return problem
        if kind == "array":
            return self._compare(reader["items"], writer["items"], f"{path}[]")
        if kind == "map":
            return self._compare(reader["values"], writer["values"], f"{path}{{}}")
        if kind == "fixed" and reader["size"] != writer["size"]:
            return _at(
                path, f"{writer['size']} bytes ({_name(writer)}) cannot be read as {reader['size']}"
            )
        if kind == "enum":
            missing = [symbol for symbol in writer["symbols"] if symbol not in reader["symbols"]]
            if missing and "default" not in reader:
                return _at(path, f"enum {_name(reader)} has no symbol {missing[0]} and no default")
        if kind in ("record", "error"):
            return self._compare_records(reader, writer, path)
        return _decimal_problem(reader, writer, path)

    def _compare_records(self, reader: Any, writer: Any, path: str) -> str | None:
        pair = (reader["name"], writer["name"])
        if pair in self._open:
            return None
        self._open.add(pair)
        try:
            written = {field["name"]: field for field in writer["fields"]}
            for field in reader["fields"]:
                problem = self._compare_field(field, written, path)
                if problem is not None:
                    return problem
        finally:
            self._open.discard(pair)
        return None

    def _compare_field(self, field: Any, written: dict[str, Any], path: str) -> str | None:
        inner = f"{path}.{field['name']}" if path else field["name"]
        for name in (field["name"], *field.get("aliases", ())):
            if name in written:
                return self._compare(field["type"], written[name]["type"], inner)
        if "default" in field:
            return None
        return _at(inner, "the reader wants it, the writer does not have it, and it has no default")

    def _resolve(self, schema: Any, names: dict[str, Any]) -> Any:
        return names.get(schema, schema) if isinstance(schema, str) else schema


def _kind(schema: Any) -> str:
    return str(schema["type"]) if isinstance(schema, dict) else str(schema)


def _name(schema: Any) -> str:
    if isinstance(schema, dict):
        return str(schema.get("name") or schema.get("logicalType") or schema["type"])
    return "union" if isinstance(schema, list) else str(schema)


def _name_problem(reader: Any, writer: Any, path: str) -> str | None:
    """Names count without their namespaces; the reader may list others as aliases."""
    unqualified = writer["name"].rpartition(".")[2]
    names = (reader["name"], *reader.get("aliases", ()))
    if any(name.rpartition(".")[2] == unqualified for name in names):
        return None
    return _at(path, f"{_kind(writer)} {writer['name']} is not {reader['name']}")


def _decimal_problem(reader: Any, writer: Any, path: str) -> str | None:
    """Decimals of different scale have the same bytes and other values."""
    if not all(
        isinstance(it, dict) and it.get("logicalType") == "decimal" for it in (reader, writer)
    ):
        return None
    wanted = (reader.get("precision"), reader.get("scale", 0))
    written = (writer.get("precision"), writer.get("scale", 0))
    if wanted == written:
        return None
    return _at(path, f"decimal{written} cannot be read as decimal{wanted}")


def _at(path: str, what: str) -> str:
    return f"field {path}: {what}" if path else what
