"""The history of what clients were told: writes that were acknowledged, records that were read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from uuid import UUID

Place = tuple[UUID, int]


class Violation(Exception):
    """A promise that was broken."""


@dataclass
class Written:
    """One record that a producer sent, and what it knows of it."""

    producer: str
    number: int
    topic: str
    place: Place
    value: bytes
    acks: int
    is_idempotent: bool
    # When it was sent first, and acknowledged; None: nobody knows.
    sent_s: float
    acknowledged_s: float | None = None
    offset: int = -1
    # It was refused for good, and must never be seen.
    was_refused: bool = False


@dataclass
class History:
    """What happened, as clients see it. Promises are checked as soon as they can be."""

    now_s: Callable[[], float]
    writes: list[Written] = field(default_factory=list)
    # Every record that anybody read or was told the offset of.
    known: dict[tuple[Place, int], tuple[bytes, str]] = field(default_factory=dict)
    deleted: set[UUID] = field(default_factory=set)
    counts: dict[str, int] = field(default_factory=dict)

    def count(self, what: str) -> None:
        self.counts[what] = self.counts.get(what, 0) + 1

    def acknowledged(self, write: Written, offset: int) -> None:
        write.acknowledged_s = self.now_s()
        write.offset = offset
        self.count(f"acknowledged with acks={write.acks}")
        if offset >= 0 and write.acks == -1:
            self._is_at(write.place, offset, write.value, f"{write.producer} was told")

    def read(self, reader: str, place: Place, offset: int, value: bytes) -> None:
        self.count("read")
        self._is_at(place, offset, value, f"{reader} read")

    def _is_at(self, place: Place, offset: int, value: bytes, who: str) -> None:
        before = self.known.setdefault((place, offset), (value, who))
        if before[0] != value:
            raise Violation(
                f"{_name(place)} at offset {offset}: {before[1]} {before[0]!r}, and {who} {value!r}"
            )

    def check_end(self, logs: dict[Place, dict[int, bytes]]) -> None:
        """Compare everything with what is left in the logs at the end."""
        positions: dict[tuple[Place, bytes], int] = {}
        for place, log in logs.items():
            for offset, value in log.items():
                earlier = positions.setdefault((place, value), offset)
                if earlier != offset:
                    raise Violation(
                        f"{_name(place)}: {value!r} is there twice, at {earlier} and {offset}"
                    )
        for (place, offset), (value, who) in self.known.items():
            if place in logs and logs[place].get(offset) != value:
                raise Violation(
                    f"{_name(place)} at offset {offset}: {who} {value!r}, but at the end there is "
                    f"{logs[place].get(offset)!r}"
                )
        last: dict[tuple[str, Place], tuple[int, int]] = {}
        for write in self.writes:
            if write.place not in logs:
                continue
            offset = positions.get((write.place, write.value), -1)
            if offset < 0:
                if write.acknowledged_s is not None and write.acks == -1:
                    raise Violation(
                        f"{_name(write.place)}: {write.value!r} was acknowledged at "
                        f"{write.acknowledged_s:.3f} s with offset {write.offset}, and is lost"
                    )
                continue
            if write.was_refused:
                raise Violation(f"{_name(write.place)}: {write.value!r} was refused, and is there")
            if write.is_idempotent:
                key = (write.producer, write.place)
                number, before = last.get(key, (-1, -1))
                if offset < before:
                    raise Violation(
                        f"{_name(write.place)}: number {write.number} of {write.producer} is at "
                        f"{offset}, before its number {number} at {before}"
                    )
                last[key] = (write.number, offset)


def _name(place: Place) -> str:
    return f"partition {place[1]} of {str(place[0])[:8]}"
