"""Splitting ranges over tasks, and holding back a stream."""

from __future__ import annotations

from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from moldau.spark.source.progress import Progress, limited
from moldau.spark.source.ranges import OffsetRange, split

sizes = st.lists(st.integers(0, 1000), min_size=1, max_size=8)


def ranges_of(lengths: list[int]) -> list[OffsetRange]:
    return [OffsetRange("orders", None, index, 5, 5 + size) for index, size in enumerate(lengths)]


@given(sizes, st.none() | st.integers(1, 50), st.none() | st.integers(1, 500))
def test_a_split_covers_every_offset_once(
    lengths: list[int], min_partitions: int | None, max_records: int | None
) -> None:
    pieces = split(ranges_of(lengths), min_partitions, max_records)
    for whole in ranges_of(lengths):
        mine = [piece for piece in pieces if piece.partition == whole.partition]
        assert [offset for piece in mine for offset in range(piece.start, piece.end)] == list(
            range(whole.start, whole.end)
        )
    assert all(len(piece) > 0 for piece in pieces)
    if max_records is not None:
        assert all(len(piece) <= max_records for piece in pieces)


def test_without_a_wish_each_partition_is_one_task() -> None:
    assert split(ranges_of([10, 0, 30]), None, None) == [ranges_of([10, 0, 30])[n] for n in (0, 2)]


def test_large_partitions_are_cut_and_small_ones_stay() -> None:
    pieces = split(ranges_of([10, 1000]), 8, None)
    assert [piece.partition for piece in pieces].count(0) == 1
    assert len(pieces) == 8


@given(
    st.dictionaries(st.integers(0, 6), st.tuples(st.integers(0, 50), st.integers(0, 500))),
    st.integers(1, 300),
)
def test_a_limit_is_shared_and_starves_nobody(
    partitions: dict[int, tuple[int, int]], most: int
) -> None:
    start = {("orders", index): begin for index, (begin, _) in partitions.items()}
    end = {("orders", index): begin + size for index, (begin, size) in partitions.items()}
    held = limited(start, end, most)
    assert held.keys() == end.keys()
    for key in end:
        assert start[key] <= held[key] <= end[key]
        assert held[key] > start[key] or end[key] == start[key]
    if sum(end.values()) - sum(start.values()) > most:
        assert sum(held.values()) - sum(start.values()) <= most + len(held)


def test_progress_survives_its_json() -> None:
    orders = {"orders": {"0": 3, "10": 4}}
    content = orders | {"@id 00000000-0000-0000-0000-000000000007 orders": {}}
    assert Progress.of_json(content).to_json() == content
    assert Progress.of_json({"orders": {"0": 3}}).to_json() == {"orders": {"0": 3}}


def test_progress_of_older_checkpoints_is_read() -> None:
    old = {"orders": {"0": 3}, "@ids": {"orders": "00000000-0000-0000-0000-000000000007"}}
    assert Progress.of_json(old) == Progress({("orders", 0): 3}, {"orders": UUID(int=7)})
