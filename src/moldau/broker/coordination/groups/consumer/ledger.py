"""The ledger of a consumer group: what changed and why, to be written, answered and reported."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from moldau.broker.coordination.groups.consumer.machine import GroupStatus, Machine
from moldau.broker.coordination.groups.consumer.store import StoreParts
from moldau.broker.coordination.groups.group import Effect, Group, Ticket
from moldau.broker.coordination.groups.report import Cause, Reasons, Rebalanced
from moldau.broker.coordination.records import KeyValue
from moldau.wire.errors import Error


class Ledger:
    """Turns what the state machine changed into effects. A rebalance begins with the first cause
    that is noted, and is over once everybody has what it shall have."""

    __slots__ = ("_group_id", "_machine", "_others", "_reasons", "_replaced")

    def __init__(self, machine: Machine, group_id: str) -> None:
        self._machine = machine
        self._group_id = group_id
        self._reasons: Reasons | None = None
        # What goes before the first records, and the group whose place this one takes with them.
        self._others: Sequence[KeyValue] = ()
        self._replaced: Group | None = None

    def take_the_place_of(self, group: Group, tombstones: Sequence[KeyValue]) -> None:
        """With the next write be there instead of a group of another kind."""
        self._replaced, self._others = group, tombstones

    def note(self, cause: Cause, member_id: str, now: int) -> None:
        """Remember why the group epoch goes up."""
        if self._reasons is None:
            self._reasons = Reasons(now)
        self._reasons.add(cause, member_id)

    def finish(
        self,
        now: int,
        ticket: Ticket | None = None,
        answer: Any = None,
        refuse: Callable[[Error], Any] | None = None,
    ) -> list[Effect]:
        """Have what changed written, and tell who waits then."""
        state = self._machine.state
        has_changed = bool(state.changes)
        others, replaced = self._others, self._replaced
        self._others, self._replaced = (), None
        effects: list[Effect] = [
            StoreParts(state, ticket, answer, refuse, others=others, replaced=replaced)
        ]
        if has_changed and self._reasons is not None:
            effects += self._report(self._reasons, now)
        return effects

    def _report(self, reasons: Reasons, now: int) -> list[Effect]:
        if self._machine.status not in (GroupStatus.STABLE, GroupStatus.EMPTY):
            return []
        self._reasons = None
        state = self._machine.state
        assignor = self._machine.assignor.name
        took_ms = now - reasons.began
        epoch = state.epoch.epoch
        return [
            Rebalanced(self._group_id, epoch, len(state.members), assignor, None, took_ms, reasons)
        ]
