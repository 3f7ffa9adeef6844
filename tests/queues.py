"""Queues of tests: what takes minutes begins first, each on another worker."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

import pytest

# The limit of a test that takes a minute or more: above that of all others, in pyproject.toml.
_LONG_S = 500


def in_order(items: Sequence[pytest.Item], workers: int) -> list[pytest.Item]:
    """Sort tests for `--dist worksteal`, which cuts the list into as many pieces as there are
    workers, and gives what is at the end of a piece to whoever has nothing left.

    What needs Spark is in the first piece, so that one worker starts it for many tests. What takes
    minutes begins each piece: begun late, it would run on alone.
    """
    long = [item for item in items if limit_s(item) > _LONG_S]
    others = [item for item in items if limit_s(item) <= _LONG_S]
    # By their files too: each worker has found them in an order of its own.
    long.sort(key=lambda item: (-limit_s(item), item.path))
    others.sort(key=lambda item: (item.get_closest_marker("spark") is None, item.path))
    left = iter(others)
    pieces: list[pytest.Item] = []
    for number in range(workers):
        first = long[number::workers]
        # As worksteal does it.
        size = (len(items) - len(pieces)) // (workers - number)
        pieces += chain(
            first, (item for _, item in zip(range(size - len(first)), left, strict=False))
        )
    return [*pieces, *left]


def limit_s(item: pytest.Item) -> float:
    marker = item.get_closest_marker("timeout")
    return 0.0 if marker is None else float(marker.args[0])
