"""Held groups: the groups of one shard, each with its committed offsets."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence

from moldau.broker.coordination.deadlines import NEVER
from moldau.broker.coordination.groups.classic.group import ClassicGroup
from moldau.broker.coordination.groups.group import Effect, Group
from moldau.broker.coordination.groups.history import History
from moldau.broker.coordination.groups.offsets import Offsets
from moldau.broker.coordination.groups.records import (
    CommittedOffset,
    GroupKey,
    KindKey,
    OffsetKey,
    offset_key,
    offset_value,
    read_key,
    read_offset,
)
from moldau.broker.coordination.journal import Done, Journal, Transactional, nothing, settler
from moldau.broker.coordination.records import KeyValue
from moldau.log.markers import TransactionEnd
from moldau.topic_partition import TopicPartition
from moldau.wire.errors import Error


class HeldGroup:
    """A group with all that is known of it.

    `emptied_at` is when it lost its last member, by the wall clock, or None where it never had one;
    `is_stored` whether its metadata was ever written. Offsets and history stay with it when the
    group becomes one of another kind.
    """

    __slots__ = (
        "_siblings",
        "armed_at",
        "emptied_at",
        "group",
        "history",
        "is_stored",
        "journal",
        "offsets",
    )

    def __init__(
        self, group: Group, journal: Journal, siblings: dict[str, HeldGroup], since_ms: int
    ) -> None:
        self.group = group
        self.journal = journal
        self._siblings = siblings
        self.offsets = Offsets()
        self.history = History(since_ms)
        self.emptied_at: int | None = None
        self.is_stored = False
        self.armed_at = NEVER

    @property
    def is_forgettable(self) -> bool:
        """Whether nothing would be lost with it: nobody in it, nothing committed or written."""
        return self.group.is_forgettable and not self.is_stored and not self.offsets

    def keep(self) -> None:
        """Hold it from now on: something is written of it."""
        self.is_stored = True
        self._siblings.setdefault(self.group.id, self)

    def forget(self) -> None:
        """Hold it no more; whoever still has it at hand finds it dead."""
        self.group.die(Error.COORDINATOR_NOT_AVAILABLE)
        if self._siblings.get(self.group.id) is self:
            del self._siblings[self.group.id]

    def commit(
        self, committed: dict[TopicPartition, CommittedOffset], now_ms: int
    ) -> Error | asyncio.Future[Error]:
        """Write offsets; they count, and the answer is known, once every in-sync replica has them.

        The answer may be an error because that takes too long; they still count if it comes to it.
        It is there at once where nobody has to be waited for.
        """
        if not committed:
            return Error.NONE
        group_id, offsets, journal = self.group.id, self.offsets, self.journal

        def apply() -> None:
            for (topic, partition), value in committed.items():
                offsets.put(topic, partition, value)
            offsets.end(committed)

        offsets.begin(committed)
        error = journal.append(
            [(offset_key(group_id, *key), offset_value(value)) for key, value in committed.items()],
            now_ms,
        )
        if error:
            self._give_up(committed)
            return error
        if journal.is_safe:
            apply()
            return error
        answer: asyncio.Future[Error] = journal.loop.create_future()
        journal.when_safe(apply, settler(answer))
        if answer.done() and answer.result():
            self._give_up(committed)
        return answer

    def _give_up(self, committed: dict[TopicPartition, CommittedOffset]) -> None:
        """Wait no more for offsets that never will be there."""
        self.offsets.end(committed)
        if self.is_forgettable:
            self.forget()

    def stage(
        self,
        transaction: Transactional,
        committed: dict[TopicPartition, CommittedOffset],
        now_ms: int,
        answer: asyncio.Future[Error],
    ) -> None:
        """Write offsets that a transaction commits; they count once its marker says so."""
        group_id, offsets = self.group.id, self.offsets
        records: list[KeyValue] = [
            (offset_key(group_id, *key), offset_value(value)) for key, value in committed.items()
        ]

        def apply() -> None:
            offsets.stage(transaction.producer_id, committed)
            offsets.end(committed)

        offsets.begin(committed)
        self.journal.write(records, now_ms, apply, settler(answer), transaction)
        if answer.done() and answer.result():
            self._give_up(committed)

    def remove_offsets(self, partitions: Sequence[TopicPartition], now_ms: int, done: Done) -> None:
        """Delete these offsets, where there are any."""
        records: list[KeyValue] = [
            (offset_key(self.group.id, *key), None)
            for key in partitions
            if self.offsets.get(*key) is not None or self.offsets.is_staged(key)
        ]

        def apply() -> None:
            for key in partitions:
                self.offsets.remove(*key)

        self.journal.write(records, now_ms, apply, done)

    def delete(self, now_ms: int, done: Done) -> None:
        """Delete the group and its offsets.

        It is gone for everyone from here on, unless nothing could be written: then it stays. A
        write that fails later may bring it back at a restart.
        """
        group_id = self.group.id
        keys = {key for key, _ in self.offsets} | self.offsets.staged
        records: list[KeyValue] = [(offset_key(group_id, *key), None) for key in sorted(keys)]
        records += self.group.tombstones()
        refusals: list[Error] = []

        def finish(error: Error) -> None:
            refusals.append(error)
            done(error)

        self.journal.write(records, now_ms, nothing, finish)
        if not any(refusals):
            self.forget()


class HeldGroups:
    """The groups of one shard, by id: the state that a shard of `__consumer_offsets` holds."""

    __slots__ = (
        "_carry_out",
        "_journal",
        "_kinds",
        "_now",
        "_producers",
        "_since_ms",
        "_to_resume",
        "by_id",
    )

    def __init__(
        self,
        journal: Journal,
        kinds: Mapping[str, Callable[[str], Group]],
        carry_out: Callable[[HeldGroup, list[Effect]], None],
        now: Callable[[], int],
        since_ms: int,
    ) -> None:
        self.by_id: dict[str, HeldGroup] = {}
        self._journal = journal
        # What makes a group of each kind that is served.
        self._kinds = kinds
        self._carry_out = carry_out
        self._now = now
        # When this broker became their coordinator, by the wall clock.
        self._since_ms = since_ms
        self._to_resume: dict[str, HeldGroup] = {}
        # The groups that open transactions have offsets for, by producer id.
        self._producers: dict[int, set[str]] = {}

    def __str__(self) -> str:
        offsets = sum(1 for held in self.by_id.values() for _ in held.offsets)
        return f"{len(self.by_id)} groups with {offsets} committed offsets"

    def draft(self, group_id: str, kind: str) -> HeldGroup:
        """Return a new group that nobody else knows of until it is kept."""
        return HeldGroup(self._kinds[kind](group_id), self._journal, self.by_id, self._since_ms)

    def get_or_create(self, group_id: str, kind: str = ClassicGroup.kind) -> HeldGroup:
        """Return the group, of whatever kind it is; of this kind if it is new."""
        held = self.by_id.get(group_id)
        if held is None:
            held = HeldGroup(self._kinds[kind](group_id), self._journal, self.by_id, self._since_ms)
            self.by_id[group_id] = held
        return held

    def stage(
        self,
        held: HeldGroup,
        transaction: Transactional,
        committed: dict[TopicPartition, CommittedOffset],
        now_ms: int,
        answer: asyncio.Future[Error],
    ) -> None:
        """Write offsets that a transaction commits for a group."""
        self._producers.setdefault(transaction.producer_id, set()).add(held.group.id)
        held.stage(transaction, committed, now_ms, answer)

    def write_marker(self, end: TransactionEnd, now_ms: int, done: Done) -> None:
        """Write the end of a transaction; what it staged is settled when that is safe."""

        def apply() -> None:
            for group_id in self._producers.pop(end.producer_id, ()):
                held = self.by_id.get(group_id)
                if held is not None:
                    held.offsets.settle(end.producer_id, commits=end.commits)
                    self._carry_out(held, [])

        self._journal.write_marker(end, now_ms, apply, done)

    def read_back(self, key: bytes, value: bytes) -> None:
        what = read_key(key)
        if isinstance(what, OffsetKey):
            committed = read_offset(value)
            self.get_or_create(what.group).offsets.put(what.topic, what.partition, committed)
        elif isinstance(what, GroupKey):
            held = self._of_kind(what.group, ClassicGroup.kind)
            held.group.replay(key, value)
            if isinstance(held.group, ClassicGroup):
                held.emptied_at = held.group.restored_emptied_at
        elif isinstance(what, KindKey) and what.kind in self._kinds:
            self._of_kind(what.group, what.kind).group.replay(key, value)

    def _of_kind(self, group_id: str, kind: str) -> HeldGroup:
        """Return a group whose records say of what kind it is; so far it may have been known by
        offsets."""
        held = self.get_or_create(group_id, kind)
        if held.group.kind != kind:
            held.group = self._kinds[kind](group_id)
        held.is_stored = True
        self._to_resume[group_id] = held
        return held

    def read_back_open(self, producer_id: int, key: bytes, value: bytes | None) -> None:
        what = read_key(key)
        if isinstance(what, OffsetKey):
            committed = None if value is None else read_offset(value)
            held = self.get_or_create(what.group)
            held.offsets.stage(producer_id, {(what.topic, what.partition): committed})
            self._producers.setdefault(producer_id, set()).add(what.group)

    def begin(self) -> None:
        resumed, self._to_resume = self._to_resume, {}
        for held in resumed.values():
            self._carry_out(held, held.group.resume(self._now()))

    def end(self) -> None:
        for held in self.by_id.values():
            self._carry_out(held, held.group.die(Error.NOT_COORDINATOR))
