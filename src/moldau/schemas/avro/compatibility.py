"""Compatibility: whether data written with one Avro schema can be read with another.

These are the schema resolution rules of the Avro specification, applied before any data is there:
the answer is yes only if every value that the writer's schema allows can be read. They agree with
Java's `SchemaCompatibility`, but for decimals: those of different scale have the same bytes and
other values, so they do not read each other here.
"""

from __future__ import annotations

from typing import Any

from fastavro import parse_schema

from moldau.schemas.incompatibility import Incompatibility

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
    found = reading_problems(reader, writer)
    return found[0].message if found else None


def reading_problems(
    reader: Any,
    writer: Any,
    reader_names: dict[str, Any] | None = None,
    writer_names: dict[str, Any] | None = None,
) -> list[Incompatibility]:
    """Return every reason; the named types are those that the schemas refer to."""
    reader_names, writer_names = dict(reader_names or {}), dict(writer_names or {})
    reader = parse_schema(reader, named_schemas=reader_names)
    writer = parse_schema(writer, named_schemas=writer_names)
    return _Resolution(reader_names, writer_names).compare(reader, writer, "", "")


class _Resolution:
    """One comparison of two schemas, with the named types of each."""

    def __init__(self, reader_names: dict[str, Any], writer_names: dict[str, Any]) -> None:
        self._reader_names = reader_names
        self._writer_names = writer_names
        # Types that contain themselves: a pair that is being compared is taken for fine.
        self._known: dict[tuple[int, int], list[Incompatibility]] = {}

    def compare(self, reader: Any, writer: Any, field: str, path: str) -> list[Incompatibility]:
        """Compare two types; `field` is where they are for people, `path` for programs."""
        reader = _resolved(reader, self._reader_names)
        writer = _resolved(writer, self._writer_names)
        if isinstance(reader, dict) and isinstance(writer, dict):
            pair = (id(reader), id(writer))
            found = self._known.get(pair)
            if found is None:
                self._known[pair] = []
                found = self._known[pair] = self._compare(reader, writer, field, path)
            return found
        return self._compare(reader, writer, field, path)

    def _compare(self, reader: Any, writer: Any, field: str, path: str) -> list[Incompatibility]:
        if isinstance(writer, list):
            # Any branch may have been written.
            return [
                problem
                for index, branch in enumerate(writer)
                for problem in self.compare(reader, branch, field, f"{path}/{index}")
            ]
        if isinstance(reader, list):
            return self._compare_with_union(reader, writer, field, path)
        wanted, written = _kind(reader), _kind(writer)
        if wanted == written:
            return self._compare_same_kind(wanted, reader, writer, field, path)
        if wanted in _PROMOTIONS.get(written, ()):
            return []
        what = f"{_name(writer)} cannot be read as {_name(reader)}"
        return [_problem("TYPE_MISMATCH", path, field, what)]

    def _compare_with_union(
        self, reader: list[Any], writer: Any, field: str, path: str
    ) -> list[Incompatibility]:
        problems = [self.compare(branch, writer, field, path) for branch in reader]
        if not all(problems):
            return []
        # The branch of the same kind, where there is one, is what the author had in mind.
        for branch, found in zip(reader, problems, strict=True):
            if _kind(_resolved(branch, self._reader_names)) == _kind(writer):
                return [Incompatibility("MISSING_UNION_BRANCH", path, found[0].message)]
        names = ", ".join(_name(branch) for branch in reader)
        what = f"{_name(writer)} is not in the union ({names or 'none'})"
        return [_problem("MISSING_UNION_BRANCH", path, field, what)]

    def _compare_same_kind(
        self, kind: str, reader: Any, writer: Any, field: str, path: str
    ) -> list[Incompatibility]:
        if kind == "array":
            return self.compare(reader["items"], writer["items"], f"{field}[]", f"{path}/items")
        if kind == "map":
            values = f"{path}/values"
            return self.compare(reader["values"], writer["values"], f"{field}{{}}", values)
        found = _name_problems(kind, reader, writer, field, path)
        if kind == "fixed" and reader["size"] != writer["size"]:
            what = f"{writer['size']} bytes ({_name(writer)}) cannot be read as {reader['size']}"
            found.append(_problem("FIXED_SIZE_MISMATCH", f"{path}/size", field, what))
        elif kind == "enum":
            missing = [symbol for symbol in writer["symbols"] if symbol not in reader["symbols"]]
            if missing and reader.get("default") not in reader["symbols"]:
                what = f"enum {_name(reader)} has no symbol {missing[0]} and no default"
                found.append(_problem("MISSING_ENUM_SYMBOLS", f"{path}/symbols", field, what))
        elif kind in ("record", "error"):
            found += self._compare_records(reader, writer, field, path)
        return found + _decimal_problems(reader, writer, field, path)

    def _compare_records(
        self, reader: Any, writer: Any, field: str, path: str
    ) -> list[Incompatibility]:
        written = {each["name"]: each for each in writer["fields"]}
        found: list[Incompatibility] = []
        for index, each in enumerate(reader["fields"]):
            name = f"{field}.{each['name']}" if field else each["name"]
            place = f"{path}/fields/{index}"
            names = [n for n in (each["name"], *each.get("aliases", ())) if n in written]
            if len(set(names)) > 1:
                what = f"it is both {' and '.join(names)} of the writer"
                found.append(_problem("NAME_MISMATCH", place, name, what))
            elif names:
                writer_type = written[names[0]]["type"]
                found += self.compare(each["type"], writer_type, name, f"{place}/type")
            elif "default" not in each:
                what = "the reader requires it, the writer lacks it, and it has no default"
                found.append(_problem("READER_FIELD_MISSING_DEFAULT_VALUE", place, name, what))
        return found


def _resolved(schema: Any, names: dict[str, Any]) -> Any:
    return names.get(schema, schema) if isinstance(schema, str) else schema


def _kind(schema: Any) -> str:
    return str(schema["type"]) if isinstance(schema, dict) else str(schema)


def _name(schema: Any) -> str:
    if isinstance(schema, dict):
        return str(schema.get("name") or schema.get("logicalType") or schema["type"])
    return "union" if isinstance(schema, list) else str(schema)


def _name_problems(
    kind: str, reader: Any, writer: Any, field: str, path: str
) -> list[Incompatibility]:
    """Names count without their namespaces; the reader may list other full names as aliases."""
    if kind not in _NAMED:
        return []
    namespace, _, unqualified = reader["name"].rpartition(".")
    if writer["name"].rpartition(".")[2] == unqualified:
        return []
    for alias in reader.get("aliases", ()):
        full = alias if "." in alias or not namespace else f"{namespace}.{alias}"
        if full == writer["name"]:
            return []
    what = f"{_kind(writer)} {writer['name']} is not {reader['name']}"
    return [_problem("NAME_MISMATCH", f"{path}/name", field, what)]


def _decimal_problems(reader: Any, writer: Any, field: str, path: str) -> list[Incompatibility]:
    if not all(
        isinstance(it, dict) and it.get("logicalType") == "decimal" for it in (reader, writer)
    ):
        return []
    wanted = (reader.get("precision"), reader.get("scale", 0))
    written = (writer.get("precision"), writer.get("scale", 0))
    if wanted == written:
        return []
    what = f"decimal{written} cannot be read as decimal{wanted}"
    return [_problem("TYPE_MISMATCH", path, field, what)]


def _problem(kind: str, path: str, field: str, what: str) -> Incompatibility:
    return Incompatibility(kind, path or "/", f"field {field}: {what}" if field else what)
