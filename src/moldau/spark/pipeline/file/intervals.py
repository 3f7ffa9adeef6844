"""Intervals in a pipeline file: `10 seconds`, as Spark writes them."""

from __future__ import annotations

import re

_INTERVAL = re.compile(
    r"\s*(\d+(?:\.\d+)?)\s*((?:micro|milli)?(?:second)|minute|hour|day|week)s?\s*", re.IGNORECASE
)
_SECONDS = {
    "microsecond": 1e-6,
    "millisecond": 1e-3,
    "second": 1.0,
    "minute": 60.0,
    "hour": 3600.0,
    "day": 86_400.0,
    "week": 604_800.0,
}


def interval_problem(text: str) -> str:
    """Return why this is no interval; nothing if it is one."""
    if _INTERVAL.fullmatch(text) is None:
        return f"{text!r} is not a time such as '10 seconds'"
    return ""


def seconds_of(text: str) -> float:
    """Return the length of an interval; ValueError if it is none."""
    found = _INTERVAL.fullmatch(text)
    if found is None:
        raise ValueError(interval_problem(text))
    return float(found[1]) * _SECONDS[found[2].lower()]
