"""The groups whose records lie in one partition of `__consumer_offsets` that this broker leads."""

from __future__ import annotations

from collections.abc import Callable

from moldau.broker.coordination.groups.classic.group import NEVER, ClassicGroup
from moldau.broker.coordination.groups.offsets import Offsets
from moldau.broker.coordination.groups.records import (
    CommittedOffset,
    GroupKey,
    GroupMetadata,
    OffsetKey,
)
from moldau.broker.coordination.journal import Journal


class HeldGroup:
    """A group with all that is known of it.

    `emptied_at` is when it lost its last member, by the wall clock, or None where it never had one;
    `is_stored` whether its metadata was ever written.
    """

    __slots__ = ("armed_at", "emptied_at", "group", "is_stored", "offsets", "shard")

    def __init__(self, shard: Shard, group: ClassicGroup) -> None:
        self.shard = shard
        self.group = group
        self.offsets = Offsets()
        self.emptied_at: int | None = None
        self.is_stored = False
        self.armed_at = NEVER

    @property
    def is_forgettable(self) -> bool:
        """Whether nothing would be lost with it: nobody in it, nothing committed or written."""
        return self.group.is_forgettable and not self.is_stored and not self.offsets


class Shard:
    """The groups of one partition for as long as this broker leads it in one leader epoch."""

    __slots__ = ("groups", "index", "is_loaded", "journal", "leader_epoch", "new_group")

    def __init__(
        self,
        index: int,
        leader_epoch: int,
        journal: Journal,
        new_group: Callable[[str], ClassicGroup],
    ) -> None:
        self.index = index
        self.leader_epoch = leader_epoch
        self.journal = journal
        self.new_group = new_group
        self.groups: dict[str, HeldGroup] = {}
        self.is_loaded = False

    def get_or_create(self, group_id: str) -> HeldGroup:
        held = self.groups.get(group_id)
        if held is None:
            held = self.groups[group_id] = HeldGroup(self, self.new_group(group_id))
        return held

    def take_offset(self, key: OffsetKey, committed: CommittedOffset) -> None:
        """A committed offset that was read back."""
        self.get_or_create(key.group).offsets.put(key.topic, key.partition, committed)

    def take_group(self, key: GroupKey, metadata: GroupMetadata) -> HeldGroup:
        """A group that was read back; its members are to be restored."""
        held = self.get_or_create(key.group)
        held.is_stored = True
        if metadata.protocol_type and not metadata.members and metadata.state_timestamp >= 0:
            held.emptied_at = metadata.state_timestamp
        return held
