"""A group on a table: its clock is turned by hand, and its answers are looked at."""

from __future__ import annotations

import itertools
from typing import Any

from moldau.broker.coordination.groups.classic.generations import State
from moldau.broker.coordination.groups.classic.group import ClassicGroup
from moldau.broker.coordination.groups.classic.messages import (
    Departure,
    Join,
    Joined,
    Sync,
    Synced,
)
from moldau.broker.coordination.groups.classic.store import StoreMetadata
from moldau.broker.coordination.groups.group import Answer, Effect
from moldau.broker.coordination.groups.report import Rebalanced
from moldau.wire.errors import Error

SESSION_MS = 10_000
REBALANCE_MS = 60_000
RANGE = (("range", b"subscription"),)


class Ticket:
    """A request that waits for its answer."""

    def __init__(self) -> None:
        self.answers: list[Any] = []

    @property
    def is_answered(self) -> bool:
        return bool(self.answers)

    @property
    def joined(self) -> Joined:
        (answer,) = self.answers
        assert isinstance(answer, Joined)
        return answer

    @property
    def synced(self) -> Synced:
        (answer,) = self.answers
        assert isinstance(answer, Synced)
        return answer


class Table:
    """The group, and somebody who sees to what it wants; writes succeed unless they are held."""

    def __init__(self, group_id: str = "group", **settings: Any) -> None:
        numbers = itertools.count(1)
        self.group = ClassicGroup(group_id, new_id=lambda: str(next(numbers)), **settings)
        self.now = 1_000_000
        self.hold_writes = False
        self.held: list[StoreMetadata] = []
        self.stored: list[StoreMetadata] = []
        self.reports: list[Rebalanced] = []

    def state(self) -> State:
        return self.group.state

    def join(
        self,
        member_id: str = "",
        protocols: tuple[tuple[str, bytes], ...] = RANGE,
        *,
        client: str = "c",
        instance: str | None = None,
        protocol_type: str = "consumer",
        session_ms: int = SESSION_MS,
        rebalance_ms: int = REBALANCE_MS,
        old: bool = True,
        skips: bool = True,
    ) -> Ticket:
        ticket = Ticket()
        request = Join(
            member_id,
            protocol_type,
            protocols,
            session_ms,
            rebalance_ms,
            instance,
            client,
            "/host",
            requires_member_id=not old,
            can_skip_assignment=skips,
        )
        self.see_to(self.group.join(request, ticket, self.now))
        return ticket

    def sync(
        self,
        member_id: str,
        generation: int,
        assignments: dict[str, bytes] | None = None,
        **more: Any,
    ) -> Ticket:
        ticket = Ticket()
        request = Sync(member_id, generation, assignments=assignments, **more)
        self.see_to(self.group.sync(request, ticket, self.now))
        return ticket

    def heartbeat(self, member_id: str, generation: int, instance: str | None = None) -> Error:
        return self.group.heartbeat(member_id, instance, generation, self.now)

    def leave(self, *members: str | Departure) -> list[Error]:
        departures = [Departure(each) if isinstance(each, str) else each for each in members]
        errors, effects = self.group.leave(departures, self.now)
        self.see_to(effects)
        return errors

    def pass_time(self, ms: int) -> None:
        """Time passes, and the group is called whenever it wants to be."""
        until = self.now + ms
        while self.group.due_at <= until:
            self.now = max(self.now, self.group.due_at)
            self.see_to(self.group.expire(self.now))
            assert self.group.due_at > self.now, "due again at once"
        self.now = until

    def finish_writes(self, error: Error = Error.NONE) -> None:
        held, self.held = self.held, []
        for store in held:
            self.see_to(self.group.stored(store, error, self.now))

    def see_to(self, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Answer):
                assert not effect.ticket.is_answered, "answered twice"
                effect.ticket.answers.append(effect.body)
                continue
            if isinstance(effect, Rebalanced):
                self.reports.append(effect)
                continue
            assert isinstance(effect, StoreMetadata)
            if self.hold_writes:
                self.held.append(effect)
            else:
                self.stored.append(effect)
                self.see_to(self.group.stored(effect, Error.NONE, self.now))

    def stable(self, *clients: str) -> list[str]:
        """Brings the clients in, one after the other, and gives each its own name as assignment."""
        members: list[str] = []
        for client in clients:
            tickets = [self.join(client=client)]
            tickets += [self.join(member) for member in members]
            members.append(tickets[0].joined.member_id)
            generation = tickets[0].joined.generation
            leader = tickets[0].joined.leader
            assignments = {member: member.encode() for member in members}
            for member in members:
                self.sync(member, generation, assignments if member == leader else None)
        return members
