"""Files that a task writes, without Spark around it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from moldau.spark.lake.files import FileWritten, WritePlan, write_files
from moldau.spark.lake.location import Location
from tests.spark.lake.tables import data_files


def plan_for(folder: Path, schema: pa.Schema, **changes: Any) -> WritePlan:
    location = changes.pop("location", Location.parse(str(folder), None))
    return WritePlan(location, schema, changes.pop("partition_by", ()), "part", **changes)


def write(plan: WritePlan, *batches: pa.RecordBatch) -> list[FileWritten]:
    (result,) = write_files(plan, iter(batches))
    return [
        msgspec.json.decode(text, type=FileWritten) for text in result.column("written").to_pylist()
    ]


def numbers(first: int, count: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"n": range(first, first + count)})


def test_rows_become_a_file_of_which_the_driver_is_told(tmp_path: Path) -> None:
    batch = numbers(0, 10)
    (file,) = write(plan_for(tmp_path, batch.schema), batch, numbers(10, 5))
    assert data_files(tmp_path) == {file.path}
    assert file.size == (tmp_path / file.path).stat().st_size
    assert file.rows == 15
    assert json.loads(file.stats)["maxValues"] == {"n": 14}
    assert pq.read_table(tmp_path / file.path)["n"].to_pylist() == list(range(15))


def test_a_task_without_rows_writes_nothing(tmp_path: Path) -> None:
    assert write(plan_for(tmp_path, numbers(0, 1).schema)) == []
    assert write(plan_for(tmp_path, numbers(0, 1).schema), numbers(0, 0)) == []
    assert data_files(tmp_path) == set()


def test_a_file_that_is_large_enough_is_followed_by_another(tmp_path: Path) -> None:
    batch = numbers(0, 1000)
    plan = plan_for(tmp_path, batch.schema, row_group_bytes=8000, file_bytes=2000)
    files = write(plan, *(numbers(1000 * index, 1000) for index in range(5)))
    assert len(files) == 5
    assert sum(file.rows for file in files) == 5000


def test_rows_go_to_folders_by_the_partitioning_columns(tmp_path: Path) -> None:
    days = [date(2024, 1, 1), None, date(2024, 1, 2), date(2024, 1, 1)]
    odd = ["a", "a/b c", "", "a"]
    batch = pa.RecordBatch.from_pydict({"n": range(4), "day": days, "kind": odd})
    files = write(plan_for(tmp_path, batch.schema, partition_by=("day", "kind")), batch)
    found = {tuple(file.partition_values.values()): file for file in files}
    # Delta has one form for null and the empty string.
    assert set(found) == {("2024-01-01", "a"), (None, "a/b c"), ("2024-01-02", None)}
    file = found["2024-01-01", "a"]
    assert file.path.startswith("day=2024-01-01/kind=a/part-")
    assert pq.read_table(tmp_path / file.path, partitioning=None).to_pydict() == {"n": [0, 3]}
    assert all(set(file.path) <= set(file.path) - set("% :") for file in files)


def test_many_folders_need_neither_many_files_nor_much_memory(tmp_path: Path) -> None:
    batch = pa.RecordBatch.from_pydict({"n": range(600), "p": [i % 60 for i in range(600)]})
    plan = plan_for(tmp_path, batch.schema, partition_by=("p",), most_open=7)
    assert len(write(plan, *[batch] * 5)) == 60
    # With no room to wait, and few files open at once, it takes more of them.
    files = write(replace(plan, buffered_bytes=2000), batch, batch)
    assert sum(file.rows for file in files) == 1200
    assert {file.partition_values["p"] for file in files} == {str(p) for p in range(60)}


def test_types_are_made_the_table_s(tmp_path: Path) -> None:
    given = pa.struct([pa.field("t", pa.timestamp("us", tz="Europe/Berlin"))])
    wanted = pa.struct([pa.field("t", pa.timestamp("us", tz="UTC")), pa.field("x", pa.string())])
    moments = [{"t": 0}, None, {"t": None}]
    batch = pa.RecordBatch.from_arrays(
        [
            pa.array([1, 2, 3], pa.int32()),
            pa.array(moments, given),
            pa.array([[{"t": 1}], [], None], pa.list_(pa.field("element", given))),
            pa.array([[("k", {"t": 2})], None, []], pa.map_(pa.string(), given)),
        ],
        ["i", "s", "l", "m"],
    )
    schema = pa.schema(
        [
            ("i", pa.int64()),
            ("s", wanted),
            ("l", pa.list_(pa.field("element", wanted))),
            ("m", pa.map_(pa.string(), wanted)),
        ]
    )
    (file,) = write(plan_for(tmp_path, schema), batch)
    table = pq.read_table(tmp_path / file.path)
    assert table.schema.equals(schema)
    assert table["s"].to_pylist()[1:] == [None, {"t": None, "x": None}]


def test_nulls_are_counted_where_asked_in_folders_too(tmp_path: Path) -> None:
    batch = pa.RecordBatch.from_pydict({"n": [1, None, 3], "p": ["a", None, None], "q": [1, 1, 1]})
    plan = plan_for(tmp_path, batch.schema, partition_by=("p",), counted=("n", "p"))
    files = write(plan, batch)
    assert sum(file.nulls["n"] for file in files) == 1
    assert sum(file.nulls["p"] for file in files) == 2


def test_a_task_that_fails_leaves_nothing_that_looks_whole(tmp_path: Path) -> None:
    batch = numbers(0, 1000)

    def failing() -> Iterator[pa.RecordBatch]:
        yield batch
        raise RuntimeError("no more")

    with pytest.raises(RuntimeError, match="no more"):
        list(write_files(plan_for(tmp_path, batch.schema, row_group_bytes=1), failing()))
    for name in data_files(tmp_path):
        with pytest.raises(pa.ArrowInvalid):
            pq.read_metadata(tmp_path / name)


def test_what_was_written_is_read_again_through_the_table_s_own_store(tmp_path: Path) -> None:
    batch = numbers(0, 10)
    # By URL this is how files go to object stores.
    location = Location(tmp_path.as_uri())
    assert not location.is_local
    (file,) = write(plan_for(tmp_path, batch.schema, location=location), batch)
    assert file.size == (tmp_path / file.path).stat().st_size
    assert pq.read_table(location.open(file.path))["n"].to_pylist() == [*range(10)]
    location.remove(file.path)
    assert data_files(tmp_path) == set()
