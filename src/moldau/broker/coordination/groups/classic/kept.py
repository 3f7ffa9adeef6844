"""Kept groups: how a classic group is read back from the log, or made of one of another kind."""

from __future__ import annotations

from collections.abc import Sequence

from moldau.broker.coordination.groups.classic import views
from moldau.broker.coordination.groups.classic.generations import Generations
from moldau.broker.coordination.groups.classic.member import Member
from moldau.broker.coordination.groups.group import Effect
from moldau.broker.coordination.groups.records import (
    GroupMetadata,
    group_key,
    group_value,
    read_group,
)
from moldau.broker.coordination.groups.report import Cause
from moldau.broker.coordination.records import KeyValue
from moldau.wire.errors import Error


class KeptGroup:
    """A group as the log knows it, in one record. What it does for its members is another's."""

    __slots__ = ("_generations", "_replayed", "_waiting", "id", "max_size", "roster")

    def __init__(self, id: str, generations: Generations, max_size: int) -> None:
        self.id = id
        self.max_size = max_size
        self.roster = generations.roster
        self._generations = generations
        self._waiting = generations.waiting
        self._replayed: GroupMetadata | None = None

    def replay(self, key: bytes, value: bytes) -> None:
        """Take in what the log says of it; the last record counts."""
        self._replayed = read_group(value)

    @property
    def restored_emptied_at(self) -> int | None:
        """When the last member left, by the wall clock, as the log says; None if one is there."""
        stored = self._replayed
        if stored is None or not stored.protocol_type or stored.members:
            return None
        return stored.state_timestamp if stored.state_timestamp >= 0 else None

    def resume(self, now: int) -> list[Effect]:
        """Go on from what was replayed."""
        stored, self._replayed = self._replayed, None
        return [] if stored is None else self.restore(stored, now)

    def tombstones(self) -> list[KeyValue]:
        return [(group_key(self.id), None)]

    def restore(self, metadata: GroupMetadata, now: int) -> list[Effect]:
        """Go on from what was written down; members have a session timeout to be heard of."""
        self._generations.restore(metadata, now)
        if len(self.roster.members) > self.max_size:
            self._generations.note(Cause.SHRUNK, next(reversed(self.roster.members)), now)
            self._generations.prepare(now)
        return self._generations.take_effects()

    def take_over(
        self, members: Sequence[Member], generation: int, now: int
    ) -> tuple[KeyValue, list[Effect]]:
        """Go on with the members of a consumer group, who have to rejoin; return the record that
        says so, too."""
        self._generations.take_over(members, generation, now)
        assignments = {member.id: member.assignment for member in members}
        metadata = views.metadata(self.roster, generation, assignments)
        record = (group_key(self.id), group_value(metadata._replace(state_timestamp=0)))
        self._generations.note(Cause.CONVERTED, members[0].id, now)
        self._generations.prepare(now)
        return record, self._generations.take_effects()

    def give_up(self) -> list[Effect]:
        """Tell whoever waits to join again: by then this is a group of another kind."""
        self._waiting.send_all_away(Error.REBALANCE_IN_PROGRESS)
        return self._generations.take_effects()
