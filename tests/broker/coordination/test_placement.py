"""Placement of keys among the partitions of an internal topic."""

from __future__ import annotations

import pytest

from moldau.broker.coordination.placement import partition_of


# Strings whose hashCode in Java is well known; the last one's is the smallest number there is.
@pytest.mark.parametrize(
    ("group", "code"), [("", 0), ("g", 103), ("hello", 99_162_322), ("polygenelubricants", 0)]
)
def test_groups_belong_to_the_partitions_that_kafka_puts_them_in(group: str, code: int) -> None:
    assert partition_of(group, 50) == code % 50


@pytest.mark.parametrize("group", ["größe", "🦊", "x" * 32767])
def test_any_name_has_a_partition(group: str) -> None:
    assert 0 <= partition_of(group, 7) < 7
