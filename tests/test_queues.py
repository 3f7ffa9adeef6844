"""The order in which the workers of a run take their tests."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.queues import in_order


def item(name: str, *, limit_s: float | None = None, is_spark: bool = False) -> pytest.Item:
    markers: dict[str, Any] = {}
    if limit_s is not None:
        markers["timeout"] = pytest.mark.timeout(limit_s).mark
    if is_spark:
        markers["spark"] = pytest.mark.spark.mark
    fake = SimpleNamespace(name=name, path=Path(name), get_closest_marker=markers.get)
    return cast("pytest.Item", fake)


def names(items: list[pytest.Item], workers: int) -> str:
    return "".join(each.name for each in in_order(items, workers))


def test_what_takes_minutes_begins_the_piece_of_each_worker() -> None:
    items = [item(name) for name in "abcdefg"]
    items += [item(name, limit_s=600 + number) for number, name in enumerate("XYZ")]
    items += [item("s", is_spark=True), item("t", is_spark=True)]
    assert names(items, 1) == "ZYXstabcdefg"
    assert names(items, 3) == "Zsta" + "Ybcd" + "Xefg"


def test_every_worker_has_the_same_order_whatever_it_found_first() -> None:
    items = [item(name, limit_s=600) for name in "XYZ"]
    items += [item(name, is_spark=name < "c") for name in "abcde"]
    assert names(items, 3) == names(items[3:] + items[:3][::-1], 3)


def test_nothing_is_left_out_however_few_there_are() -> None:
    items = [item(name, limit_s=600) for name in "XYZ"]
    for workers in range(1, 6):
        assert sorted(names(items, workers)) == list("XYZ")
        assert names([], workers) == ""
        mixed = [*items, item("a"), item("b", is_spark=True)]
        assert sorted(names(mixed, workers)) == list("XYZab")
