"""Programs: Avro schemas as tables of numbers, which a compiled loop can follow."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from moldau.schemas.avro.schema import AvroSchema

# The kinds of nodes, and what their two numbers mean.
NULL, BOOLEAN, INT, LONG, FLOAT, DOUBLE, BYTES, STRING = range(8)
# size; number of symbols; node of the items; node of the values
FIXED, ENUM, ARRAY, MAP = range(8, 12)
# first child, number of children
UNION, RECORD = 12, 13

_PRIMITIVES = {
    "null": NULL, "boolean": BOOLEAN, "int": INT, "long": LONG, "float": FLOAT, "double": DOUBLE,
    "bytes": BYTES, "string": STRING,
}  # fmt: skip


class Programs:
    """All schemas of one table: a node has a kind and two numbers, `roots` are where they begin."""

    def __init__(self) -> None:
        self._nodes: list[tuple[int, int, int]] = []
        self._children: list[int] = []

    def add(self, schema: AvroSchema) -> int:
        """Add a schema; its root."""
        return _Compilation(self._nodes, self._children, schema.names).node(schema.parsed)

    def tables(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        nodes = np.array(self._nodes or [(0, 0, 0)], dtype=np.int64)
        return nodes, np.array(self._children or [0], dtype=np.int64)


class _Compilation:
    def __init__(
        self, nodes: list[tuple[int, int, int]], children: list[int], names: dict[str, Any]
    ) -> None:
        self._nodes = nodes
        self._children = children
        self._names = names
        # Named types that were begun: one that contains itself refers to its own node.
        self._known: dict[str, int] = {}

    def node(self, schema: Any) -> int:
        if isinstance(schema, str) and schema not in _PRIMITIVES:
            found = self._known.get(schema)
            return self.node(self._names[schema]) if found is None else found
        index = len(self._nodes)
        self._nodes.append((NULL, 0, 0))
        if isinstance(schema, dict) and "name" in schema:
            self._known[schema["name"]] = index
        self._nodes[index] = self._described(schema)
        return index

    def _described(self, schema: Any) -> tuple[int, int, int]:
        if isinstance(schema, list):
            return (UNION, *self._several(schema))
        if isinstance(schema, str):
            return _PRIMITIVES[schema], 0, 0
        kind = schema["type"]
        match kind:
            case "record" | "error":
                return (RECORD, *self._several([field["type"] for field in schema["fields"]]))
            case "array":
                return ARRAY, self.node(schema["items"]), 0
            case "map":
                return MAP, self.node(schema["values"]), 0
            case "enum":
                return ENUM, len(schema["symbols"]), 0
            case "fixed":
                return FIXED, schema["size"], 0
        return _PRIMITIVES[kind], 0, 0

    def _several(self, schemas: list[Any]) -> tuple[int, int]:
        found = [self.node(schema) for schema in schemas]
        first = len(self._children)
        self._children.extend(found)
        return first, len(found)
