"""The life of a table, which is the same whatever catalog has its name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from pyiceberg.catalog import load_catalog
from pyspark.sql import SparkSession

from moldau.spark.lake import IcebergSink, Offsets
from moldau.spark.lake.iceberg.commit import Commit
from tests.spark.lake.batches import numbers, offsets


def every_batch_is_there_once(
    spark: SparkSession, catalog: Mapping[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rival commits between this driver's look and its commit; batches come again."""

    def sink() -> IcebergSink:
        by = ["bucket(2, n)"]
        return IcebergSink("shop.orders", app_id="app", catalog=catalog, partition_by=by)

    assert sink().committed_offsets() is None
    sink().write(numbers(spark, 0, 10), 0, offsets(0, 10))
    commit_once = Commit.is_done_once
    rivals = [sink()]

    def after_the_rival(commit: Commit) -> bool:
        if rivals:
            rivals.pop().write(numbers(spark, 10, 20), 1, offsets(10, 20))
        return commit_once(commit)

    with monkeypatch.context() as patched:
        patched.setattr(Commit, "is_done_once", after_the_rival)
        assert sink().write(numbers(spark, 10, 20), 1, offsets(10, 20)).skipped
    assert sink().write(numbers(spark, 10, 20), 1, offsets(10, 20)).skipped
    assert sink().committed_offsets() == (1, Offsets.at({"orders": {0: 20}}))
    sink().write(spark.sql("SELECT 20L AS n, 'new' AS more"), 2, offsets(20, 21))
    rows = rows_of(catalog, "shop.orders")
    assert sorted(row["n"] for row in rows) == list(range(21))
    assert [row["more"] for row in rows if row["more"]] == ["new"]


def an_upsert_replaces_and_deletes(spark: SparkSession, catalog: Mapping[str, str]) -> None:
    def write(batch: int, *events: str) -> bool:
        sink = IcebergSink(
            "shop.people",
            app_id="app",
            catalog=catalog,
            mode="upsert",
            keys=["id"],
            order_by=["at"],
            delete_where="gone",
        )
        rows = spark.sql(f"SELECT * FROM VALUES {', '.join(events)} AS t(id, at, city, gone)")
        return sink.write(rows, batch).skipped

    assert not write(0, "(1, 5, 'a', false)", "(2, 5, 'b', false)", "(3, 5, 'c', false)")
    second = ["(1, 4, 'late', false)", "(2, 6, '', true)", "(3, 6, 'd', false)"]
    assert not write(1, *second, "(4, 6, 'e', false)")
    assert write(1, *second, "(4, 6, 'e', false)")
    # Older than the delete, which is remembered.
    assert not write(2, "(2, 5, 'b', false)")
    rows = rows_of(catalog, "shop.people")
    assert sorted((row["id"], row["city"]) for row in rows) == [(1, "a"), (3, "d"), (4, "e")]


def rows_of(catalog: Mapping[str, str], name: str) -> list[dict[str, Any]]:
    """The rows of a table as pyiceberg alone finds them."""
    table = load_catalog("reader", **catalog).load_table(name)
    rows: list[dict[str, Any]] = table.scan().to_arrow().to_pylist()
    return rows
