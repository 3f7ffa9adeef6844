"""Files of Iceberg tables as tasks read them, beside pyiceberg's own scan."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.io.pyarrow import ArrowScan, ParquetFormatModel
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.schema import Schema
from pyiceberg.table import FileScanTask, Table
from pyiceberg.typedef import Record
from pyiceberg.types import (
    IntegerType,
    ListType,
    LongType,
    NestedField,
    StringType,
    StructType,
)

from moldau.spark.lake.iceberg.parquet_file import OpenParquetFile
from moldau.spark.lake.iceberg.projection import Projection
from moldau.spark.lake.iceberg.reading import OpenWholeFile, Reading
from moldau.spark.lake.iceberg.schema import arrow_of
from tests.spark.lake.iceberg.tables import NAME, catalog_of

POINT = pa.struct([("x", pa.int32()), ("y", pa.float32())])
SCHEMA = pa.schema(
    [
        ("id", pa.int32()),
        ("name", pa.string()),
        ("point", POINT),
        ("tags", pa.list_(pa.string())),
        ("gone", pa.string()),
    ]
)


def made_in(warehouse: Path, schema: pa.Schema = SCHEMA) -> Table:
    catalog = catalog_of(warehouse)
    catalog.create_namespace("shop")
    return catalog.create_table(NAME, schema)


def rows(first: int, count: int) -> pa.Table:
    made = [
        {
            "id": each,
            "name": f"name {each}" if each % 3 else None,
            "point": {"x": each, "y": each / 2} if each % 5 else None,
            "tags": ["a", None, str(each)] if each % 4 else [],
            "gone": "x",
        }
        for each in range(first, first + count)
    ]
    return pa.Table.from_pylist(made, SCHEMA)


def evolved(table: Table) -> None:
    with table.update_schema() as update:
        update.rename_column("name", "title")
        update.delete_column("gone")
        update.update_column("id", LongType())
        update.add_column("gone", IntegerType())
        update.add_column(("point", "z"), StringType())
        update.move_first("tags")


def read(table: Table, task: FileScanTask) -> list[dict[str, Any]]:
    """The rows of a file by its row groups."""
    schema = arrow_of(table.schema())
    found = list(Reading.of(table).batches(task, schema))
    assert all(batch.schema == schema for batch in found)
    rows: list[dict[str, Any]] = pa.Table.from_batches(found, schema).to_pylist()
    return rows


def scanned(table: Table, task: FileScanTask) -> list[dict[str, Any]]:
    scan = ArrowScan(table.metadata, table.io, table.schema(), AlwaysTrue())
    rows: list[dict[str, Any]] = scan.to_table([task]).to_pylist()
    return rows


def test_files_of_earlier_schemas_are_read_as_pyiceberg_reads_them(tmp_path: Path) -> None:
    table = made_in(tmp_path)
    table.append(rows(0, 50))
    evolved(table)
    table.append(
        pa.Table.from_pylist([{"id": 1 << 40, "title": "new", "gone": 7}], arrow_of(table.schema()))
    )
    tasks = list(table.scan().plan_files())
    assert [len(read(table, task)) for task in tasks] in ([1, 50], [50, 1])
    assert all(read(table, task) == scanned(table, task) for task in tasks)


def test_keys_are_looked_for_only_in_row_groups_whose_bounds_have_them(tmp_path: Path) -> None:
    table = made_in(tmp_path)
    with table.transaction() as change:
        change.set_properties({"write.parquet.row-group-limit": "10"})
    table.append(rows(0, 30))
    evolved(table)
    (task,) = table.scan().plan_files()
    with Reading.of(table).open(task, arrow_of(table.schema())) as opened:
        assert isinstance(opened, OpenParquetFile)
        found = [opened.bounds(group, "id") for group in opened.groups]
        assert [(low.as_py(), high.as_py()) for low, high in filter(None, found)] == [
            (0, 9),
            (10, 19),
            (20, 29),
        ]
        assert [opened.rows_before(group) for group in opened.groups] == [0, 10, 20]
        assert opened.read(1, ["id", "gone"]).to_pydict() == {
            "id": list(range(10, 20)),
            "gone": [None] * 10,
        }
        # The column of this name is another than that of the file.
        assert opened.bounds(0, "gone") is None


def test_a_file_without_any_of_the_columns_still_has_its_rows(tmp_path: Path) -> None:
    table = made_in(tmp_path)
    table.append(rows(0, 5))
    with table.update_schema() as update:
        update.add_column("new", IntegerType())
    (task,) = table.scan().plan_files()
    with Reading.of(table).open(task, arrow_of(table.schema())) as opened:
        assert opened.read(0, ["new"]).to_pydict() == {"new": [None] * 5}


def test_files_without_ids_of_fields_are_read_by_the_mapping_of_names(tmp_path: Path) -> None:
    table = made_in(tmp_path)
    path = tmp_path / "moved.parquet"
    pq.write_table(rows(0, 9).drop(["gone"]), path)
    table.add_files([str(path)])
    evolved(table)
    (task,) = table.scan().plan_files()
    assert len(read(table, task)) == 9
    assert read(table, task) == scanned(table, task)


@pytest.mark.parametrize("trouble", ["deletes", "folders"])
def test_deletes_and_columns_that_only_folders_have_are_left_to_pyiceberg(
    tmp_path: Path, trouble: str
) -> None:
    table = made_in(tmp_path)
    path = tmp_path / "theirs.parquet"
    pq.write_table(rows(0, 9).drop(["gone"]), path)
    table.add_files([str(path)])
    (known,) = table.scan().plan_files()
    if trouble == "deletes":
        beside = tmp_path / "deletes.parquet"
        pq.write_table(pa.table({"file_path": [known.file.file_path] * 2, "pos": [0, 5]}), beside)
        task = FileScanTask(
            known.file, {entry_of(beside, DataFileContent.POSITION_DELETES, Record(), 0)}
        )
        expected = [1, 2, 3, 4, 6, 7, 8]
    else:
        with table.update_spec() as update:
            update.add_identity("gone")
        file = entry_of(path, DataFileContent.DATA, Record("folder"), table.spec().spec_id)
        task, expected = FileScanTask(file), list(range(9))
    with Reading.of(table).open(task, arrow_of(table.schema())) as opened:
        assert isinstance(opened, OpenWholeFile)
    found = read(table, task)
    assert [row["id"] for row in found] == expected
    assert {row["gone"] for row in found} == {"folder" if trouble == "folders" else None}
    assert found == scanned(table, task)


def entry_of(path: Path, content: DataFileContent, partition: Record, spec_id: int) -> DataFile:
    made = DataFile.from_args(
        content=content,
        file_path=str(path),
        file_format=FileFormat.PARQUET,
        partition=partition,
        record_count=2,
        file_size_in_bytes=path.stat().st_size,
    )
    made.spec_id = spec_id
    return made


def test_null_lists_and_maps_of_structs_stay_null_when_the_schema_has_changed(
    tmp_path: Path,
) -> None:
    point = pa.struct([("x", pa.int64())])
    schema = pa.schema(
        [
            ("id", pa.int64()),
            ("points", pa.list_(point)),
            ("places", pa.map_(pa.string(), point)),
            ("paths", pa.list_(pa.list_(point))),
            ("within", pa.struct([("points", pa.list_(point))])),
        ]
    )
    some = [{"x": 1}, None, {"x": None}]
    made = [
        {"id": 0, "points": None, "places": None, "paths": None, "within": None},
        {"id": 1, "points": [], "places": [], "paths": [], "within": {"points": None}},
        {"id": 2, "points": some, "places": [("a", {"x": 2})], "paths": [None, [], some],
         "within": {"points": some}},
        {"id": 3, "points": None, "places": None, "paths": [None], "within": {"points": []}},
    ]  # fmt: skip
    written = pa.Table.from_pylist(made * 5, schema)
    table = made_in(tmp_path, schema)
    # What pyiceberg writes has no null lists of structs: it projects before it writes, too.
    file = tmp_path / "file.parquet"
    pq.write_table(written, file, row_group_size=7)
    table.add_files([f"file://{file}"])
    with table.update_schema() as update:
        update.add_column("more", StringType())
        update.add_column(("points", "element", "y"), LongType())
    (task,) = table.scan().plan_files()

    def brief(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Without what was added."""
        points = [
            None if row["points"] is None
            else [each if each is None else {"x": each["x"]} for each in row["points"]]
            for row in rows
        ]  # fmt: skip
        kept = [{name: row[name] for name in schema.names} for row in rows]
        return [{**row, "points": each} for row, each in zip(kept, points, strict=True)]

    assert brief(read(table, task)) == written.to_pylist()
    arrow = arrow_of(table.schema())
    whole = OpenWholeFile(Reading.of(table), task, arrow)
    (group,) = whole.groups
    found = pa.Table.from_batches(list(whole.batches(group)), arrow).to_pylist()
    assert brief(found) == written.to_pylist()


def test_what_is_projected_keeps_the_ids_of_fields_and_may_be_a_slice(tmp_path: Path) -> None:
    point = pa.struct([pa.field("x", pa.int64(), metadata={"PARQUET:field_id": "3"})])
    within = pa.field("element", point, metadata={"PARQUET:field_id": "2"})
    wanted = ListType(2, StructType(NestedField(3, "x", LongType())), element_required=False)
    schema = Schema(NestedField(1, "points", wanted))
    projection = Projection(schema, include_field_ids=True, format_model=ParquetFormatModel())
    array = pa.array([[{"x": 0}], None, [{"x": 1}, None], [], None], pa.list_(within)).slice(1, 4)

    found = projection.list(wanted, array, array.values)

    assert found.to_pylist() == [None, [{"x": 1}, None], [], None]
    assert found.type.value_field.metadata[b"PARQUET:field_id"] == b"2"
