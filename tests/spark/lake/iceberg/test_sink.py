"""The Iceberg sink on a real Spark, batch by batch, and what crashes and rivals do to it."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.exceptions import CommitFailedException
from pyspark.sql import SparkSession

from moldau.spark.lake import (
    IcebergSink,
    LakeError,
    OffsetConflict,
    Offsets,
    SchemaConflict,
    Written,
)
from moldau.spark.lake.iceberg.commit import Commit
from moldau.spark.lake.iceberg.journal import BATCH, Marks
from tests.spark.lake.batches import numbers, offsets
from tests.spark.lake.iceberg.tables import (
    data_files,
    duckdb_rows,
    polars_rows,
    rows_of,
    table_of,
    values_of,
)

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(400)]

TABLE = "shop.orders"
ALL_TYPES = [
    "id",
    "string(id) s",
    "timestamp'2024-03-31 01:30:00.123456' t",
    "timestamp_ntz'2024-01-01 00:00:00' n",
    "date'2024-02-29' d",
    "cast(id / 3 as decimal(20, 5)) e",
    "binary('\\0x') b",
    "array(id, null) a",
    "map('k', struct(id as x, timestamp'1969-12-31 23:59:59' as y)) m",
    "struct(float(id) as f, array(struct(double('NaN') as z)) as l) st",
    "tinyint(id) i",
    "if(id = 1, null, id > 1) o",
    "cast(null as map<int, int>) nothing",
]


def sink_to(warehouse: Path, app_id: str = "app", **settings: Any) -> IcebergSink:
    return IcebergSink(TABLE, app_id=app_id, warehouse=str(warehouse), **settings)


def test_a_batch_that_is_written_again_changes_nothing(spark: SparkSession, tmp_path: Path) -> None:
    sink = sink_to(tmp_path)
    assert sink.committed_offsets() is None
    assert not list(tmp_path.iterdir())
    written = sink.write(numbers(spark, 0, 10), 0, offsets(0, 10))
    assert (written.rows, written.files, written.skipped) == (10, 2, False)
    assert written.bytes == sum((tmp_path / name).stat().st_size for name in data_files(tmp_path))
    sink.write(numbers(spark, 10, 15), 1, offsets(10, 15))
    files = data_files(tmp_path)
    for again in (sink, sink_to(tmp_path)):
        for batch_id in (0, 1):
            assert again.write(numbers(spark, 0, 99), batch_id) == Written(skipped=True)
    assert values_of(tmp_path, "n") == list(range(15))
    assert data_files(tmp_path) == files
    assert sink.committed_offsets() == (1, Offsets.at({"orders": {0: 15}}))
    assert sink_to(tmp_path, "other").committed_offsets() is None


def test_every_type_arrives_as_it_is_in_other_engines(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.range(4).selectExpr(*ALL_TYPES)
    sink_to(tmp_path).write(frame, 0)
    table = table_of(tmp_path)
    files = [str(tmp_path / name) for name in data_files(tmp_path)]
    back = spark.read.schema(frame.withColumn("i", frame.i.cast("int")).schema).parquet(*files)
    wanted = frame.withColumn("i", frame.i.cast("int")).collect()
    shown = [row.asDict(recursive=True) for row in back.orderBy("id").collect()]
    assert str(shown) == str([row.asDict(recursive=True) for row in wanted])
    assert duckdb_rows(
        table, "SELECT count(*), sum(id), sum(i), min(s), max(t) IS NULL FROM it"
    ) == [(4, 6, 6, "0", False)]
    ours = sorted(polars_rows(table), key=lambda row: row["id"])
    theirs = sorted(rows_of(tmp_path), key=lambda row: row["id"])
    assert [row["e"] for row in ours] == [row["e"] for row in theirs]
    assert [row["a"] for row in ours] == [[each, None] for each in range(4)]


def test_two_drivers_with_the_same_batch_leave_it_once(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rival commits after this driver has looked for the batch, and before its commit."""
    sink_to(tmp_path).write(numbers(spark, 0, 10), 0, offsets(0, 10))
    commit_once = Commit.is_done_once
    rivals = [sink_to(tmp_path)]
    seen: list[Written] = []

    def after_the_rival(commit: Commit) -> bool:
        if rivals:
            seen.append(rivals.pop().write(numbers(spark, 10, 20), 1, offsets(10, 20)))
        return commit_once(commit)

    monkeypatch.setattr(Commit, "is_done_once", after_the_rival)
    # pyiceberg itself would try again, and succeed: the table allows it.
    assert int(table_of(tmp_path).properties.get("commit.retry.num-retries", 4)) > 0
    late = sink_to(tmp_path).write(numbers(spark, 10, 20), 1, offsets(10, 20))
    assert late == Written(skipped=True)
    assert [each.rows for each in seen] == [10]
    assert values_of(tmp_path, "n") == list(range(20))


def test_many_drivers_that_write_the_same_batches_at_once_leave_each_once(
    spark: SparkSession, tmp_path: Path
) -> None:
    sink_to(tmp_path).write(numbers(spark, 0, 1), 0)
    problems: list[Exception] = []
    together = threading.Barrier(3)

    def drive() -> None:
        try:
            sink = sink_to(tmp_path)
            for batch in (1, 2, 3):
                together.wait(60)
                sink.write(numbers(spark, 10 * batch, 10 * batch + 4), batch)
        except Exception as problem:
            problems.append(problem)
            together.abort()

    drivers = [threading.Thread(target=drive) for _ in range(3)]
    for each in drivers:
        each.start()
    for each in drivers:
        each.join(120)
    assert not problems
    assert values_of(tmp_path, "n") == [0, *range(10, 14), *range(20, 24), *range(30, 34)]


def test_a_crash_before_the_commit_leaves_files_that_no_snapshot_has(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = sink_to(tmp_path)
    sink.write(numbers(spark, 0, 10), 0, offsets(0, 10))
    before = data_files(tmp_path)

    def die(_: Commit) -> bool:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Commit, "is_done_once", die)
        with pytest.raises(KeyboardInterrupt):
            sink.write(numbers(spark, 10, 20), 1, offsets(10, 20))
    assert data_files(tmp_path) > before
    assert values_of(tmp_path, "n") == list(range(10))
    assert not sink_to(tmp_path).write(numbers(spark, 10, 20), 1, offsets(10, 20)).skipped
    assert values_of(tmp_path, "n") == list(range(20))


def test_a_commit_whose_answer_is_lost_counts(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The catalog has it, and says that it failed: as after a request that was sent twice."""
    from pyiceberg.catalog.sql import SqlCatalog

    sink = sink_to(tmp_path)
    sink.write(numbers(spark, 0, 10), 0)
    commit_table = SqlCatalog.commit_table
    answers: list[Exception] = [CommitFailedException("main has moved"), TimeoutError("no answer")]
    for batch, answer in enumerate(answers, 1):
        lost = [answer]

        def losing(*arguments: Any, lost: list[Exception] = lost) -> Any:
            response = commit_table(*arguments)
            if lost:
                raise lost.pop()
            return response

        with monkeypatch.context() as patched:
            patched.setattr(SqlCatalog, "commit_table", losing)
            written = sink.write(numbers(spark, 10 * batch, 10 * batch + 10), batch)
        assert (written.rows, written.skipped, lost) == (10, False, [])
        # Nothing that the snapshot needs was cleaned up.
        assert values_of(tmp_path, "n") == list(range(10 * batch + 10))


def test_a_crash_after_the_commit_and_an_expired_snapshot_do_not_bring_the_batch_twice(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Spark had not noted the batch as done; meanwhile the snapshot that says so has expired."""
    sink = sink_to(tmp_path)
    for batch in range(3):
        first = 10 * batch
        sink.write(numbers(spark, first, first + 10), batch, offsets(first, first + 10))
    table = table_of(tmp_path)
    current = table.current_snapshot()
    assert current is not None
    older = [each.snapshot_id for each in table.snapshots() if each != current]
    table.maintenance.expire_snapshots().by_ids(older).commit()
    assert len(table_of(tmp_path).snapshots()) == 1
    for batch in (1, 2):
        assert sink_to(tmp_path).write(numbers(spark, 0, 99), batch) == Written(skipped=True)
    assert sink_to(tmp_path).committed_offsets() == (2, Offsets.at({"orders": {0: 30}}))
    # Another writer's snapshots bury the marker, and all of ours expire.
    table = table_of(tmp_path)
    table.append(pa.table({"n": pa.array([100], pa.int64())}))
    table.maintenance.expire_snapshots().by_id(current.snapshot_id).commit()
    summaries = [each.summary for each in table_of(tmp_path).snapshots()]
    assert all(each is not None and each.get(BATCH) is None for each in summaries)
    assert sink_to(tmp_path).write(numbers(spark, 0, 99), 2) == Written(skipped=True)
    assert values_of(tmp_path, "n") == [*range(30), 100]


def test_a_removed_property_leaves_the_snapshots_to_tell(
    spark: SparkSession, tmp_path: Path
) -> None:
    sink = sink_to(tmp_path)
    sink.write(numbers(spark, 0, 10), 0, offsets(0, 10))
    table = table_of(tmp_path)
    with table.transaction() as transaction:
        transaction.remove_properties("moldau.batches.app")
    assert sink.write(numbers(spark, 0, 10), 0).skipped
    assert sink.committed_offsets() == (0, Offsets.at({"orders": {0: 10}}))
    found = Marks(table_of(tmp_path), "app").transaction_version("app/")
    assert found == 0


def test_records_of_another_query_are_refused_unless_it_goes_on(
    spark: SparkSession, tmp_path: Path
) -> None:
    context = spark.sparkContext
    try:
        context.setLocalProperty("sql.streaming.queryId", "one")
        sink_to(tmp_path).write(numbers(spark, 0, 10), 0, offsets(0, 10))
        context.setLocalProperty("sql.streaming.queryId", "two")
        with pytest.raises(OffsetConflict, match=r"begins at 0; to continue .*startingOffsets"):
            sink_to(tmp_path).write(numbers(spark, 0, 10), 0, offsets(0, 10))
        sink_to(tmp_path).write(numbers(spark, 10, 20), 0, offsets(10, 20))
    finally:
        context.setLocalProperty("sql.streaming.queryId", None)  # type: ignore[arg-type]
    assert values_of(tmp_path, "n") == list(range(20))


def test_complete_replaces_all_rows_in_one_snapshot(spark: SparkSession, tmp_path: Path) -> None:
    sink = sink_to(tmp_path, mode="complete", partition_by=["bucket(4, n)"])
    for batch in range(3):
        sink.write(numbers(spark, batch, 20 + batch), batch)
        assert values_of(tmp_path, "n") == list(range(batch, 20 + batch))
    assert len(table_of(tmp_path).snapshots()) == 3
    assert sink.write(numbers(spark, 0, 1), 2).skipped
    sink.write(numbers(spark, 0, 0), 3)
    assert values_of(tmp_path, "n") == []


def test_partitions_are_pruned_by_other_engines(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.range(100).selectExpr(
        "id",
        "timestamp'2024-02-28 12:00:00' + make_interval(0, 0, 0, 0, int(id)) AS time",
        "if(id % 10 = 0, null, string(id % 3)) AS city",
    )
    by = ["days(time)", "bucket(4, id)", "city"]
    sink_to(tmp_path, partition_by=by).write(frame, 0)
    table = table_of(tmp_path)
    assert [str(field.transform) for field in table.spec().fields] == [
        "day",
        "bucket[4]",
        "identity",
    ]
    for condition, wanted in (
        ("time >= '2024-03-01T00:00:00+00:00'", "time >= timestamp'2024-03-01 00:00:00'"),
        ("id == 42", "id = 42"),
        ("city is null", "city IS NULL"),
    ):
        scan = table.scan(row_filter=condition)
        found = sorted(scan.to_arrow().column("id").to_pylist())
        assert found == [row.id for row in frame.where(wanted).orderBy("id").collect()]
        assert 0 < len(list(scan.plan_files())) < len(list(table.scan().plan_files()))
    assert duckdb_rows(table, "SELECT count(*) FROM it WHERE id = 42 AND city = '0'") == [(1,)]
    assert any("time_day=2024-02-29" in name for name in data_files(tmp_path))
    # The table's own partitioning holds, whatever a later sink leaves out; another is refused.
    sink_to(tmp_path).write(frame, 1)
    with pytest.raises(LakeError, match=r"is partitioned by days\(time\), bucket\(4, id\), city"):
        sink_to(tmp_path, partition_by=["hours(time)"]).write(frame, 2)
    assert len(rows_of(tmp_path)) == 200


def test_columns_are_added_and_widened_and_nothing_else(
    spark: SparkSession, tmp_path: Path
) -> None:
    sink = sink_to(tmp_path)
    sink.write(
        spark.sql("SELECT 1 n, float(1.5) f, cast(1 AS decimal(4, 1)) d, struct(1 AS a) s"), 0
    )
    wider = (
        "SELECT 1L << 40 n, double(2.5) f, cast(2 AS decimal(9, 1)) d, struct(2L AS a, 'x' AS b) s"
    )
    sink.write(spark.sql(f"{wider}, 'new' AS more"), 1)
    sink.write(spark.sql("SELECT 3 n"), 2)
    rows = sorted(rows_of(tmp_path), key=lambda row: row["n"])
    assert [row["n"] for row in rows] == [1, 3, 1 << 40]
    assert [row["more"] for row in rows] == [None, None, "new"]
    assert [row["s"] for row in rows] == [{"a": 1, "b": None}, None, {"a": 2, "b": "x"}]
    assert duckdb_rows(table_of(tmp_path), "SELECT sum(n), max(d) FROM it")[0][0] == 4 + (1 << 40)
    version = table_of(tmp_path).metadata
    for sql, column in (("'text' n", "n"), ("3 n, struct('x' AS a) s", "s.a"), ("3 n, 'x' f", "f")):
        with pytest.raises(SchemaConflict) as refused:
            sink.write(spark.sql(f"SELECT {sql}"), 3)
        assert refused.value.column == column
    assert table_of(tmp_path).metadata == version


def test_many_batches_do_not_leave_a_manifest_each(spark: SparkSession, tmp_path: Path) -> None:
    sink = sink_to(tmp_path)
    sink.write(numbers(spark, 0, 1), 0)
    table = table_of(tmp_path)
    with table.transaction() as transaction:
        transaction.set_properties({"commit.manifest.min-count-to-merge": "3"})
    for batch in range(1, 8):
        sink.write(numbers(spark, batch, batch + 1), batch)
    table = table_of(tmp_path)
    current = table.current_snapshot()
    assert current is not None
    assert len(current.manifests(table.io)) < 4
    assert values_of(tmp_path, "n") == list(range(8))


def test_settings_that_cannot_work_are_refused(tmp_path: Path) -> None:
    with pytest.raises(LakeError, match="is not a catalog table name"):
        IcebergSink("orders", app_id="app", warehouse=str(tmp_path))
    with pytest.raises(LakeError, match="give 'warehouse'"):
        IcebergSink(TABLE, app_id="app")
    with pytest.raises(LakeError, match="give 'warehouse'"):
        IcebergSink(TABLE, app_id="app", warehouse="s3://bucket/lake")
    with pytest.raises(ValueError, match="app_id must not be empty"):
        IcebergSink(TABLE, app_id="", warehouse=str(tmp_path))
    down = {"type": "rest", "uri": "http://127.0.0.1:1"}
    with pytest.raises(LakeError, match=r"shop.orders: the catalog at http://127.0.0.1:1 failed"):
        IcebergSink(TABLE, app_id="app", catalog=down).committed_offsets()
