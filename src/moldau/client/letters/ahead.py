"""Letters moved ahead of their turn: offsets behind a position, as the text of its commit.

    ""                nothing behind the position was moved
    "moved 0,3-5"     it and those 3 to 5 behind it were, counted from the position

A position and its text are committed together, so they always agree.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from moldau.client.errors import ClientError

# Brokers take 4096 bytes of text with a commit, unless they were told otherwise.
_LONGEST = 4000
_PREFIX = "moved "
_PART = re.compile(r"(\d+)(?:-(\d+))?")


def text_of(position: int, offsets: Iterable[int]) -> str:
    """Return the text for these offsets; ClientError if there are too many to say."""
    runs: list[list[int]] = []
    for offset in sorted(offsets):
        if offset < position:
            continue
        if runs and runs[-1][1] + 1 == offset:
            runs[-1][1] = offset
        else:
            runs.append([offset, offset])
    if not runs:
        return ""
    parts = [
        f"{first - position}" if first == last else f"{first - position}-{last - position}"
        for first, last in runs
    ]
    text = _PREFIX + ",".join(parts)
    if len(text) > _LONGEST:
        raise ClientError(
            "too many letters were moved out of order: move all the rest before you choose more"
        )
    return text


def offsets_in(position: int, text: str | None) -> set[int]:
    """Return the offsets that a text says were moved; ClientError if it cannot be read."""
    # confluent-kafka sends the zero byte that ends a string of C along.
    text = (text or "").rstrip("\0")
    if not text.startswith(_PREFIX):
        return set()
    found: set[int] = set()
    for part in text.removeprefix(_PREFIX).split(","):
        match = _PART.fullmatch(part)
        if match is None:
            raise ClientError(f"cannot parse the commit of a redrive: {text[:80]!r}")
        first, last = int(match[1]), int(match[2] or match[1])
        found.update(range(position + first, position + last + 1))
    return found
