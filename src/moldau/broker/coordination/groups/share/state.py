"""The state of a share group: all that is written down of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from uuid import UUID

import msgspec

from moldau.broker.coordination.groups.assignors.assignor import Assignment
from moldau.broker.coordination.groups.share import records
from moldau.broker.coordination.groups.share.records import (
    Current,
    KnownTopic,
    MemberMetadata,
    Part,
    part_key,
)
from moldau.broker.coordination.records import KeyValue


class State(msgspec.Struct, frozen=True):
    """All that is written down of a group. Never changed: the next one takes its place."""

    epoch: int = 0
    metadata_hash: int = 0
    target_epoch: int = 0
    members: dict[str, MemberMetadata] = msgspec.field(default_factory=dict)
    targets: dict[str, Assignment] = msgspec.field(default_factory=dict)
    currents: dict[str, Current] = msgspec.field(default_factory=dict)
    known: dict[UUID, KnownTopic] = msgspec.field(default_factory=dict)

    def records_since(self, before: State, group: str, now_ms: int) -> list[KeyValue]:
        """Return the records that lead here from an earlier state."""
        found: list[KeyValue] = []
        parts: Sequence[tuple[Part, dict, dict, Callable]] = (  # type: ignore[type-arg]
            (Part.MEMBER, before.members, self.members, records.member_value),
            (Part.TARGET_MEMBER, before.targets, self.targets, records.target_member_value),
            (Part.CURRENT_MEMBER, before.currents, self.currents, records.current_value),
        )
        for part, old, new, write in parts:
            for id in old.keys() - new.keys():
                found.append((part_key(part, group, id), None))
            for id, value in new.items():
                if old.get(id) != value:
                    found.append((part_key(part, group, id), write(value)))
        if (self.epoch, self.metadata_hash) != (before.epoch, before.metadata_hash):
            value = records.group_value(self.epoch, self.metadata_hash)
            found.append((part_key(Part.GROUP, group), value))
        if self.target_epoch != before.target_epoch:
            value = records.target_value(self.target_epoch, now_ms)
            found.append((part_key(Part.TARGET, group), value))
        if self.known != before.known:
            found.append((part_key(Part.STATES, group), records.states_value(self.known)))
        return found
