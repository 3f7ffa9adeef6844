"""Waiting for a condition, with a deadline."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from typing import TypeVar

WITHIN_S = 60.0
_POLL_S = 0.01

T = TypeVar("T")


def until(
    is_so: Callable[[], T | None],
    what: str = "a condition to be true",
    within_s: float = WITHIN_S,
    *,
    ignoring: type[Exception] | tuple[type[Exception], ...] = (),
    poll_s: float = _POLL_S,
) -> T:
    """Return when something is so, with what was found; TimeoutError names `what` was waited for.

    It is asked at least twice, and the last time after the deadline: a machine that stood still is
    no reason to give up. An error of the kinds in `ignoring` means "not yet".
    """
    for found in _asked(is_so, what, within_s, ignoring):
        if found:
            return found
        time.sleep(poll_s)
    raise AssertionError("unreachable: the loop returns or raises")


async def until_async(
    is_so: Callable[[], T | None],
    what: str = "a condition to be true",
    within_s: float = WITHIN_S,
    *,
    poll_s: float = _POLL_S,
) -> T:
    """Return when something is so, as `until` does, and let the event loop turn meanwhile."""
    for found in _asked(is_so, what, within_s, ()):
        if found:
            return found
        await asyncio.sleep(poll_s)
    raise AssertionError("unreachable: the loop returns or raises")


def _asked(
    is_so: Callable[[], T | None],
    what: str,
    within_s: float,
    ignoring: type[Exception] | tuple[type[Exception], ...],
) -> Iterator[T | None]:
    """Yield what is found each time, until the deadline has passed before the last time."""
    deadline = time.monotonic() + within_s
    while True:
        is_last = time.monotonic() > deadline
        problem: Exception | None = None
        found: T | None = None
        try:
            found = is_so()
        except ignoring as error:
            problem = error
        if is_last and not found:
            raise TimeoutError(f"timed out after {within_s:g} s waiting for: {what}") from problem
        yield found
