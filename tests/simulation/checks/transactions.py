"""The ledger of transactions, as their producers know them, and what readers may see of them.

- nobody reads, with read committed, what was not committed; in the end all of a transaction is
  visible or nothing, and all of it if its producer was told so
- nobody writes under an epoch after a later one was given out
- what was read, changed and written in transactions is there once for every record that was read
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from tests.simulation.checks.history import Place, Violation


class Identity(NamedTuple):
    """What InitProducerId gives out."""

    producer_id: int
    epoch: int


class Fate(Enum):
    OPEN = "was never asked to be committed"
    ASKED = "may have been committed"
    COMMITTED = "was committed"
    REFUSED = "was refused to be committed"


@dataclass(eq=False)
class Attempt:
    """One transaction of one producer, and what it wrote."""

    id: str
    name: str
    number: int
    identity: Identity
    values: list[bytes] = field(default_factory=list)
    fate: Fate = Fate.OPEN
    # The records of the source that it copied, if it is one that does.
    copied: range = range(0)

    def __str__(self) -> str:
        return f"transaction {self.number} of {self.name} ({self.id}, {self.identity})"

    @property
    def may_be_seen(self) -> bool:
        return self.fate in (Fate.ASKED, Fate.COMMITTED)


class Grant(NamedTuple):
    """An identity that was given out, and when its producer heard of it."""

    identity: Identity
    name: str
    at_s: float


@dataclass
class Ledger:
    """All transactions of a run."""

    now_s: Callable[[], float]
    # Whether a broker coordinates a transactional id, by what the ensemble has.
    coordinates: Callable[[int, str], bool]
    attempts: list[Attempt] = field(default_factory=list)
    by_value: dict[bytes, Attempt] = field(default_factory=dict)
    grants: dict[str, list[Grant]] = field(default_factory=dict)
    # What readers of committed records saw, and up to where each of them has read.
    seen: dict[Place, dict[int, bytes]] = field(default_factory=dict)
    readers: dict[str, tuple[Place, int, int, dict[int, bytes]]] = field(default_factory=dict)

    def begin(self, id: str, name: str, identity: Identity) -> Attempt:
        attempt = Attempt(id, name, len(self.attempts), identity)
        self.attempts.append(attempt)
        return attempt

    def add(self, attempt: Attempt, value: bytes) -> None:
        attempt.values.append(value)
        self.by_value[value] = attempt

    def granted(self, id: str, name: str, identity: Identity) -> None:
        self.grants.setdefault(id, []).append(Grant(identity, name, self.now_s()))

    def taken(self, id: str, name: str, identity: Identity, sent_s: float, what: str) -> None:
        """A request first sent then was done: no later identity had been given out by then."""
        for grant in reversed(self.grants.get(id, ())):
            if (
                grant.at_s < sent_s
                and grant.identity.producer_id == identity.producer_id
                and grant.identity.epoch > identity.epoch
                and grant.name != name
            ):
                raise Violation(
                    f"{name} could {what} as {identity} of {id} at {sent_s:.3f} s, after "
                    f"{grant.name} had become {grant.identity} at {grant.at_s:.3f} s"
                )

    def read(self, reader: str, place: Place, offset: int, value: bytes) -> None:
        """Somebody who reads what is committed was shown this."""
        attempt = self.by_value.get(value)
        if attempt is not None and not attempt.may_be_seen:
            raise Violation(f"{reader} read {value!r} of {attempt}, which {attempt.fate.value}")
        before = self.seen.setdefault(place, {}).setdefault(offset, value)
        if before != value:
            raise Violation(f"{reader} read {value!r} at {offset}, where {before!r} was committed")

    def check_end(self, visible: dict[Place, dict[int, bytes]]) -> None:
        """Compare everything with what is visible in the end."""
        for place, seen in self.seen.items():
            for offset, value in seen.items():
                if place in visible and visible[place].get(offset) != value:
                    raise Violation(
                        f"{value!r} was read at {offset} as committed, and in the end there is "
                        f"{visible[place].get(offset)!r}"
                    )
        for name, (place, first, end, seen) in self.readers.items():
            for offset, value in visible.get(place, {}).items():
                if first <= offset < end and offset not in seen:
                    raise Violation(
                        f"{name} read on to {end} and was never shown {value!r} at {offset}, "
                        f"which is committed"
                    )
        values = {value for log in visible.values() for value in log.values()}
        for attempt in self.attempts:
            found = [value for value in attempt.values if value in values]
            if found and not attempt.may_be_seen:
                raise Violation(f"{found} of {attempt} is visible, though it {attempt.fate.value}")
            is_whole = len(found) == len(attempt.values)
            if not is_whole and (found or attempt.fate is Fate.COMMITTED):
                missing = [value for value in attempt.values if value not in values]
                raise Violation(
                    f"of {attempt}, which {attempt.fate.value}, {found} is visible, and {missing} "
                    f"is not"
                )

    def check_copies(self, visible: dict[Place, dict[int, bytes]], committed: int) -> None:
        """What was copied from a source up to an offset that its group committed, once each."""
        counts: dict[int, int] = {}
        values = {value for log in visible.values() for value in log.values()}
        for attempt in self.attempts:
            if attempt.copied and attempt.values and attempt.values[0] in values:
                for offset in attempt.copied:
                    counts[offset] = counts.get(offset, 0) + 1
        for offset in range(max(committed, max(counts, default=-1) + 1)):
            expected = 1 if offset < committed else 0
            if counts.get(offset, 0) != expected:
                raise Violation(
                    f"the copies are committed up to {committed}, and {offset} was copied "
                    f"{counts.get(offset, 0)} times"
                )
