"""Lake tables: those that pipelines say they write, with rows, files, versions and a preview.

No other path is opened, whoever asks. Only paths of this machine are: what a status names elsewhere
would be read with rights that are the console's, not the visitor's.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path

import msgspec

from moldau.console.call import Call
from moldau.console.endpoint import endpoint
from moldau.console.errors import ApiError, not_found
from moldau.console.lake import delta, iceberg
from moldau.console.lake.description import TableInfo

# By the type of sink: the package that reads its tables, the extra that has it, whether a table is
# there, and what it is.
_KINDS: dict[
    str, tuple[str, str, Callable[[Path], bool], Callable[[str, Path, bool], TableInfo]]
] = {
    "delta": ("deltalake", "moldau[spark]", delta.is_there, delta.describe),
    "iceberg": ("pyiceberg", "moldau[iceberg]", iceberg.is_there, iceberg.describe),
}


class LakeTable(msgspec.Struct):
    pipeline: str
    sink: str
    type: str
    path: str


class LakeTables(msgspec.Struct):
    tables: list[LakeTable]


class LakeQuery(msgspec.Struct):
    """`pipeline` shows only the tables of one."""

    pipeline: str = ""


class TableQuery(msgspec.Struct):
    path: str


@endpoint("GET", "api/lake")
def list_tables(call: Call, asked: LakeQuery) -> LakeTables:
    """List the lake tables that pipelines write."""
    return LakeTables(_tables(call, asked.pipeline))


def _tables(call: Call, pipeline: str = "") -> list[LakeTable]:
    return [
        LakeTable(each.name, sink.name, sink.type, sink.path)
        for each in call.pipelines()
        for sink in each.sinks
        if sink.path and (not pipeline or each.name == pipeline)
    ]


@endpoint("GET", "api/lake/table")
def get_table(call: Call, asked: TableQuery) -> TableInfo:
    """Describe a lake table: rows, files, versions, schema, and its first rows."""
    table = next((each for each in _tables(call) if each.path == asked.path), None)
    if table is None:
        raise not_found(f"table {asked.path} of a pipeline")
    kind = _KINDS.get(table.type)
    if kind is None:
        raise ApiError(
            422,
            "not_shown",
            f"{table.path} is {table.type}",
            "only Delta and Iceberg tables can be shown",
        )
    package, extra, is_there, describe = kind
    if importlib.util.find_spec(package) is None:
        raise ApiError(422, "extra_missing", f"the table needs {package}", f"install {extra}")
    local = table.path.removeprefix("file://")
    if "://" in local or not is_there(Path(local)):
        raise ApiError(404, "not_here", f"{table.path} is not on this machine")
    try:
        return describe(table.path, Path(local), _reads_masked(call, table.pipeline))
    except ApiError:
        raise
    except Exception as problem:
        # The libraries raise errors of many kinds, for files that are not as they should be.
        raise ApiError(502, "table", f"{table.path}: {problem}") from None


def _reads_masked(call: Call, name: str) -> bool:
    """Return whether a pipeline may read a topic with fields that are hidden."""
    masks = call.console.masks
    if not masks:
        return False
    (found,) = [each for each in call.pipelines() if each.name == name]
    sources = found.more.get("sources") or ()
    return not sources or any(
        not source.get("topics")
        or source.get("pattern")
        or any(masks.of(topic) for topic in source["topics"])
        for source in sources
    )
