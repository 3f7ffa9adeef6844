"""Held groups: the groups of one shard, each with its committed offsets."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from moldau.broker.coordination.deadlines import NEVER
from moldau.broker.coordination.groups.classic.group import ClassicGroup
from moldau.broker.coordination.groups.group import Effect, Group
from moldau.broker.coordination.groups.offsets import Offsets
from moldau.broker.coordination.groups.records import (
    CommittedOffset,
    GroupKey,
    GroupMetadata,
    OffsetKey,
    group_key,
    offset_key,
    offset_value,
    read_group,
    read_key,
    read_offset,
)
from moldau.broker.coordination.journal import Done, Journal, nothing, settler
from moldau.broker.coordination.records import KeyValue
from moldau.topic_partition import TopicPartition
from moldau.wire.errors import Error


class HeldGroup:
    """A group with all that is known of it.

    `emptied_at` is when it lost its last member, by the wall clock, or None where it never had one;
    `is_stored` whether its metadata was ever written.
    """

    __slots__ = ("_siblings", "armed_at", "emptied_at", "group", "is_stored", "journal", "offsets")

    def __init__(self, group: Group, journal: Journal, siblings: dict[str, HeldGroup]) -> None:
        self.group = group
        self.journal = journal
        self._siblings = siblings
        self.offsets = Offsets()
        self.emptied_at: int | None = None
        self.is_stored = False
        self.armed_at = NEVER

    @property
    def is_forgettable(self) -> bool:
        """Whether nothing would be lost with it: nobody in it, nothing committed or written."""
        return self.group.is_forgettable and not self.is_stored and not self.offsets

    def forget(self) -> None:
        """Hold it no more; whoever still has it at hand finds it dead."""
        self.group.die(Error.COORDINATOR_NOT_AVAILABLE)
        if self._siblings.get(self.group.id) is self:
            del self._siblings[self.group.id]

    def commit(
        self,
        committed: dict[TopicPartition, CommittedOffset],
        now_ms: int,
        answer: asyncio.Future[Error],
    ) -> None:
        """Write offsets; they count, and the answer is known, once every in-sync replica has them.

        The answer may be an error because that takes too long; they still count if it comes to it.
        """
        group_id, offsets = self.group.id, self.offsets
        records: list[KeyValue] = [
            (offset_key(group_id, *key), offset_value(value)) for key, value in committed.items()
        ]

        def apply() -> None:
            for (topic, partition), value in committed.items():
                offsets.put(topic, partition, value)
            offsets.end(committed)

        offsets.begin(committed)
        self.journal.write(records, now_ms, apply, settler(answer))
        if answer.done() and answer.result():
            offsets.end(committed)
            if self.is_forgettable:
                self.forget()

    def remove_offsets(self, partitions: Sequence[TopicPartition], now_ms: int, done: Done) -> None:
        """Delete these offsets, where there are any."""
        records: list[KeyValue] = [
            (offset_key(self.group.id, *key), None)
            for key in partitions
            if self.offsets.get(*key) is not None
        ]

        def apply() -> None:
            for key in partitions:
                self.offsets.remove(*key)

        self.journal.write(records, now_ms, apply, done)

    def delete(self, now_ms: int, done: Done) -> None:
        """Delete the group and its offsets.

        From here on it is gone for everyone; a write that fails brings it back at a restart.
        """
        group_id = self.group.id
        records: list[KeyValue] = [(offset_key(group_id, *key), None) for key, _ in self.offsets]
        records.append((group_key(group_id), None))
        self.forget()
        self.journal.write(records, now_ms, nothing, done)


class HeldGroups:
    """The groups of one shard, by id: the state that a shard of `__consumer_offsets` holds."""

    __slots__ = ("_carry_out", "_journal", "_new_group", "_now", "_to_restore", "by_id")

    def __init__(
        self,
        journal: Journal,
        new_group: Callable[[str], ClassicGroup],
        carry_out: Callable[[HeldGroup, list[Effect]], None],
        now: Callable[[], int],
    ) -> None:
        self.by_id: dict[str, HeldGroup] = {}
        self._journal = journal
        self._new_group = new_group
        self._carry_out = carry_out
        self._now = now
        self._to_restore: list[tuple[HeldGroup, ClassicGroup, GroupMetadata]] = []

    def __str__(self) -> str:
        offsets = sum(1 for held in self.by_id.values() for _ in held.offsets)
        return f"{len(self.by_id)} groups with {offsets} committed offsets"

    def get_or_create(self, group_id: str) -> HeldGroup:
        held = self.by_id.get(group_id)
        if held is None:
            held = HeldGroup(self._new_group(group_id), self._journal, self.by_id)
            self.by_id[group_id] = held
        return held

    def read_back(self, key: bytes, value: bytes) -> None:
        what = read_key(key)
        if isinstance(what, OffsetKey):
            committed = read_offset(value)
            self.get_or_create(what.group).offsets.put(what.topic, what.partition, committed)
        elif isinstance(what, GroupKey):
            metadata = read_group(value)
            held = self.get_or_create(what.group)
            held.is_stored = True
            if metadata.protocol_type and not metadata.members and metadata.state_timestamp >= 0:
                held.emptied_at = metadata.state_timestamp
            # The record says of what kind the group is; so far it may have been known by offsets.
            group = held.group = self._new_group(what.group)
            self._to_restore.append((held, group, metadata))

    def begin(self) -> None:
        restorable, self._to_restore = self._to_restore, []
        for held, group, metadata in restorable:
            self._carry_out(held, group.restore(metadata, self._now()))

    def end(self) -> None:
        for held in self.by_id.values():
            self._carry_out(held, held.group.die(Error.NOT_COORDINATOR))
