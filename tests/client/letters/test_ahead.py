"""Letters moved ahead of their turn, as the text of a commit."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.client.errors import ClientError
from moldau.client.letters.ahead import offsets_in, text_of


@given(st.integers(0, 1 << 40), st.sets(st.integers(0, 400), max_size=200))
def test_what_was_moved_is_read_back(position: int, behind: set[int]) -> None:
    offsets = {position + each for each in behind}
    assert offsets_in(position, text_of(position, offsets)) == offsets


def test_what_lies_before_the_position_is_not_said() -> None:
    assert text_of(10, {3, 9}) == ""
    assert text_of(10, {9, 10, 13, 14, 15}) == "moved 0,3-5"


def test_a_commit_of_somebody_else_says_nothing() -> None:
    assert offsets_in(10, None) == offsets_in(10, "") == offsets_in(-1001, "by hand") == set()


def test_the_end_of_a_string_of_c_is_not_part_of_it() -> None:
    assert offsets_in(10, "moved 1,3\0") == {11, 13}


def test_a_text_that_cannot_be_read_stops_the_redrive() -> None:
    with pytest.raises(ClientError, match="cannot parse"):
        offsets_in(10, "moved 3-")


def test_more_than_brokers_keep_is_refused() -> None:
    with pytest.raises(ClientError, match="move all the rest"):
        text_of(0, set(range(0, 4000, 2)))
