"""Stores: what a classic group wants written down, and why."""

from __future__ import annotations

from enum import Enum

import msgspec

from moldau.broker.coordination.groups.classic.static import Replacement
from moldau.broker.coordination.groups.group import Store
from moldau.broker.coordination.groups.records import GroupMetadata, group_key, group_value
from moldau.broker.coordination.records import KeyValue


class Purpose(Enum):
    """The reasons to write a group's metadata."""

    ASSIGNMENT = "the leader's assignment begins a generation"
    REPLACEMENT = "a static member came back under another member id"
    EMPTY = "the last member is gone"


class StoreMetadata(Store, msgspec.Struct, frozen=True):
    """The group as it is to be from here on must be written down."""

    purpose: Purpose
    metadata: GroupMetadata
    replacement: Replacement | None = None

    @property
    def leaves_empty(self) -> bool:
        return self.purpose is Purpose.EMPTY

    def records(self, group_id: str, now_ms: int) -> list[KeyValue]:
        value = group_value(self.metadata._replace(state_timestamp=now_ms))
        return [(group_key(group_id), value)]
