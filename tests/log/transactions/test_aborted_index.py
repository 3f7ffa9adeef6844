"""The index of aborted transactions by itself: arbitrary bytes, and searches."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moldau.log.errors import CorruptFile
from moldau.log.files.open_files import FilePool
from moldau.log.segments.aborted_index import AbortedIndex, AbortedTransaction

# The index by itself


def new_index(path: Path, base: int = 0) -> AbortedIndex:
    return AbortedIndex(str(path), FilePool(4), base)


@settings(max_examples=50)
@given(data=st.binary(max_size=200))
def test_an_index_of_arbitrary_bytes_is_taken_for_damaged_or_read(
    data: bytes, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("index") / "00000000000000000000.txnindex"
    path.write_bytes(data)
    index = new_index(path)
    try:
        index.load()
        index.check(2**62)
    except CorruptFile:
        return
    assert index.size == len(data)
    firsts = [each.first_offset for each in index.transactions()]
    found: list[tuple[int, int]] = []
    index.collect(0, 2**62, found)
    assert [first for _, first in found] == firsts


def test_an_index_is_searched_on_disk_and_in_memory(tmp_path: Path) -> None:
    index = new_index(tmp_path / "x.txnindex")
    for number in range(1000):
        index.append(AbortedTransaction(number, 10 * number, 10 * number + 5, 10 * number + 6))
        if number == 700:
            index.write_tail()
    for first, up_to in ((0, 10_000), (3333, 3444), (6990, 7030), (9995, 9999), (9996, 20_000)):
        found: list[tuple[int, int]] = []
        is_complete = index.collect(first, up_to, found)
        assert found == [
            (number, 10 * number)
            for number in range(1000)
            if 10 * number + 5 >= first and 10 * number < up_to
        ]
        assert is_complete == (up_to <= 9996)
    index.truncate_to(3005)
    assert index.count == 300
