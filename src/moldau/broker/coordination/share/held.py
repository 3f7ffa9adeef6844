"""Held share-group states: those of one shard of `__share_group_state`.

Every state begins with a snapshot in the log, which updates follow. After so many updates there is
another snapshot, and nothing before it is needed any more. The log is not compacted: records before
the oldest snapshot that is needed are deleted from its start (`prune`).

A record that is appended counts here at once, so that the next snapshot has it. Whoever asked is
told when every in-sync replica has it. If that never comes, this broker leads the partition no
more, and all of this is read back by another.
"""

from __future__ import annotations

from collections.abc import Callable

from moldau.broker.coordination.journal import Done, Journal, nothing
from moldau.broker.coordination.loading import replay
from moldau.broker.coordination.records import KeyValue
from moldau.broker.coordination.share.records import (
    UpdateRecord,
    read_record,
    snapshot_record,
    tombstone,
    update_record,
)
from moldau.broker.coordination.share.state import ShareKey, ShareState, Update
from moldau.log.log import Log
from moldau.log.retention import delete_records_before
from moldau.wire.errors import Error

# What was deleted has to stay in the log's reach while older snapshots of it are.
_GONE = 1 << 62


class HeldShareStates:
    """The share-group states of one shard, by their keys. Event loop only."""

    def __init__(self, journal: Journal, updates_per_snapshot: Callable[[], int]) -> None:
        self.by_key: dict[ShareKey, ShareState] = {}
        self.journal = journal
        self._updates_per_snapshot = updates_per_snapshot

    def __str__(self) -> str:
        return f"{len(self.by_key)} share-group states"

    def initialize(
        self, key: ShareKey, state_epoch: int, start: int, now_ms: int, done: Done
    ) -> None:
        """Begin a state, or begin it anew."""
        before = self.by_key.get(key)
        epoch = 0 if before is None else before.snapshot_epoch + 1
        state = ShareState(epoch, state_epoch, 0, start, created_ms=now_ms, written_ms=now_ms)
        self._snapshot(key, state, now_ms, done)

    def update(self, key: ShareKey, update: Update, now_ms: int, done: Done) -> None:
        """Change a state, by a snapshot if there are many updates already."""
        state = self.by_key[key]
        if state.updates < self._updates_per_snapshot():
            record = update_record(key, state.snapshot_epoch, update)
            self._append(record, now_ms, lambda offset: state.apply(update), nothing, done)
            return
        new = _copy(state, now_ms)
        new.apply(update)
        self._snapshot(key, new, now_ms, done)

    def rewrite(self, key: ShareKey, now_ms: int, done: Done) -> None:
        """Write a state whole, so that its earlier records are not needed any more."""
        self._snapshot(key, _copy(self.by_key[key], now_ms), now_ms, done)

    def remove(self, key: ShareKey, now_ms: int, done: Done) -> None:
        """Delete a state."""
        self._append(tombstone(key), now_ms, lambda offset: self._drop(key), nothing, done)

    def _drop(self, key: ShareKey) -> None:
        self.by_key.pop(key, None)

    def _snapshot(self, key: ShareKey, state: ShareState, now_ms: int, done: Done) -> None:
        log = self.journal.partition.log
        before, offset = self.by_key.get(key), log.log_end

        def take(offset: int) -> None:
            # Until every replica has this one, the snapshot before it is still needed.
            state.snapshot_offset = offset if before is None else before.snapshot_offset
            state.updates = 0
            self.by_key[key] = state
            if log.high_watermark > offset:
                keep()

        def keep() -> None:
            state.snapshot_offset = offset

        self._append(snapshot_record(key, state), now_ms, take, keep, done)

    def _append(
        self,
        record: KeyValue,
        now_ms: int,
        take: Callable[[int], None],
        keep: Callable[[], None],
        done: Done,
    ) -> None:
        """Append a record; `take` it in at once, `keep` it once every in-sync replica has it."""
        at_once: list[Error] = []
        is_appending = True

        def finish(error: Error) -> None:
            if is_appending:
                at_once.append(error)
            else:
                done(error)

        offset = self.journal.partition.log.log_end
        self.journal.write([record], now_ms, keep, finish)
        is_appending = False
        if not at_once:
            take(offset)
        elif at_once[0]:
            # Nothing was appended.
            done(at_once[0])
        else:
            take(offset)
            done(Error.NONE)

    @property
    def needed_from(self) -> int:
        """The first offset of the log that has to be kept."""
        oldest = min((state.snapshot_offset for state in self.by_key.values()), default=_GONE)
        return min(oldest, self.journal.partition.log.high_watermark)

    @property
    def most_are_old(self) -> bool:
        """Whether most records of the log would not be needed, if every state was rewritten."""
        log = self.journal.partition.log
        return log.log_end - log.log_start > 2 * len(self.by_key)

    def prune(self) -> int:
        """Delete what is not needed from the log's start; return how many records that were."""
        partition = self.journal.partition
        log, before = partition.log, partition.log.log_start
        needed_from = self.needed_from
        if not partition.is_leader or needed_from <= before:
            return 0
        delete_records_before(log, needed_from)
        partition.start_moved()
        return needed_from - before

    # Reading back

    def replay(self, offset: int, key: bytes, value: bytes | None) -> None:
        """Take in the next record of the log."""
        found = read_record(key, value)
        if found is None:
            return
        where, said = found
        if said is None:
            self._drop(where)
        elif isinstance(said, ShareState):
            said.snapshot_offset = offset
            self.by_key[where] = said
        else:
            self._replay_update(where, said)

    def _replay_update(self, key: ShareKey, said: UpdateRecord) -> None:
        state = self.by_key.get(key)
        # Without its snapshot it is older than another one, which is still to come.
        if state is not None:
            state.apply(said.update)

    def begin(self) -> None:
        pass

    def end(self) -> None:
        pass


def _copy(state: ShareState, now_ms: int) -> ShareState:
    return ShareState(
        state.snapshot_epoch + 1, state.state_epoch, state.leader_epoch, state.start,
        state.finished, state.created_ms, now_ms, state.batches,
    )  # fmt: skip


async def replay_states(log: Log, states: HeldShareStates) -> None:
    """Read back all states of a log."""
    await replay(log, states.replay)
