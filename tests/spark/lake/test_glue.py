"""Delta tables that AWS Glue has the names of, as moto plays it; their files are local."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3  # type: ignore[import-untyped]
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from moto import mock_aws
from pyspark.sql import SparkSession

from moldau.spark.lake import DeltaSink, LakeError
from moldau.spark.lake.evolution import schema_of
from moldau.spark.lake.glue import GlueEntry, hive_type
from moldau.spark.lake.location import Location

REGION = "eu-central-1"
GLUE = {"type": "glue", "glue.region": REGION}


@pytest.fixture(autouse=True)
def aws(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    with mock_aws():
        yield


def entry_of(database: str, table: str) -> dict[str, Any]:
    found = boto3.client("glue", region_name=REGION).get_table(DatabaseName=database, Name=table)
    return dict(found["Table"])


def read(database: str, table: str) -> list[dict[str, Any]]:
    """The rows of a table by its name, as an engine finds them."""
    entry = entry_of(database, table)
    assert entry["Parameters"]["spark.sql.sources.provider"] == "delta"
    found = DeltaTable(entry["StorageDescriptor"]["Location"])
    rows: list[dict[str, Any]] = found.to_pyarrow_table().to_pylist()
    return rows


def test_a_table_is_read_by_its_name_and_keeps_up_with_its_columns(tmp_path: Path) -> None:
    path = str(tmp_path / "orders")
    entry = GlueEntry("shop.orders", GLUE, Location.parse(path, None))
    write_deltalake(path, pa.table({"id": [1, 2]}))
    entry.register(schema_of(DeltaTable(path)))
    assert sorted(row["id"] for row in read("shop", "orders")) == [1, 2]
    write_deltalake(path, pa.table({"id": [3], "city": ["x"]}), mode="append", schema_mode="merge")
    # Another process, which has registered nothing yet.
    again = GlueEntry("shop.orders", GLUE, Location.parse(path, None))
    again.register(schema_of(DeltaTable(path)))
    columns = entry_of("shop", "orders")["StorageDescriptor"]["Columns"]
    assert columns == [{"Name": "id", "Type": "bigint"}, {"Name": "city", "Type": "string"}]
    assert len(read("shop", "orders")) == 3


def test_a_name_that_another_table_has_is_refused(tmp_path: Path) -> None:
    mine, other = (Location.parse(str(tmp_path / name), None) for name in ("mine", "other"))
    GlueEntry("shop.orders", GLUE, other).register(pa.schema([("id", pa.int64())]))
    entry = GlueEntry("shop.orders", GLUE, mine)
    with pytest.raises(LakeError, match=r"shop\.orders is a table at .*/other in Glue"):
        entry.require_free()
    with pytest.raises(LakeError, match="choose another name"):
        entry.register(pa.schema([("id", pa.int64())]))
    assert entry_of("shop", "orders")["StorageDescriptor"]["Location"] == other.uri


@pytest.mark.parametrize(
    ("name", "catalog", "said"),
    [
        ("orders", GLUE, "is not a Glue table name; write database.table"),
        ("shop.orders", {"type": "rest"}, "are registered in AWS Glue only"),
        ("", GLUE, "give 'table', the name that it has in the catalog"),
    ],
)
def test_settings_without_a_meaning_are_refused(
    tmp_path: Path, name: str, catalog: dict[str, str], said: str
) -> None:
    with pytest.raises(LakeError, match=said):
        DeltaSink(str(tmp_path), app_id="app", table=name, catalog=catalog)


def test_types_have_hives_names() -> None:
    nested = pa.struct([("a", pa.list_(pa.int32())), ("m", pa.map_(pa.string(), pa.float64()))])
    assert hive_type(nested) == "struct<a:array<int>,m:map<string,double>>"
    assert hive_type(pa.decimal128(10, 2)) == "decimal(10,2)"
    assert hive_type(pa.timestamp("us", tz="UTC")) == "timestamp"
    assert hive_type(pa.binary()) == "binary"


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_sink_registers_its_table_before_the_first_rows(
    spark: SparkSession, tmp_path: Path
) -> None:
    path = str(tmp_path / "orders")
    sink = DeltaSink(path, app_id="app", table="shop.orders", catalog=GLUE)
    sink.write(spark.sql("SELECT 1 AS id"), 0)
    sink.write(spark.sql("SELECT 2 AS id, 'x' AS city"), 1)
    assert sorted(row["id"] for row in read("shop", "orders")) == [1, 2]
    taken = DeltaSink(str(tmp_path / "b"), app_id="app", table="shop.orders", catalog=GLUE)
    with pytest.raises(LakeError, match="choose another name"):
        taken.require_fit(spark.sql("SELECT 1 AS id").schema)
