"""Frames: where requests begin and end in what was received."""

from __future__ import annotations

import pytest

from moldau.broker.net.frames import end_of_frame, first_frame
from moldau.wire.primitives import INT32, MalformedRequest


def test_a_frame_ends_where_its_size_says_though_it_may_not_be_there_yet() -> None:
    view = memoryview(INT32.pack(3) + b"abc" + INT32.pack(100) + b"d")
    assert end_of_frame(view, 0, limit=100) == 7
    assert end_of_frame(view, 7, limit=100) == 111
    assert bytes(first_frame(view)) == b"abc"


@pytest.mark.parametrize("size", [0, -1, 101, 2**31 - 1, -(2**31)])
def test_a_size_that_no_request_has_is_refused(size: int) -> None:
    with pytest.raises(MalformedRequest, match=f"claims {size} bytes"):
        end_of_frame(memoryview(INT32.pack(size)), 0, limit=100)
