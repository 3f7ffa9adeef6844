"""Deliveries of a share group, as its members know them.

- nobody loses a record within its lock, and nobody's word counts who has lost it to another
- a record whose end was confirmed is never delivered again, whoever has crashed since
- the count of deliveries goes up from one to the next, and never below one that was confirmed
- in the end every record is finished: somebody said so, or it is a dead letter; and dead letters
  are those that somebody rejected or that are out of tries
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple

from tests.simulation.checks.history import Violation


class Kind(IntEnum):
    """What a member says of a record, by Kafka's numbers."""

    ACCEPT = 1
    RELEASE = 2
    REJECT = 3
    RENEW = 4


class Regime(NamedTuple):
    """A leader in one life and epoch, whose lease has not ended meanwhile: locks and counts are its
    own until they are written."""

    broker: int
    life: int
    epoch: int
    lapses: int


@dataclass(eq=False)
class Delivery:
    """A record that a member was given."""

    partition: int
    offset: int
    member: str
    count: int
    sent_s: float
    received_s: float
    # Nobody else gets it before that.
    locked_until_s: float
    # None if it changed while the record was on its way.
    regime: Regime | None

    def __str__(self) -> str:
        return (
            f"delivery {self.count} of {self.offset} in partition {self.partition} to {self.member}"
            f" at {self.received_s:.3f} s"
        )


class Letter(NamedTuple):
    """What a dead letter says of itself."""

    deliveries: int
    is_rejected: bool


@dataclass
class Fate:
    """All that is known of one record."""

    deliveries: list[Delivery] = field(default_factory=list)
    # What was said of it by whom, answered or not.
    said: list[tuple[Delivery, Kind]] = field(default_factory=list)
    finished_s: float = float("inf")
    finished_by: str = ""
    # The highest count that was confirmed to be written, and when.
    counted: tuple[float, int] = (float("inf"), 0)

    @property
    def kinds(self) -> set[Kind]:
        return {kind for _, kind in self.said}


@dataclass
class Deliveries:
    """Everything that a share group was given, and said."""

    now_s: Callable[[], float]
    limit: int
    fates: dict[tuple[int, int], Fate] = field(default_factory=dict)

    def fate(self, partition: int, offset: int) -> Fate:
        return self.fates.setdefault((partition, offset), Fate())

    def set_back(self, partition: int, start: int) -> None:
        """The group begins there again."""
        for key in [each for each in self.fates if each[0] == partition and each[1] >= start]:
            del self.fates[key]

    def delivered(self, new: Delivery) -> None:
        fate = self.fate(new.partition, new.offset)
        # A leader that does not know of its successor yet gives out what is not its own any more:
        # then nobody takes what is said of it.
        if new.regime is not None:
            self._check_delivery(fate, new)
        fate.deliveries.append(new)

    def _check_delivery(self, fate: Fate, new: Delivery) -> None:
        if new.count > self.limit:
            raise Violation(f"{new}, which is out of tries after {self.limit}")
        if fate.finished_s < new.sent_s:
            raise Violation(f"{new}: {fate.finished_by} was confirmed at {fate.finished_s:.3f} s")
        confirmed_s, count = fate.counted
        if confirmed_s < new.sent_s and new.count <= count:
            raise Violation(f"{new}, after number {count} was confirmed at {confirmed_s:.3f} s")
        for old in fate.deliveries:
            is_after = old.received_s < new.sent_s
            if old.regime == new.regime and is_after and new.count <= old.count:
                raise Violation(f"{new}, after {old}")

    def says(self, delivery: Delivery, kind: Kind) -> None:
        if kind is not Kind.RENEW:
            self.fate(delivery.partition, delivery.offset).said.append((delivery, kind))

    def confirmed(self, delivery: Delivery, kind: Kind, sent_s: float, lock_s: float) -> None:
        """What a member said then is written down."""
        fate = self.fate(delivery.partition, delivery.offset)
        # What is finished may be said again, by anybody.
        may_be_finished = any(
            said in (Kind.ACCEPT, Kind.REJECT) and other is not delivery
            for other, said in fate.said
        ) or any(each.count >= self.limit for each in fate.deliveries)
        for later in fate.deliveries:
            is_later = delivery.received_s < later.sent_s and later.received_s < sent_s
            is_anothers = later.member != delivery.member and later.regime is not None
            if is_later and is_anothers and not may_be_finished:
                raise Violation(
                    f"{delivery.member} could {kind.name} {delivery.offset} of partition "
                    f"{delivery.partition} at {sent_s:.3f} s, after {later}"
                )
        if kind is Kind.RENEW:
            delivery.locked_until_s = max(delivery.locked_until_s, sent_s + lock_s)
        elif kind is Kind.RELEASE:
            if delivery.count > fate.counted[1]:
                fate.counted = (self.now_s(), delivery.count)
        elif fate.finished_s == float("inf"):
            fate.finished_s = self.now_s()
            fate.finished_by = f"{kind.name} by {delivery.member}"

    def refused(self, words: dict[Delivery, Kind], regime: Regime | None) -> None:
        """A member was told that it does not have a record, one of these at least."""
        now_s = self.now_s()
        if regime is not None and all(
            each.regime == regime and now_s < each.locked_until_s for each in words
        ):
            told = ", ".join(f"{kind.name} {each}" for each, kind in words.items())
            raise Violation(f"refused, though all is locked for who says so: {told}")

    def check_end(self, ends: dict[int, int], letters: dict[tuple[int, int], list[Letter]]) -> None:
        """Compare all with the logs, which end there, and with the dead letters."""
        for partition, end in ends.items():
            for offset in range(end):
                fate = self.fates.get((partition, offset), Fate())
                is_said = fate.kinds & {Kind.ACCEPT, Kind.REJECT}
                if not is_said and (partition, offset) not in letters:
                    raise Violation(
                        f"{offset} of partition {partition} is finished, but nobody said so, and "
                        f"there is no dead letter of it; it was delivered "
                        f"{len(fate.deliveries)} times"
                    )
                if fate.kinds <= {Kind.REJECT, Kind.RELEASE} and (partition, offset) not in letters:
                    raise Violation(
                        f"{offset} of partition {partition} was rejected by all who said "
                        f"anything of it, and there is no dead letter of it"
                    )
        for (partition, offset), found in letters.items():
            fate = self.fates.get((partition, offset), Fate())
            for letter in found:
                if letter.is_rejected and Kind.REJECT not in fate.kinds:
                    raise Violation(
                        f"a dead letter says that {offset} of partition {partition} was rejected, "
                        f"but nobody did"
                    )
                if not letter.is_rejected and letter.deliveries < self.limit:
                    raise Violation(
                        f"a dead letter says that {offset} of partition {partition} is out of "
                        f"tries, after {letter.deliveries}"
                    )
