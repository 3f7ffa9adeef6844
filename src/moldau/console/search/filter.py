"""Filters: an expression of SQL over one message, checked and made ready for DuckDB.

    key, value, partition, offset, timestamp, size      of a message; timestamp in UTC
    value.FIELD.FIELD, value.LIST[0]                    out of a value in JSON
    headers.NAME                                        the last header of that name, as text

A field is a number where it is compared or reckoned with numbers, true or false where that is asked
for, and text otherwise. Nothing but an expression is taken: no subqueries, no other tables. DuckDB
parses it, we look through the tree, and only what was found in order is run.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import duckdb

COLUMNS = ("key", "value", "partition", "offset", "timestamp", "size")
_NUMBERS = frozenset(
    ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT", "DOUBLE", "FLOAT", "DECIMAL")
)
_ARITHMETIC = frozenset(("+", "-", "*", "/", "//", "%", "abs", "round", "floor", "ceil", "sqrt"))
_REFUSED = {"SUBQUERY": "a subquery", "WINDOW": "a window function", "STAR": "a *"}
# From here on, doubles skip whole numbers.
_EXACT = 1 << 53
_LONGEST = 10_000
_DEEPEST = 200
TEXT, NUMBER, WHOLE, TRUTH = "t", "n", "w", "b"
_CASTS = {NUMBER: "DOUBLE", WHOLE: "HUGEINT", TRUTH: "BOOLEAN"}

Node = dict[str, Any]


class BadFilter(ValueError):
    """An expression that cannot be a filter, and why."""


@dataclass(slots=True)
class Filter:
    """A filter that was checked: the query, and what it looks at."""

    query: str
    columns: set[str] = field(default_factory=set)

    @property
    def reads_value(self) -> bool:
        return "value" in self.columns


def connect() -> duckdb.DuckDBPyConnection:
    """Return a database that reads no files, loads nothing and stays small."""
    import duckdb

    found = duckdb.connect(":memory:")
    for setting in (
        "enable_external_access=false",
        "autoinstall_known_extensions=false",
        "autoload_known_extensions=false",
        "memory_limit='512MB'",
        "threads=1",
        "enable_progress_bar=false",
        "lock_configuration=true",
    ):
        found.execute(f"SET {setting}")
    return found


def parse(database: duckdb.DuckDBPyConnection, text: str) -> Filter:
    """Return the filter that a text is; BadFilter says what is wrong with it."""
    import duckdb

    if len(text) > _LONGEST:
        raise BadFilter(f"a filter may have at most {_LONGEST} characters")
    asked = f"SELECT row FROM batch WHERE ({_quoted_words(text)}\n)"
    try:
        row = database.execute("SELECT json_serialize_sql(?)", [asked]).fetchone()
    except duckdb.Error as problem:
        raise BadFilter(_words(problem)) from None
    assert row is not None
    tree = json.loads(row[0])
    if tree["error"]:
        raise BadFilter(str(tree["error_message"]).partition("\n")[0])
    if len(tree["statements"]) != 1:
        raise BadFilter("a filter is one expression")
    node = tree["statements"][0]["node"]
    _check_shape(node)
    rewriting = _Rewriting()
    node["where_clause"] = rewriting.rewritten(node["where_clause"], TRUTH)
    try:
        back = database.execute("SELECT json_deserialize_sql(?)", [json.dumps(tree)]).fetchone()
    except duckdb.Error as problem:
        raise BadFilter(_words(problem)) from None
    assert back is not None
    inner = ", ".join(["*", *rewriting.expressions()])
    query = str(back[0]).replace("FROM batch", f"FROM (SELECT {inner} FROM batch) AS batch", 1)
    return Filter(query, rewriting.columns)


def _quoted_words(text: str) -> str:
    """Quote the names of columns that are words of SQL, too."""
    import duckdb

    tokens = duckdb.tokenize(text)
    starts = [start for start, _ in tokens] + [len(text)]
    out, last = [], 0
    for number, (start, _) in enumerate(tokens):
        word = text[start : starts[number + 1]].rstrip()
        if word.lower() == "offset":
            out += [text[last:start], '"offset"']
            last = start + len(word)
    return "".join([*out, text[last:]])


def _check_shape(node: Node) -> None:
    """Refuse everything but the one SELECT that we wrote around the expression."""
    table = node.get("from_table") or {}
    is_ours = (
        node.get("type") == "SELECT_NODE"
        and table.get("type") == "BASE_TABLE"
        and table.get("table_name") == "batch"
        and not table.get("schema_name")
        and not node["modifiers"]
        and not node["cte_map"]["map"]
        and len(node["select_list"]) == 1
        and not node["group_expressions"]
        and node["having"] is None
        and node["qualify"] is None
        and node["sample"] is None
        and node["where_clause"] is not None
    )
    if not is_ours:
        raise BadFilter("a filter is one expression, such as value.amount > 100")


class _Rewriting:
    """Puts columns in place of fields and headers, each of the type that is wanted there."""

    def __init__(self) -> None:
        self.columns: set[str] = set()
        self._fields: dict[tuple[tuple[str, ...], str], str] = {}
        self._headers: dict[str, str] = {}

    def expressions(self) -> list[str]:
        """Return the columns that the inner query has to make."""
        found = []
        for (path, kind), name in self._fields.items():
            pointer = "".join("/" + part.replace("~", "~0").replace("/", "~1") for part in path)
            text = f"TRY(json_extract_string(value, {_literal(pointer)}))"
            if kind in _CASTS:
                text = f"TRY_CAST({text} AS {_CASTS[kind]})"
            found.append(f"{text} AS {name}")
        for header, name in self._headers.items():
            last = f"list_filter(headers, h -> h.key = {_literal(header)})[-1].value"
            found.append(f"TRY(decode({last})) AS {name}")
        return found

    def rewritten(self, node: Any, want: str = TEXT, depth: int = 0) -> Any:
        if depth > _DEEPEST:
            raise BadFilter("the filter is nested too deeply")
        if isinstance(node, list):
            return [self.rewritten(each, want, depth + 1) for each in node]
        if not isinstance(node, dict):
            return node
        kind = node.get("class", "")
        if kind in _REFUSED:
            raise BadFilter(f"{_REFUSED[kind]} is not allowed in a filter")
        path = _path(node)
        if path is not None:
            return self._column(node, path, want)
        inner = _wanted(node, want)
        return {
            key: self.rewritten(value, inner, depth + 1)
            if isinstance(value, dict | list)
            else value
            for key, value in node.items()
        }

    def _column(self, node: Node, path: tuple[str, ...], want: str) -> Node:
        first = path[0].lower()
        if len(path) == 1 and first in COLUMNS:
            self.columns.add(first)
            return _reference(node, first)
        if first == "value":
            self.columns.add("value")
            name = self._fields.setdefault((path[1:], want), f"field_{want}{len(self._fields)}")
            return _reference(node, name)
        if first == "headers" and len(path) == 2:
            self.columns.add("headers")
            name = self._headers.setdefault(path[1], f"header_{len(self._headers)}")
            return _reference(node, name)
        if len(path) == 1 and (path[0].startswith(("field_", "header_")) or first == "row"):
            raise BadFilter(f"there is no {path[0]} here")
        if len(path) == 1 and node.get("class") == "COLUMN_REF":
            # The parameter of a lambda, or a column that is not there: DuckDB knows which.
            return node
        shown = ".".join(path)
        raise BadFilter(
            f"there is no {shown} here; a filter is over {', '.join(COLUMNS)}, value.FIELD and "
            "headers.NAME"
        )


def _path(node: Node) -> tuple[str, ...] | None:
    """Return the names and indexes of a column reference, value.items[0].price as well."""
    if node.get("class") == "COLUMN_REF":
        return tuple(map(str, node["column_names"]))
    if node.get("class") == "OPERATOR" and node.get("type") in ("ARRAY_EXTRACT", "STRUCT_EXTRACT"):
        inner = _path(node["children"][0])
        index = node["children"][1]
        if inner is not None and inner[0].lower() == "value" and index.get("class") == "CONSTANT":
            return (*inner, str(index["value"]["value"]))
    return None


def _reference(node: Node, name: str) -> Node:
    return {
        "class": "COLUMN_REF",
        "type": "COLUMN_REF",
        "alias": "",
        "query_location": node.get("query_location", 0),
        "column_names": [name],
    }


def _wanted(node: Node, want: str) -> str:
    """Return the type that the fields directly below a node should have."""
    kind, type = node.get("class", ""), str(node.get("type", ""))
    if kind == "CONJUNCTION" or type == "OPERATOR_NOT":
        return TRUTH
    if kind in ("COMPARISON", "BETWEEN") or type in ("COMPARE_IN", "COMPARE_NOT_IN"):
        return _beside(node)
    if kind == "FUNCTION" and str(node.get("function_name", "")).lower() in _ARITHMETIC:
        return NUMBER
    return want if not kind else TEXT


def _beside(node: Node) -> str:
    """Return the type that constants beside a field ask for."""
    parts = [node.get(name) for name in ("left", "right", "input", "lower", "upper")]
    parts += node.get("children") or []
    found = TEXT
    for part in parts:
        if not isinstance(part, dict):
            continue
        if part.get("class") == "FUNCTION" and part.get("function_name") in _ARITHMETIC:
            found = NUMBER
        if part.get("class") != "CONSTANT":
            continue
        value = part["value"]
        type_id = value["type"]["id"]
        if type_id == "BOOLEAN":
            return TRUTH
        if type_id in _NUMBERS:
            number = value.get("value")
            is_long = isinstance(number, int) and abs(number) >= _EXACT
            found = WHOLE if is_long or type_id == "HUGEINT" else NUMBER
    return found


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _words(problem: Exception) -> str:
    return str(problem).partition("\n")[0]
