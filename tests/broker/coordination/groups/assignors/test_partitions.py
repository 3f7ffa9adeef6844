"""Partitions in the order of Java's hash sets; what is expected here was printed by Java 17."""

from __future__ import annotations

from uuid import UUID

import hypothesis.strategies as st
from hypothesis import given

from moldau.broker.coordination.groups.assignors.partitions import (
    changed,
    in_order,
    order_of,
    walk,
)
from moldau.broker.coordination.groups.consumer.parts import Part
from moldau.broker.coordination.groups.consumer.records import read_record, record

FORTY = [each * 5 % 97 for each in range(40)]
# fmt: off
FORTY_IN_A_TABLE = [
    0, 65, 1, 3, 68, 5, 70, 8, 73, 10, 75, 13, 78, 15, 80, 18, 83, 20, 85, 23, 88, 25, 90, 28, 93,
    30, 95, 33, 35, 38, 40, 43, 45, 48, 50, 53, 55, 58, 60, 63,
]
GROWN = [
    0, 64, 128, 65, 1, 3, 68, 5, 70, 8, 73, 10, 75, 13, 78, 15, 80, 18, 83, 20, 85, 23, 88, 25, 90,
    28, 93, 30, 96, 32, 160, 300,
]
# fmt: on
NONE: frozenset[int] = frozenset()


def test_a_set_that_grows_shrinks_and_grows_again_has_the_order_of_a_java_hash_set() -> None:
    first = changed(NONE, (), FORTY)
    assert first == set(FORTY)
    assert order_of(first) == tuple(FORTY_IN_A_TABLE)
    assert walk(first) == FORTY_IN_A_TABLE
    less = changed(first, walk(first)[:26], ())
    assert walk(less) == FORTY_IN_A_TABLE[:26]
    grown = changed(less, walk(less), [96, 32, 64, 160, 128, 300])
    assert list(order_of(grown)) == GROWN
    assert walk(grown) == GROWN


def test_what_shares_a_place_stays_in_the_order_in_which_it_came() -> None:
    found = changed(NONE, (), [48, 32, 16, 0, 17, 1])
    assert walk(found) == [48, 32, 16, 0, 17, 1]


@given(st.lists(st.integers(0, 500), unique=True), st.data())
def test_a_set_and_its_record_say_the_same(order: list[int], data: st.DataObject) -> None:
    found = in_order(order)
    assert found == set(order)
    assert list(order_of(found)) == order
    assert set(walk(found)) == found
    key, value = record("group", Part.TARGET, "member", {UUID(int=1): found})
    assert value is not None
    read = read_record(key, value)
    assert read is not None
    target = read[2]
    assert isinstance(target, dict)
    assert target == {UUID(int=1): found}
    assert list(order_of(target[UUID(int=1)])) == order
    kept = data.draw(st.sets(st.sampled_from(order))) if order else set()
    gained = data.draw(st.lists(st.integers(501, 1000), unique=True))
    assert changed(found, [each for each in walk(found) if each in kept], gained) == {
        *kept,
        *gained,
    }
