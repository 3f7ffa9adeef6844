"""Waiting for a condition, with a deadline."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

WITHIN_S = 60.0
_POLL_S = 0.02

T = TypeVar("T")


def until(
    is_so: Callable[[], T | None],
    what: str = "what was waited for",
    within_s: float = WITHIN_S,
    *,
    ignoring: type[Exception] | tuple[type[Exception], ...] = (),
    poll_s: float = _POLL_S,
) -> T:
    """Return when something is so, with what was found; TimeoutError names `what` was waited for.

    It is asked at least twice, and the last time after the deadline: a machine that stood still is
    no reason to give up. An error of the kinds in `ignoring` means "not yet".
    """
    deadline = time.monotonic() + within_s
    while True:
        is_last = time.monotonic() > deadline
        problem: Exception | None = None
        try:
            found = is_so()
            if found:
                return found
        except ignoring as error:
            problem = error
        if is_last:
            raise TimeoutError(f"after {within_s:g} s there is still not: {what}") from problem
        time.sleep(poll_s)
