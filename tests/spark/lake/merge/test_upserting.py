"""Upserts against an oracle: plain Python over the same events, whatever way they come."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, Schema, write_deltalake
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st
from pyiceberg.types import LongType

from moldau.spark.lake.errors import LakeError
from moldau.spark.lake.evolution import require_mergeable
from moldau.spark.lake.merge.deleted_keys import MANY_FILES, DeletedKeys
from moldau.spark.lake.merge.older import Order
from moldau.spark.lake.merge.settings import MergeSettings, Scd
from moldau.spark.lake.order import DELETES
from moldau.spark.names import RECORD_ORDER
from tests.spark.lake.merge.kinds import KINDS, IcebergMerging
from tests.spark.lake.merge.merging import Merging

SCHEMA = pa.schema(
    [
        ("k", pa.int64()),
        ("p", pa.string()),
        ("at", pa.int64()),
        ("n", pa.float64()),
        ("v", pa.int64()),
    ]
)


@dataclass(frozen=True)
class Event:
    k: int
    p: str
    at: int | None
    n: float | None
    v: int
    deletes: bool

    @property
    def key(self) -> tuple[int, str]:
        return self.k, self.p

    @property
    def order(self) -> tuple[Any, ...]:
        """Null first, and what is no number last."""
        n = (0, 0.0) if self.n is None else (2, 0.0) if self.n != self.n else (1, self.n)
        return (self.at is not None, self.at or 0, n)

    @property
    def row(self) -> dict[str, Any]:
        return {"k": self.k, "p": self.p, "at": self.at, "n": self.n, "v": self.v}


EVENTS = st.lists(
    st.builds(
        Event,
        k=st.integers(0, 5),
        p=st.sampled_from(["a", "b/ü %"]),
        at=st.one_of(st.none(), st.integers(0, 6)),
        n=st.sampled_from([None, -1.0, 2.5, float("nan")]),
        v=st.integers(0, 999),
        deletes=st.booleans(),
    ),
    max_size=12,
)
STEPS = st.lists(
    st.tuples(
        EVENTS, st.sampled_from(["", "again", "crash", "compaction", "rival"]), st.integers(1, 3)
    ),
    min_size=1,
    max_size=6,
)


def newest(events: Sequence[Event]) -> dict[tuple[int, str], Event]:
    """The oracle: of each key the event that is the greatest, and the last of equals."""
    found: dict[tuple[int, str], Event] = {}
    for event in events:
        if event.key not in found or event.order >= found[event.key].order:
            found[event.key] = event
    return found


def staged(events: Sequence[Event]) -> list[dict[str, Any]]:
    return [each.row | {DELETES: each.deletes} for each in newest(events).values()]


def at_rest(table: Merging) -> set[str]:
    rows = table.rows()
    assert len({(row["k"], row["p"]) for row in rows}) == len(rows)
    return {repr(sorted(row.items())) for row in rows}


def expected(seen: Sequence[Event]) -> set[str]:
    left = (each for each in newest(seen).values() if not each.deletes)
    return {repr(sorted(each.row.items())) for each in left}


of_either_kind = pytest.mark.parametrize("kind", KINDS)


# Smaller examples of a failure would take minutes to find.
@pytest.mark.parametrize("kind", ["delta", pytest.param("iceberg", marks=pytest.mark.slow)])
@settings(max_examples=settings().max_examples // 16, phases=[Phase.explicit, Phase.generate])
@example([([Event(1, "a", 5, None, 0, True)], "", 1), ([Event(1, "a", 4, None, 1, False)], "", 1)])
@given(STEPS)
def test_the_newest_event_of_each_key_counts_in_whatever_order_they_come(
    kind: str, steps: list[tuple[list[Event], str, int]]
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        more: dict[str, Any] = {"by_url": len(steps) % 2 == 0} if kind == "delta" else {}
        table = KINDS[kind](
            Path(folder, "t"), SCHEMA, ("k", "p"), Order(("at", "n")), partition_by=("p",), **more
        )
        seen: list[Event] = []
        for events, trouble, files in steps:
            seen += events
            merge = table.merge(staged(events), files)
            if trouble == "crash":
                # All is written, but nothing committed: what comes to the same is done again.
                merge.against(table.target())
                merge = table.merge(staged(events), files)
            rival = [Event(9, "a", len(seen), None, 1, False)]
            if trouble == "rival":
                seen += rival
                table.commit(merge, between=lambda: table.commit(table.merge(staged(rival))))  # noqa: B023
            else:
                table.commit(merge, between=table.compact if trouble == "compaction" else _nothing)
            if trouble == "again":
                # An older query may start from the beginning.
                table.commit(table.merge(staged(seen)))
            assert at_rest(table) == expected(seen)


def _nothing() -> None:
    pass


@of_either_kind
def test_an_order_of_records_compares_offsets_within_a_partition_and_times_between(
    kind: str, tmp_path: Path
) -> None:
    order = pa.struct(
        [
            ("time", pa.int64()),
            ("topic", pa.string()),
            ("partition", pa.int32()),
            ("offset", pa.int64()),
        ]
    )
    schema = pa.schema([("k", pa.int64()), (RECORD_ORDER, order)])
    table = KINDS[kind](tmp_path / "t", schema, ("k",), Order(is_by_record=True))

    def after(partition: int, offset: int, time: int, deletes: bool = False) -> list[int]:
        record = {"time": time, "topic": "t", "partition": partition, "offset": offset}
        table.commit(table.merge([{"k": 1, RECORD_ORDER: record, DELETES: deletes}]))
        return [row[RECORD_ORDER]["offset"] for row in table.rows()]

    assert after(0, 9, 10) == [9]
    assert after(1, 0, 9) == [9]
    # A delete that comes late, and what came before it in time or in its partition.
    assert after(1, 3, 50, deletes=True) == []
    assert after(0, 10, 49) == []
    assert after(1, 2, 49) == []
    assert after(1, 4, 40) == [4]
    assert after(0, 99, 51, deletes=True) == []
    # The topic was made again, and counts from 0.
    assert after(1, 0, 100) == [0]


@of_either_kind
def test_a_delete_before_its_row_keeps_the_row_out(kind: str, tmp_path: Path) -> None:
    table = KINDS[kind](tmp_path / "t", SCHEMA, ("k",), Order(("at",)))
    table.commit(table.merge([_row(1, 5, deletes=True)]))
    table.commit(table.merge([_row(1, 4), _row(2, 4)]))
    assert [row["k"] for row in table.rows()] == [2]
    table.commit(table.merge([_row(1, 6)]))
    assert sorted(row["k"] for row in table.rows()) == [1, 2]


def _row(k: int, at: int | None, deletes: bool = False) -> dict[str, Any]:
    return {"k": k, "p": "a", "at": at, "n": None, "v": 0, DELETES: deletes}


@of_either_kind
def test_only_files_with_keys_of_the_batch_are_written_again(kind: str, tmp_path: Path) -> None:
    table = KINDS[kind](tmp_path / "t", SCHEMA, ("k",), Order(("at",)))
    for first in range(0, 50, 10):
        table.commit(table.merge([_row(k, 1) for k in range(first, first + 10)], files=1))
    before = table.files()
    table.commit(table.merge([_row(23, 2), _row(24, 0)], files=1))
    after = table.files()
    assert (len(before - after), len(after - before)) == (1, 1)
    # An older row changes nothing, so nothing is written.
    table.commit(table.merge([_row(33, 0)], files=1))
    assert table.files() == after


@of_either_kind
def test_columns_that_a_batch_lacks_stay_and_are_null_in_new_rows(
    kind: str, tmp_path: Path
) -> None:
    table = KINDS[kind](tmp_path / "t", SCHEMA, ("k",), Order(("at",)))
    table.commit(table.merge([_row(1, 1) | {"v": 7}]))
    table.commit(table.merge([{"k": k, "at": 2, DELETES: False} for k in (1, 2)]))
    assert {row["k"]: (row["at"], row["v"]) for row in table.rows()} == {1: (2, 7), 2: (2, None)}


@pytest.mark.parametrize(
    ("kind", "more"), [("delta", {"by_url": False}), ("delta", {"by_url": True}), ("iceberg", {})]
)
def test_many_files_of_deleted_keys_become_one_and_unused_ones_are_swept(
    tmp_path: Path, kind: str, more: dict[str, Any]
) -> None:
    table = KINDS[kind](tmp_path / "t", SCHEMA, ("k",), Order(("at",)), **more)
    deleted = DeletedKeys(table.location, table.keys, timedelta(days=1))
    for k in range(MANY_FILES + 2):
        table.commit(table.merge([_row(k, 5, deletes=True)], files=1))
    assert len(deleted.files(table.target().deleted_keys, table.order)) == 3
    count = len(list(table.remembered.iterdir()))
    assert count > 2 * MANY_FILES
    table.sweep(timedelta(hours=1))
    assert len(list(table.remembered.iterdir())) == count
    table.sweep(-timedelta(hours=1))
    assert len(list(table.remembered.iterdir())) == 4
    table.commit(table.merge([_row(k, 4) for k in range(MANY_FILES + 2)]))
    assert table.rows() == []


@of_either_kind
def test_a_delete_is_forgotten_after_its_time(kind: str, tmp_path: Path) -> None:
    table = KINDS[kind](tmp_path / "t", SCHEMA, ("k",), Order(("at",)), retention=timedelta(0))
    table.commit(table.merge([_row(1, 5, deletes=True)]))
    forgetful = DeletedKeys(table.location, table.keys, timedelta(milliseconds=-1))
    assert forgetful.files(table.target().deleted_keys, table.order) != ()
    table.retention = timedelta(milliseconds=-1)
    table.commit(table.merge([_row(2, 5, deletes=True)]))
    table.commit(table.merge([_row(1, 4)]))
    assert [row["k"] for row in table.rows()] == [1]


@of_either_kind
def test_a_lost_list_of_deleted_keys_is_an_error_that_says_what_to_do(
    kind: str, tmp_path: Path
) -> None:
    table = KINDS[kind](tmp_path / "t", SCHEMA, ("k",), Order(("at",)))
    table.commit(table.merge([_row(1, 5, deletes=True)]))
    number = table.target().deleted_keys
    manifest = table.remembered / f"deleted-{number}.json"
    manifest.unlink()
    with pytest.raises(LakeError, match=f"deleted-{number}.json, which cannot be read .*restore"):
        table.merge([_row(1, 4)]).against(table.target())
    manifest.write_text("{}")
    table.commit(table.merge([_row(1, 4)]))
    assert [row["k"] for row in table.rows()] == [1]


KEYS: list[tuple[pa.DataType, list[Any]]] = [
    (pa.string(), ["a", "x" * 50, "x" * 50 + "b", "ž", "\U0010ffff" * 40]),
    (pa.date32(), [date(2024, 2, day) for day in range(1, 5)]),
    (pa.timestamp("us", "UTC"), [datetime(2024, 2, 1, 0, 0, 0, n, UTC) for n in (1, 2, 999_999)]),
    (pa.decimal128(20, 2), [Decimal("1.10"), Decimal("1.11"), Decimal("-3"), Decimal(10) ** 17]),
    (pa.binary(), [b"", b"\0", b"\xff"]),
    (pa.float64(), [0.5, float("inf"), -1.0]),
    (pa.bool_(), [True, False]),
]


@of_either_kind
@pytest.mark.parametrize("partitioned", [False, True])
@pytest.mark.parametrize(("key", "values"), KEYS)
def test_keys_of_every_type_are_found_in_the_files_that_have_them(
    tmp_path: Path, kind: str, key: pa.DataType, values: list[Any], partitioned: bool
) -> None:
    schema = pa.schema([("k", key), ("at", pa.int64())])
    folders = ("k",) if partitioned and not pa.types.is_floating(key) and values[0] else ()
    table = KINDS[kind](tmp_path / "t", schema, ("k",), Order(("at",)), partition_by=folders)
    for value in values:
        table.commit(table.merge([{"k": value, "at": 1, DELETES: False}], files=1))
    table.compact()
    for at, value in enumerate(values):
        table.commit(table.merge([{"k": value, "at": 2 + at, DELETES: False}], files=1))
    assert len(table.rows()) == len(values)
    found = {row["k"]: row["at"] for row in table.rows()}
    assert found == {value: 2 + at for at, value in enumerate(values)}


def test_other_partitions_between_two_tries_are_those_of_the_files(tmp_path: Path) -> None:
    """Another writer changes how an Iceberg table is partitioned before the merge is committed."""
    table = IcebergMerging(tmp_path / "t", SCHEMA, ("k",), Order(("at",)), partition_by=("p",))
    table.commit(table.merge([_row(1, 1), _row(2, 1)]))

    def repartition() -> None:
        with table.table().update_spec() as update:
            update.remove_field("p")
            update.add_field("k", "identity", "k_part")
        table.commit(table.merge([_row(4, 3)]))

    table.commit(table.merge([_row(1, 2), _row(3, 2)]), between=repartition)
    expected = [(1, 2), (2, 1), (3, 2), (4, 3)]
    assert sorted((row["k"], row["at"]) for row in table.rows()) == expected
    for k, at in expected:
        found = table.table().scan(row_filter=f"k = {k}").to_arrow().to_pylist()
        assert [row["at"] for row in found] == [at]


def test_a_key_that_gets_a_wider_type_between_two_tries_is_found(tmp_path: Path) -> None:
    schema = pa.schema([("k", pa.int32()), ("at", pa.int32()), ("v", pa.string())])
    table = IcebergMerging(tmp_path / "t", schema, ("k",), Order(("at",)))

    def staged(k: int, at: int, deletes: bool = False) -> dict[str, Any]:
        return {"k": k, "at": at, "v": f"{k}/{at}", DELETES: deletes}

    table.commit(table.merge([staged(1, 1), staged(2, 5)]))
    table.commit(table.merge([staged(3, 5, deletes=True)]))

    def widen() -> None:
        with table.table().update_schema() as update:
            update.update_column("k", LongType())
            update.update_column("at", LongType())
        table.commit(table.merge([staged(5, 1)]))

    table.commit(table.merge([staged(1, 2), staged(2, 4), staged(3, 4)]), between=widen)
    assert sorted(row["v"] for row in table.rows()) == ["1/2", "2/5", "5/1"]


@pytest.mark.parametrize(
    ("settings", "scd", "said"),
    [
        ({"delta.enableChangeDataFeed": "true"}, 1, "delta.enableChangeDataFeed, with which"),
        ({"delta.appendOnly": "true"}, 1, "delta.appendOnly, with which"),
        ({}, 2, "has rows without a history"),
    ],
)
def test_tables_that_ask_more_of_a_merge_are_refused(
    tmp_path: Path, settings: dict[str, str], scd: Scd, said: str
) -> None:
    table = DeltaTable.create(
        str(tmp_path), Schema.from_arrow(SCHEMA), configuration=settings or None
    )
    merging = MergeSettings(("k",), ("at",), scd=scd)
    if settings:
        # Without settings that forbid it, an empty table is as good as a new one.
        with pytest.raises(LakeError, match=said):
            require_mergeable(table, "t", merging)
        return
    require_mergeable(table, "t", merging)
    write_deltalake(table, pa.Table.from_pylist([{"k": 1}], SCHEMA), mode="append")
    with pytest.raises(LakeError, match=said):
        require_mergeable(table, "t", merging)
