"""Catalogs of Iceberg tables."""

from __future__ import annotations

import threading
from pathlib import Path

import pyarrow as pa
import pytest

from moldau.spark.lake.errors import LakeError
from moldau.spark.lake.iceberg.catalog import CatalogTable
from moldau.spark.lake.iceberg.schema import spec_of, table_schema
from moldau.spark.lake.iceberg.transforms import parse_transforms
from tests.spark.lake.iceberg.catalogs.asked import asked

SINKS = 6


@pytest.mark.parametrize("is_same", [False, True])
def test_sinks_that_start_together_make_one_catalog(tmp_path: Path, is_same: bool) -> None:
    """Every sink finds no catalog, no namespace and no table, and makes all three."""
    schema = table_schema(pa.schema([("n", pa.int64())]))
    spec = spec_of(schema, parse_transforms(["bucket(2, n)"]))
    together = threading.Barrier(SINKS)
    problems: list[Exception] = []

    def start(number: int) -> None:
        target = CatalogTable(f"shop.orders{0 if is_same else number}", str(tmp_path))
        try:
            together.wait(30)
            assert target.open() is None or is_same
            target.create(schema, spec)
            assert target.open() is not None
        except Exception as problem:
            problems.append(problem)

    sinks = [threading.Thread(target=start, args=(number,)) for number in range(SINKS)]
    for each in sinks:
        each.start()
    for each in sinks:
        each.join(60)
    assert not problems
    names = {f"shop.orders{number}" for number in range(1 if is_same else SINKS)}
    assert all(CatalogTable(name, str(tmp_path)).open() is not None for name in names)


def test_a_catalog_that_stays_out_of_reach_is_named(tmp_path: Path) -> None:
    (tmp_path / "catalog.db").write_bytes(b"no database" * 200)
    schema = table_schema(pa.schema([("n", pa.int64())]))
    target = CatalogTable("shop.orders", str(tmp_path))
    for attempt in (target.open, lambda: target.create(schema, spec_of(schema, ()))):
        with pytest.raises(LakeError, match=r"shop.orders: the catalog at sqlite.* failed"):
            attempt()


@pytest.mark.parametrize("kind", [{"type": "rest"}, {}])
def test_a_rest_catalog_is_told_the_warehouse_by_the_name_that_it_has_there(
    kind: dict[str, str],
) -> None:
    with asked() as (uri, requests):
        with pytest.raises(LakeError, match=r"the catalog at http://127\.0\.0\.1.* failed"):
            CatalogTable("shop.orders", "prod", kind | {"uri": uri}).open()
        assert requests[0].endswith("?warehouse=prod")


def test_other_catalogs_are_told_a_warehouse_that_is_a_folder_by_its_uri(tmp_path: Path) -> None:
    catalog = {"type": "hive", "uri": "thrift://127.0.0.1:1"}
    table = CatalogTable("shop.orders", str(tmp_path), catalog)
    assert table._properties["warehouse"] == tmp_path.as_uri()
