"""Tables that a real Hive metastore has the names of, whose commits take a lock there."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from hive_metastore.ttypes import LockState, UnlockRequest
from pyiceberg.catalog import load_catalog
from pyiceberg.catalog.hive import HiveCatalog
from pyspark.sql import SparkSession

from moldau.spark.lake import IcebergSink, LakeError, Offsets
from moldau.spark.lake.iceberg.commit import Commit
from tests.spark.lake.batches import numbers, offsets
from tests.spark.lake.iceberg.catalogs import story
from tests.spark.lake.iceberg.catalogs.servers import hive_metastore

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("hive")


@pytest.fixture(scope="module")
def hive(folder: Path) -> Iterator[dict[str, str]]:
    with hive_metastore(folder) as uri:
        # pyiceberg asks once for a lock that another has, and then says that the commit failed.
        yield {"type": "hive", "uri": uri, "lock-check-retries": "1"}


@contextmanager
def lock_on(hive: dict[str, str], table: str) -> Iterator[None]:
    """The lock of a writer that is in the middle of a commit."""
    catalog = load_catalog("rival", **hive)
    assert isinstance(catalog, HiveCatalog)
    with catalog._client as client:
        lock = client.lock(catalog._create_lock_request("shop", table))
        assert lock.state == LockState.ACQUIRED
        yield
        client.unlock(UnlockRequest(lockid=lock.lockid))


def test_a_table_in_hive_gets_every_batch_once(
    spark: SparkSession, hive: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    story.every_batch_is_there_once(spark, hive, monkeypatch)


def test_upserts_into_a_table_in_hive(spark: SparkSession, hive: dict[str, str]) -> None:
    story.an_upsert_replaces_and_deletes(spark, hive)


def test_a_batch_waits_for_the_lock_of_another_writer(
    spark: SparkSession, hive: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = IcebergSink("shop.waiting", app_id="app", catalog=hive)
    sink.write(numbers(spark, 0, 10), 0, offsets(0, 10))
    commit_once = Commit.is_done_once
    failures: list[str] = []
    rival = ExitStack()

    def until_the_second_time(commit: Commit) -> bool:
        is_done = commit_once(commit)
        if not is_done:
            failures.append(str(commit.failure))
            if len(failures) == 2:
                rival.close()
        return is_done

    monkeypatch.setattr(Commit, "is_done_once", until_the_second_time)
    with rival:
        rival.enter_context(lock_on(hive, "waiting"))
        assert sink.write(numbers(spark, 10, 20), 1, offsets(10, 20)).rows == 10
    assert len(failures) == 2
    assert all("Failed to acquire lock" in each for each in failures)
    rows = story.rows_of(hive, "shop.waiting")
    assert sorted(row["n"] for row in rows) == list(range(20))
    # What the failed commits had written is gone.
    table = load_catalog("reader", **hive).load_table("shop.waiting")
    current = table.current_snapshot()
    assert current is not None
    lists = {snapshot.manifest_list for snapshot in table.snapshots()}
    known = {manifest.manifest_path for manifest in current.manifests(table.io)} | lists
    metadata = Path(table.location().removeprefix("file:"), "metadata")
    assert {path.name for path in metadata.glob("*.avro")} == {Path(each).name for each in known}


def test_a_lock_that_is_never_given_up_is_named_and_the_batch_comes_again(
    spark: SparkSession, hive: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = IcebergSink("shop.locked", app_id="app", catalog=hive)
    sink.write(numbers(spark, 0, 10), 0, offsets(0, 10))
    with lock_on(hive, "locked"), monkeypatch.context() as patched:
        patched.setattr("moldau.spark.lake.iceberg.sink.COMMIT_WITHIN_S", 0.0)
        with pytest.raises(LakeError, match=r"batch 1 was not committed.*Failed to acquire lock"):
            sink.write(numbers(spark, 10, 20), 1, offsets(10, 20))
    assert sink.committed_offsets() == (0, Offsets.at({"orders": {0: 10}}))
    assert not sink.write(numbers(spark, 10, 20), 1, offsets(10, 20)).skipped
    rows = story.rows_of(hive, "shop.locked")
    assert sorted(row["n"] for row in rows) == list(range(20))


def test_the_metastore_keeps_the_offsets_of_many_partitions(
    spark: SparkSession, hive: dict[str, str]
) -> None:
    """pyiceberg gives the table's properties to Hive, whose own used to be short."""
    ends = dict.fromkeys(range(1000), (0, 10**12))
    sink = IcebergSink("shop.wide", app_id="app", catalog=hive)
    sink.write(numbers(spark, 0, 1), 0, Offsets({"orders": ends}))
    again = IcebergSink("shop.wide", app_id="app", catalog=hive)
    assert again.committed_offsets() == (0, Offsets.at({"orders": dict.fromkeys(ends, 10**12)}))


def test_a_metastore_that_is_gone_at_the_commit_is_named_and_the_batch_comes_again(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit_once = Commit.is_done_once
    with ExitStack() as running, monkeypatch.context() as patched:
        uri = running.enter_context(hive_metastore(tmp_path))
        sink = IcebergSink("shop.lost", app_id="app", catalog={"type": "hive", "uri": uri})
        sink.write(numbers(spark, 0, 10), 0, offsets(0, 10))

        def after_its_end(commit: Commit) -> bool:
            running.close()
            return commit_once(commit)

        patched.setattr(Commit, "is_done_once", after_its_end)
        with pytest.raises(LakeError, match=r"shop\.lost: the catalog at thrift://.* failed"):
            sink.write(numbers(spark, 10, 20), 1, offsets(10, 20))
    with hive_metastore(tmp_path) as uri:
        hive = {"type": "hive", "uri": uri}
        sink = IcebergSink("shop.lost", app_id="app", catalog=hive)
        assert sink.write(numbers(spark, 10, 20), 1, offsets(10, 20)).rows == 10
        rows = story.rows_of(hive, "shop.lost")
    assert sorted(row["n"] for row in rows) == list(range(20))
