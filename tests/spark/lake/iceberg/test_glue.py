"""Tables that AWS Glue has the names of, as moto plays it; their files are in a local folder."""

from __future__ import annotations

from pathlib import Path

import pytest
from moto import mock_aws
from pyiceberg.catalog import load_catalog
from pyspark.sql import SparkSession

from moldau.spark.lake import IcebergSink, Offsets
from moldau.spark.lake.iceberg.commit import Commit
from tests.spark.lake.batches import numbers, offsets

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(400)]

GLUE = {"type": "glue", "glue.region": "eu-central-1"}


def test_a_table_in_glue_gets_every_batch_once(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def sink() -> IcebergSink:
        by = ["bucket(2, n)"]
        where = str(tmp_path)
        return IcebergSink(
            "shop.orders", app_id="app", warehouse=where, catalog=GLUE, partition_by=by
        )

    with mock_aws():
        assert sink().committed_offsets() is None
        sink().write(numbers(spark, 0, 10), 0, offsets(0, 10))
        commit_once = Commit.is_done_once
        rivals = [sink()]

        def after_the_rival(commit: Commit) -> bool:
            if rivals:
                rivals.pop().write(numbers(spark, 10, 20), 1, offsets(10, 20))
            return commit_once(commit)

        monkeypatch.setattr(Commit, "is_done_once", after_the_rival)
        assert sink().write(numbers(spark, 10, 20), 1, offsets(10, 20)).skipped
        assert sink().write(numbers(spark, 10, 20), 1, offsets(10, 20)).skipped
        assert sink().committed_offsets() == (1, Offsets.at({"orders": {0: 20}}))
        sink().write(spark.sql("SELECT 20L AS n, 'new' AS more"), 2, offsets(20, 21))
        catalog = load_catalog("glue", **GLUE, warehouse=tmp_path.as_uri())
        rows = catalog.load_table("shop.orders").scan().to_arrow().to_pylist()
    assert sorted(row["n"] for row in rows) == list(range(21))
    assert [row["more"] for row in rows if row["more"]] == ["new"]
