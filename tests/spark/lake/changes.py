"""Changes of a table in any order, and what must come of them, by plain Python."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Any, NamedTuple


class Change(NamedTuple):
    """A row's value from a moment on; without a value it is deleted."""

    k: int
    lsn: int
    v: str


class Version(NamedTuple):
    """A value with its end, None if it is current."""

    k: int
    lsn: int
    v: str
    end: int | None


def random_changes(dice: random.Random, lsns: Iterable[int]) -> list[Change]:
    """One at each moment, in the order that these come in."""
    return [Change(dice.randrange(20), lsn, dice.choice(["", "x", "y", "z"])) for lsn in lsns]


def copy_of(changes: Iterable[Change]) -> list[Change]:
    """The newest of each key, in order."""
    newest = {change.k: change for change in sorted(changes)}
    return sorted(change for change in newest.values() if change.v)


def history_of(changes: Iterable[Change]) -> list[Version]:
    """All versions, in order."""
    ordered = sorted(changes)
    ends = [then.lsn if then.k == each.k else None for each, then in pairwise(ordered)] + [None]
    return [Version(*each, end) for each, end in zip(ordered, ends, strict=True) if each.v]


def copy_in(rows: Iterable[Mapping[str, Any]]) -> list[Change]:
    """What a table has, in order."""
    return sorted(Change(row["k"], row["lsn"], row["v"]) for row in rows)


def history_in(rows: Iterable[Mapping[str, Any]]) -> list[Version]:
    """What a table with a history has, in order."""
    versions = []
    for row in rows:
        assert row["valid_from"] == row["lsn"], row
        assert row["is_current"] == (row["valid_to"] is None), row
        versions.append(Version(row["k"], row["lsn"], row["v"], row["valid_to"]))
    return sorted(versions, key=lambda version: version[:2])
