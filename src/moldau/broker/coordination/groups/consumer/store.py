"""Stores: parts of a group that have to be written before anybody is told."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from moldau.broker.coordination.groups.consumer.records import record
from moldau.broker.coordination.groups.consumer.state import Change, GroupState
from moldau.broker.coordination.groups.group import Answer, Effect, Group, Store, Ticket
from moldau.broker.coordination.records import KeyValue
from moldau.wire.errors import Error


class StoreParts(Store):
    """Changes of a group, and who waits for them to be safe.

    `others` are records that go before them, of the group of another kind whose place this one
    takes: `replaced`, which is there again if nothing could be written.
    """

    __slots__ = (
        "_answer",
        "_changes",
        "_others",
        "_refuse",
        "_replaced",
        "_state",
        "_ticket",
    )

    def __init__(
        self,
        state: GroupState,
        ticket: Ticket | None = None,
        answer: Any = None,
        refuse: Callable[[Error], Any] | None = None,
        *,
        others: Sequence[KeyValue] = (),
        replaced: Group | None = None,
    ) -> None:
        self._state = state
        self._changes: list[Change] = state.take_changes()
        self._ticket = ticket
        self._answer = answer
        self._refuse = refuse
        self._others = others
        self._replaced = replaced

    @property
    def replaced(self) -> Group | None:
        return self._replaced

    @property
    def leaves_empty(self) -> bool:
        """Never: offsets of consumer groups age from when they were committed."""
        return False

    def records(self, group_id: str, now_ms: int) -> list[KeyValue]:
        changed = [record(group_id, part, name, value) for part, name, value, _ in self._changes]
        return [*self._others, *changed]

    def take_back(self) -> None:
        self._state.take_back(self._changes)

    def settled(self, group: Group, error: Error, now: int) -> list[Effect]:
        """Tell who waits."""
        if self._ticket is None:
            return []
        if error and self._refuse is not None:
            return [Answer(self._ticket, self._refuse(error))]
        return [Answer(self._ticket, self._answer)]
