"""Offset resets: where a share group begins in a partition that it has not read yet."""

from __future__ import annotations

import re
from typing import NamedTuple

from moldau.settings import InvalidSetting

_BY_DURATION = "by_duration:"
# As Java's Duration reads it: days, hours, minutes and seconds, for example P1DT2H or PT0.5S.
_DURATION = re.compile(
    r"P(?:(\d+)D)?(?:T(?=\d)(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d{1,9})?)S)?)?", re.IGNORECASE
)
_SECONDS = (86_400, 3_600, 60, 1)


class OffsetReset(NamedTuple):
    """The beginning of the log, its end, or the first record that is no older than `age_ms`."""

    strategy: str
    age_ms: int = 0


def parse_offset_reset(text: str) -> OffsetReset:
    """Return what a setting says; InvalidSetting if it says nothing of the kind."""
    if text in ("earliest", "latest"):
        return OffsetReset(text)
    if text.startswith(_BY_DURATION):
        found = _DURATION.fullmatch(text[len(_BY_DURATION) :])
        if found is not None and any(found.groups()):
            parts = zip(found.groups(), _SECONDS, strict=True)
            seconds = sum(float(number) * each for number, each in parts if number)
            return OffsetReset("by_duration", int(seconds * 1000))
    raise InvalidSetting(
        "share.auto.offset.reset", text,
        "must be earliest, latest or by_duration:DURATION, for example by_duration:PT1H",
    )  # fmt: skip
