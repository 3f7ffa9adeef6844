"""Tables that AWS Glue has the names of, as moto plays it; their files are in a local folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from moto import mock_aws
from pyspark.sql import SparkSession

from tests.spark.lake.iceberg.catalogs import story

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(400)]


@pytest.fixture
def glue(tmp_path: Path) -> Iterator[dict[str, str]]:
    with mock_aws():
        yield {"type": "glue", "glue.region": "eu-central-1", "warehouse": tmp_path.as_uri()}


def test_a_table_in_glue_gets_every_batch_once(
    spark: SparkSession, glue: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    story.every_batch_is_there_once(spark, glue, monkeypatch)


def test_upserts_into_a_table_in_glue(spark: SparkSession, glue: dict[str, str]) -> None:
    story.an_upsert_replaces_and_deletes(spark, glue)
