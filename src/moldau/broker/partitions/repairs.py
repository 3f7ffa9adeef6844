"""Repairs: replicas whose log cannot be trusted any more are handed over and copied anew.

A log fails when what it holds is damaged, when an fsync failed (the kernel may have dropped what it
was to write), or when the disk refuses for other reasons than lack of room.

    role      state of the partition               what this broker does
    leads     another replica is in sync           has that one lead, in a new epoch
    leads     no other is                          nothing: it refuses requests, and says so
    follows   in sync, or in the epoch it failed   leaves the in-sync replicas, by a new epoch
    follows   in a later epoch, and not in sync    sets the files aside, begins empty, copies

Nothing is set aside before the cluster has agreed that this replica is not counted on, in an epoch
in which it has told no leader how far its log goes. Each step is decided anew on the state as it
is, so it does not matter who dies or decides in between.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from moldau.broker.partitions.partition import Partition
from moldau.broker.partitions.partitions import Partitions
from moldau.broker.partitions.replicas import Replicas
from moldau.cluster.decisions.damage import heir, struck_off
from moldau.cluster.decisions.elections import eligible
from moldau.cluster.state.changes import PartitionsChanged
from moldau.cluster.state.topics import NO_LEADER, PartitionState
from moldau.cluster.store import Conflict, StoreError
from moldau.log.errors import StorageError
from moldau.topic_partition import TopicPartition

if TYPE_CHECKING:
    from moldau.log.log import Log

logger = logging.getLogger("moldau.broker")

_CONFLICT_S = 0.05
_NO_ANSWER_S = 0.25
# A disk that fails again and again must not make its broker copy all the time.
_FIRST_PAUSE_S = 1.0
_LONGEST_PAUSE_S = 300.0
_FORGIVEN_AFTER_S = 3600.0


class Repairs:
    """The replicas of this broker whose log has failed. Event loop only, but for `on_failure`."""

    def __init__(
        self,
        partitions: Partitions,
        replicas: Replicas,
        on_failed: Callable[[Partition], None],
    ) -> None:
        """`on_failed` is called when a partition is not to be copied or asked about any more."""
        self._partitions = partitions
        self._node = partitions.node
        self._replicas = replicas
        self._on_failed = on_failed
        # One for all logs.
        self.on_failure: Callable[[Log, StorageError], None] = self._failed_anywhere
        # The leader epoch in which each was found to have failed.
        self._failed: dict[Partition, int] = {}
        self._told_alone: set[Partition] = set()
        # How often each was started again, and when it may be the next time.
        self._setbacks: dict[TopicPartition, tuple[int, float]] = {}
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def _failed_anywhere(self, log: Log, error: StorageError) -> None:
        """A log has failed; it is offline, or could serve on in part. Any thread."""
        self._node.loop.call_soon_threadsafe(self._note, log, error)

    def consider(self, partition: Partition) -> None:
        """The partition's log is offline, and its role or that may be new."""
        if partition not in self._failed:
            self._failed[partition] = partition.leader_epoch
            # Nothing more is asked for it, nor told of it.
            self._on_failed(partition)
            partition.wake()
        self.look_again()
        if self._task is None:
            self._task = self._node.loop.create_task(self._work(), name="repairs")

    # Called by `Replicas`

    def partition_changed(self, partition: Partition) -> None:
        if partition.log.offline is not None:
            self.consider(partition)

    def partition_dropped(self, partition: Partition) -> None:
        """It is forgotten at the next step."""

    def partition_configured(self, partition: Partition) -> None:
        """Settings repair nothing."""

    def brokers_changed(self) -> None:
        self.look_again()

    def look_again(self) -> None:
        """Something has changed in the cluster."""
        self._changed.set()

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def _note(self, log: Log, error: StorageError) -> None:
        partition = self._partitions.get((log.topic, log.partition))
        if partition is None or partition.log is not log:
            return
        if log.offline is None:
            state = self._state_of(partition)
            if state is None or self._leader_without(state) == NO_LEADER:
                # There is no other copy, so what can still be read is served.
                return
            partition.log.abandon(error)
        self.consider(partition)

    def _state_of(self, partition: Partition) -> PartitionState | None:
        topic = self._node.state.topics.get(partition.topic)
        if topic is None or topic.id != partition.topic_id:
            return None
        return self._node.state.partition(partition.topic, partition.index)

    def _leader_without(self, state: PartitionState) -> int:
        """Return who leads, or will lead, if not this broker; NO_LEADER if nobody alive can."""
        me, brokers = self._node.id, self._node.state.brokers
        if state.leader == me:
            successor = heir(state, me, eligible(self._node.state))
            return heir(state, me, brokers) if successor == NO_LEADER else successor
        return state.leader if state.leader in brokers else NO_LEADER

    # -- step by step

    async def _work(self) -> None:
        while True:
            self._changed.clear()
            pause_s: float | None = None
            try:
                pause_s = await self._step()
            except Conflict as reason:
                logger.debug("could not hand over a damaged replica, trying again: %s", reason)
                pause_s = random.uniform(0, _CONFLICT_S)
            except (StoreError, StorageError) as reason:
                logger.warning("could not repair a damaged replica yet: %s", reason)
                pause_s = _NO_ANSWER_S
            except Exception:
                logger.exception("repairing damaged replicas failed; trying again")
                pause_s = _FIRST_PAUSE_S
            try:
                async with asyncio.timeout(pause_s):
                    await self._changed.wait()
            except TimeoutError:
                continue

    async def _step(self) -> float | None:
        """Do what can be done now; how long to wait for more, unless something changes."""
        changes: dict[str, dict[int, PartitionState]] = {}
        ready: list[Partition] = []
        if self._replicas.is_fenced or self._node.id not in self._node.state.brokers:
            # Before this broker joins the cluster, others decide.
            return None
        for partition in list(self._failed):
            state = self._state_of(partition)
            held = self._partitions.get((partition.topic, partition.index))
            if state is None or held is not partition:
                self._forget(partition)
                continue
            after = self._given_up(partition, state)
            if after is not None:
                changes.setdefault(partition.topic, {})[partition.index] = after
            elif self._is_dispensable(partition, state):
                ready.append(partition)
        if changes:
            commits = [PartitionsChanged(*change) for change in changes.items()]
            await self._node.store.commit(commits, as_controller=False)
            self.look_again()
        waits = [await self._begin_anew(partition) for partition in ready]
        return min((wait for wait in waits if wait is not None), default=None)

    def _forget(self, partition: Partition) -> None:
        self._failed.pop(partition, None)
        self._told_alone.discard(partition)

    def _is_dispensable(self, partition: Partition, state: PartitionState) -> bool:
        """Return whether the cluster counts on nothing that this replica has, or said that it
        has."""
        me = self._node.id
        return (
            self._leader_without(state) != NO_LEADER
            and state.leader != me
            and me not in (*state.isr, *state.elr)
            and state.leader_epoch > self._failed[partition]
        )

    def _given_up(self, partition: Partition, state: PartitionState) -> PartitionState | None:
        """Return the partition without this replica; None where it is, or where nobody else is
        left."""
        me, log = self._node.id, partition.log
        leader = self._leader_without(state)
        if leader == NO_LEADER:
            if state.leader == me and partition not in self._told_alone:
                self._told_alone.add(partition)
                logger.critical(
                    "%s-%d stays offline: %s. No other replica is in sync and alive, so nothing is"
                    " handed over, deleted or copied; see docs/operations.md, Damaged data",
                    partition.topic, partition.index, log.offline,
                )  # fmt: skip
            return None
        if self._is_dispensable(partition, state):
            return None
        logger.error(
            "%s-%d: %s. This replica can no longer be trusted; broker %d %s "
            "it, and it is copied again from there",
            partition.topic, partition.index, log.offline, leader,
            "will lead" if state.leader == me else "leads",
        )  # fmt: skip
        return struck_off(state, me, leader)

    async def _begin_anew(self, partition: Partition) -> float | None:
        """Put an empty log in the place of the failed one; how long to wait if it is too soon."""
        node, key = self._node, (partition.topic, partition.index)
        count, not_before = self._setbacks.get(key, (0, 0.0))
        now = time.monotonic()
        if now < not_before:
            return not_before - now
        if now > not_before + _FORGIVEN_AFTER_S:
            count = 0
        pause_s = min(_FIRST_PAUSE_S * 2**count, _LONGEST_PAUSE_S)
        self._setbacks[key] = (count + 1, now + pause_s)
        kept = node.logs.set_damaged_aside(*key)
        self._replicas.drop(partition)
        self._forget(partition)
        logger.warning(
            "%s-%d: copying everything again from broker %d; the damaged files "
            "are kept in %s until you remove them, or until the next damage",
            *key, partition.leader, kept,
        )  # fmt: skip
        try:
            # A crash must not find less than the recovery points promise.
            await asyncio.to_thread(node.logs.prepare_checkpoint())
        finally:
            topic = node.state.topics.get(partition.topic)
            if topic is not None and topic.id == partition.topic_id:
                self._replicas.take_up(topic, [partition.index])
        return None
