"""Waiting requests: joins and syncs whose answer is up to other members."""

from __future__ import annotations

from moldau.broker.coordination.groups.classic.messages import Joined, Synced
from moldau.broker.coordination.groups.group import Answer, Effect, Ticket
from moldau.wire.errors import Error


class Waiting:
    """The tickets of waiting requests by member, and the effects that their answers go to.

    A join waits until the join phase ends, a sync until the assignment is stored. Each ticket is
    answered once.
    """

    __slots__ = ("_effects", "joining", "syncing")

    def __init__(self, effects: list[Effect]) -> None:
        self.joining: dict[str, Ticket] = {}
        self.syncing: dict[str, Ticket] = {}
        self._effects = effects

    def __contains__(self, member_id: str) -> bool:
        return member_id in self.joining or member_id in self.syncing

    def answer(self, ticket: Ticket, body: Joined | Synced) -> None:
        self._effects.append(Answer(ticket, body))

    def refuse_join(self, ticket: Ticket, error: Error, member_id: str) -> None:
        self.answer(ticket, Joined(error, member_id))

    def park_join(self, member_id: str, ticket: Ticket) -> None:
        if member_id in self.joining:
            # The client asked again, most likely on another connection: that one counts.
            earlier = self.joining[member_id]
            self.refuse_join(earlier, Error.COORDINATOR_NOT_AVAILABLE, member_id)
        self.joining[member_id] = ticket

    def park_sync(self, member_id: str, ticket: Ticket) -> None:
        if member_id in self.syncing:
            self.answer(self.syncing[member_id], Synced(Error.REBALANCE_IN_PROGRESS))
        self.syncing[member_id] = ticket

    def send_away(self, member_id: str, error: Error, known_as: str) -> None:
        """Answer what a member waits for with an error; `known_as` is the id that it is told."""
        if member_id in self.joining:
            self.refuse_join(self.joining.pop(member_id), error, known_as)
        if member_id in self.syncing:
            self.answer(self.syncing.pop(member_id), Synced(error))

    def send_all_away(self, error: Error) -> None:
        for member_id in [*self.joining, *self.syncing]:
            self.send_away(member_id, error, member_id)

    def forget(self, member_id: str) -> None:
        """A member is gone that nobody needs to tell."""
        self.joining.pop(member_id, None)
        self.syncing.pop(member_id, None)

    def take_joins(self) -> dict[str, Ticket]:
        joining, self.joining = self.joining, {}
        return joining

    def take_syncs(self) -> dict[str, Ticket]:
        syncing, self.syncing = self.syncing, {}
        return syncing
