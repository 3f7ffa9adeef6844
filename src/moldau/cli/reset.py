"""Resets of a group: targets as people write them, and the plan made from them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum

from moldau.topic_partition import TopicPartition

UNIT_S = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
AGO = re.compile(r"(\d{1,9})([smhdw])")


class Kind(Enum):
    EARLIEST = "earliest"
    LATEST = "latest"
    OFFSET = "offset"
    TIME = "time"
    SHIFT = "shift"


@dataclass(frozen=True, slots=True)
class Target:
    """The target; `number` is an offset, a time in milliseconds since 1970, or the shift."""

    kind: Kind
    number: int = 0


@dataclass(frozen=True, slots=True)
class Move:
    """One partition of a plan: from the committed offset, if there is one, to another."""

    place: TopicPartition
    now: int | None
    new: int
    end: int

    @property
    def change(self) -> str:
        if self.now is None:
            return "new"
        return f"{self.new - self.now:+d}" if self.new != self.now else "0"


def parse_target(text: str, now_s: float) -> Target:
    """`earliest`, `latest`, an offset, a moment such as 2024-02-29T12:00Z, or an age such as 2h.

    A moment without a zone is one of this machine's. ValueError says what is expected.
    """
    if text in (Kind.EARLIEST.value, Kind.LATEST.value):
        return Target(Kind(text))
    if text.isascii() and text.isdigit() and len(text) < 19:
        return Target(Kind.OFFSET, int(text))
    age = AGO.fullmatch(text)
    if age is not None:
        moment_s = now_s - int(age[1]) * UNIT_S[age[2]]
        return Target(Kind.TIME, max(0, int(moment_s * 1000)))
    try:
        moment = datetime.fromisoformat(text)
        return Target(Kind.TIME, max(0, int(moment.astimezone(UTC).timestamp() * 1000)))
    except (ValueError, OverflowError):
        raise ValueError(
            f"{text!r} is not earliest, latest, an offset, a time such as "
            "2024-02-29T12:00, or an age such as 30m, 2h, 7d"
        ) from None


def plan(
    target: Target,
    places: Sequence[TopicPartition],
    committed: Mapping[TopicPartition, int],
    bounds: Mapping[TopicPartition, tuple[int, int]],
    at_time: Mapping[TopicPartition, int],
) -> list[Move]:
    """Return a move for each partition, never to where the log has nothing.

    `at_time` has the first offset at or after the target's time, or a negative number where no
    message is that late. A partition without a commit cannot be shifted, and is left out.
    """
    moves = []
    for place in places:
        start, end = bounds[place]
        now = committed.get(place)
        match target.kind:
            case Kind.EARLIEST:
                new = start
            case Kind.LATEST:
                new = end
            case Kind.OFFSET:
                new = target.number
            case Kind.TIME:
                new = at_time[place] if at_time[place] >= 0 else end
            case Kind.SHIFT:
                if now is None:
                    continue
                new = now + target.number
        moves.append(Move(place, now, min(max(new, start), end), end))
    return moves
