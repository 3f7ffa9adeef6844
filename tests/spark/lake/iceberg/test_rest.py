"""Tables behind Apache Iceberg's own REST catalog, a Java process."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from tests.spark.lake.iceberg.catalogs import story
from tests.spark.lake.iceberg.catalogs.servers import rest_catalog

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def rest(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    with rest_catalog(tmp_path_factory.mktemp("rest")) as uri:
        yield {"type": "rest", "uri": uri}


def test_a_table_behind_rest_gets_every_batch_once(
    spark: SparkSession, rest: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    story.every_batch_is_there_once(spark, rest, monkeypatch)


def test_upserts_into_a_table_behind_rest(spark: SparkSession, rest: dict[str, str]) -> None:
    story.an_upsert_replaces_and_deletes(spark, rest)
