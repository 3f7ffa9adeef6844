"""The share coordinator of a broker: keeps how far share groups have come in their partitions.

A state belongs to the partition of `__share_group_state` that its key hashes to, and whoever leads
that partition keeps it. The leaders of the partitions that are shared read it when they begin, and
write what changes. Two epochs fence those who are late:

    leader epoch   of the shared partition: raised by the read of a new leader, after which the
                   writes of earlier ones are refused
    state epoch    of the group: raised when its offsets are set anew (InitializeShareGroupState)
"""

from __future__ import annotations

import asyncio
import logging
from typing import NamedTuple

from moldau.broker.coordination.host import Host
from moldau.broker.coordination.journal import Journal, settler
from moldau.broker.coordination.placement import Size
from moldau.broker.coordination.shards import Shards
from moldau.broker.coordination.share.batches import RecordState, StateBatch
from moldau.broker.coordination.share.held import HeldShareStates, replay_states
from moldau.broker.coordination.share.state import UNKNOWN, ShareKey, ShareState, Update
from moldau.broker.partitions.partition import Partition
from moldau.cluster.state.internal_topics import SHARE_GROUP_STATE
from moldau.wire.errors import Error

logger = logging.getLogger("moldau.share")

_NEGATIVE = "The partition id cannot be a negative number."
_UNINITIALIZED_READ = "Read operation on uninitialized share partition not allowed."
_UNINITIALIZED_WRITE = "Write operation on uninitialized share partition not allowed."

_UNSOUND = "A state batch ends before it begins, or has a state that there is not."
_STATES = frozenset(RecordState)


class Refused(NamedTuple):
    """Why nothing was done."""

    error: Error
    message: str | None = None


_FENCED_LEADER = Refused(
    Error.FENCED_LEADER_EPOCH,
    "The leader epoch in the request is older than the epoch on the broker.",
)
_FENCED_STATE = Refused(
    Error.FENCED_STATE_EPOCH,
    "The share coordinator rejected the request because the share-group state epoch did not match.",
)
_UNKNOWN_PARTITION = Refused(
    Error.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition."
)


class Found(NamedTuple):
    """What a state says."""

    state_epoch: int
    leader_epoch: int
    start: int
    finished: int
    batches: tuple[StateBatch, ...]


# What a state says that there is not.
NOT_BEGUN = Found(0, 0, UNKNOWN, UNKNOWN, ())


class ShareCoordinator:
    """The share-group states that this broker keeps. Event loop only."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self.shards: Shards[HeldShareStates] = Shards(
            SHARE_GROUP_STATE,
            host,
            size=self._topic_size,
            write_timeout_ms=lambda: host.settings.share_coordinator_write_timeout_ms,
            new_state=self._new_states,
            read_back=replay_states,
        )

    def _topic_size(self) -> Size:
        settings = self._host.settings
        return Size(
            settings.share_coordinator_state_topic_num_partitions,
            settings.share_coordinator_state_topic_replication_factor,
            settings.share_coordinator_state_topic_segment_bytes,
            settings.share_coordinator_state_topic_min_isr,
        )

    def _new_states(self, journal: Journal) -> HeldShareStates:
        settings = self._host.settings
        return HeldShareStates(
            journal, lambda: settings.share_coordinator_snapshot_update_records_per_snapshot
        )

    def start(self) -> None:
        """Begin to delete what is not needed any more."""
        self._host.spawn(self._prune_now_and_then())

    def stop(self) -> None:
        self.shards.close()

    def partition_changed(self, partition: Partition) -> None:
        """Follow the role that a partition of `__share_group_state` has been given."""
        self.shards.partition_changed(partition)

    def topic_deleted(self, name: str) -> None:
        self.shards.topic_deleted(name)

    # What is asked

    async def initialize(self, key: ShareKey, state_epoch: int, start: int) -> Refused | None:
        """Begin a state, or begin it anew; nothing is finished from `start` on.

        Without a `start` it only begins if there is none: a leader that found none may say so late,
        when another has begun it and members have worked off what followed.
        """
        states = self._find(key)
        if isinstance(states, Refused):
            return states
        before = states.by_key.get(key)
        if before is not None and UNKNOWN < state_epoch < before.state_epoch:
            return _FENCED_STATE
        if not self._is_known(key):
            return _UNKNOWN_PARTITION
        if before is not None and start < 0 and state_epoch == before.state_epoch:
            return None
        written = self._host.loop.create_future()
        states.initialize(key, state_epoch, start, self._host.now_ms(), settler(written))
        return _refusal(await written)

    async def read(self, key: ShareKey, leader_epoch: int) -> Found | Refused:
        """Return a state to the leader of its partition, and have it fence earlier ones.

        Only what every in-sync replica has is returned: what is lost with this broker never was.
        """
        found = self._find_state(key, _UNINITIALIZED_READ)
        if isinstance(found, Refused):
            return found
        states, state = found
        if UNKNOWN < leader_epoch < state.leader_epoch:
            return _FENCED_LEADER
        if not self._is_known(key):
            return _UNKNOWN_PARTITION
        answer = _found(state)
        log = states.journal.partition.log
        if leader_epoch > state.leader_epoch or log.high_watermark < log.log_end:
            update = Update(max(leader_epoch, state.leader_epoch), UNKNOWN, state.finished)
            written = self._host.loop.create_future()
            states.update(key, update, self._host.now_ms(), settler(written))
            refusal = _refusal(await written)
            if refusal is not None:
                return refusal
        return answer

    async def write(self, key: ShareKey, state_epoch: int, update: Update) -> Refused | None:
        """Take in what has changed; done when every in-sync replica has it."""
        found = self._find_state(key, _UNINITIALIZED_WRITE)
        if isinstance(found, Refused):
            return found
        states, state = found
        if UNKNOWN < update.leader_epoch < state.leader_epoch:
            return _FENCED_LEADER
        if UNKNOWN < state_epoch < state.state_epoch:
            return _FENCED_STATE
        if not self._is_known(key):
            return _UNKNOWN_PARTITION
        if not all(_is_sound(batch) for batch in update.batches):
            return Refused(Error.INVALID_REQUEST, _UNSOUND)
        # Only a read raises the leader epoch.
        update = update._replace(leader_epoch=state.leader_epoch)
        written = self._host.loop.create_future()
        states.update(key, update, self._host.now_ms(), settler(written))
        return _refusal(await written)

    async def delete(self, key: ShareKey) -> Refused | None:
        """Delete a state, if there is one."""
        states = self._find(key)
        if isinstance(states, Refused):
            return states
        if key not in states.by_key:
            return None
        written = self._host.loop.create_future()
        states.remove(key, self._host.now_ms(), settler(written))
        return _refusal(await written)

    def summary(self, key: ShareKey) -> Found | Refused:
        """Return a state without its batches; one that is not there has not begun."""
        states = self._find(key)
        if isinstance(states, Refused):
            return states
        state = states.by_key.get(key)
        if state is None:
            return NOT_BEGUN
        return _found(state)._replace(batches=())

    def _find(self, key: ShareKey) -> HeldShareStates | Refused:
        if key.partition < 0:
            return Refused(Error.INVALID_REQUEST, _NEGATIVE)
        found = self.shards.find(str(key))
        return Refused(found) if isinstance(found, Error) else found

    def _find_state(
        self, key: ShareKey, message: str
    ) -> tuple[HeldShareStates, ShareState] | Refused:
        states = self._find(key)
        if isinstance(states, Refused):
            return states
        state = states.by_key.get(key)
        return Refused(Error.INVALID_REQUEST, message) if state is None else (states, state)

    def _is_known(self, key: ShareKey) -> bool:
        topic = self._host.state.topics_by_id.get(key.topic_id)
        return topic is not None and key.partition < len(topic.partitions)

    # Keeping the log short

    async def _prune_now_and_then(self) -> None:
        while True:
            settings = self._host.settings
            await asyncio.sleep(settings.share_coordinator_state_topic_prune_interval_ms / 1000)
            try:
                self.prune()
            except Exception:
                logger.exception("deleting old share-group states failed; trying again later")

    def prune(self) -> None:
        """Rewrite states that nobody has changed for long, and delete what is not needed then."""
        now_ms = self._host.now_ms()
        cold_ms = self._host.settings.share_coordinator_cold_partition_snapshot_interval_ms
        for states in self.shards:
            is_worthwhile = states.most_are_old
            for key, state in list(states.by_key.items()):
                if not self._is_known(key):
                    states.remove(key, now_ms, _ignore)
                elif is_worthwhile and state.written_ms + cold_ms <= now_ms:
                    states.rewrite(key, now_ms, _ignore)
            states.prune()


def _ignore(error: Error) -> None:
    if error:
        logger.warning("a share-group state could not be rewritten: %s", error.name)


def _found(state: ShareState) -> Found:
    return Found(
        state.state_epoch, state.leader_epoch, state.start, state.finished, tuple(state.batches)
    )


def _is_sound(batch: StateBatch) -> bool:
    return 0 <= batch.first <= batch.last and batch.state in _STATES and batch.deliveries >= 0


def _refusal(error: Error) -> Refused | None:
    return Refused(error) if error else None
