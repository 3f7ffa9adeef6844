"""The group coordinator of a broker: brings requests, time and the log to its groups.

A group belongs to the partition of `__consumer_offsets` that its id hashes to, and whoever leads
that partition coordinates it. What must survive is written there first and counts once it is below
the high watermark, so that the next leader knows it too.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from moldau.broker.coordination.deadlines import Deadlines
from moldau.broker.coordination.groups.classic.group import ClassicGroup, State
from moldau.broker.coordination.groups.classic.messages import (
    Answer,
    Departure,
    Effect,
    Join,
    Joined,
    Purpose,
    Store,
    Sync,
    Synced,
)
from moldau.broker.coordination.groups.offsets import TopicPartition
from moldau.broker.coordination.groups.records import (
    CommittedOffset,
    GroupKey,
    OffsetKey,
    group_key,
    group_value,
    offset_key,
    offset_value,
)
from moldau.broker.coordination.groups.topic import OFFSETS_TOPIC, offsets_topic, partition_of
from moldau.broker.coordination.journal import Journal, KeyValue
from moldau.broker.coordination.loading import load
from moldau.broker.coordination.shard import HeldGroup, Shard
from moldau.broker.partitions.partition import Partition
from moldau.cluster.errors import ClusterError
from moldau.log.errors import LogError
from moldau.records.batch import BatchError
from moldau.wire.errors import Error

if TYPE_CHECKING:
    from moldau.broker.server import Broker

logger = logging.getLogger("moldau.groups")

# How many groups are looked through before the loop serves others again.
_GROUPS_AT_A_TIME = 100
_MINUTE_MS = 60_000


class GroupCoordinator:
    """The groups that this broker coordinates. Event loop only.

    What may have to wait is answered with a future, which is often done already.
    """

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._loop = broker.loop
        self._shards: dict[int, Shard] = {}
        self._deadlines: Deadlines[HeldGroup] = Deadlines(broker.loop, self._expire)

    # What becomes of the partitions

    def start(self) -> None:
        self._broker.spawn(self._expire_offsets_now_and_then())

    def stop(self) -> None:
        """Sends everyone who waits away; the broker is about to stop."""
        self._deadlines.stop()
        for index in list(self._shards):
            self._unload(index)

    def partition_changed(self, partition: Partition) -> None:
        """A partition of `__consumer_offsets` has been given its role."""
        shard = self._shards.get(partition.index)
        if not partition.is_leader:
            self._unload(partition.index)
        elif shard is None or shard.leader_epoch != partition.leader_epoch:
            self._unload(partition.index)
            self._load(partition)

    def topic_deleted(self, name: str) -> None:
        """What groups have read of a topic that is gone is of no use to anyone."""
        if name == OFFSETS_TOPIC:
            for index in list(self._shards):
                self._unload(index)
            return
        for held in self._held():
            partitions = held.offsets.by_topic.get(name)
            if partitions:
                self._remove_offsets(held, [(name, index) for index in partitions], _ignore)

    def _load(self, partition: Partition) -> None:
        timeout_s = self._broker.settings.offsets_commit_timeout_ms / 1000
        journal = Journal(partition, self._loop, timeout_s)
        shard = Shard(partition.index, partition.leader_epoch, journal, self._new_group)
        self._shards[partition.index] = shard
        if partition.log.log_start == partition.log.log_end:
            shard.is_loaded = True
        else:
            self._broker.spawn(self._read_back(shard, partition))

    def _new_group(self, group_id: str) -> ClassicGroup:
        settings = self._broker.settings
        return ClassicGroup(
            group_id,
            new_id=_random_id,
            initial_delay_ms=settings.group_initial_rebalance_delay_ms,
            max_size=settings.group_max_size,
        )

    async def _read_back(self, shard: Shard, partition: Partition) -> None:
        started = self._loop.time()
        offsets = 0
        metadata = []
        try:
            async for key, value in load(partition.log):
                if isinstance(key, OffsetKey) and isinstance(value, CommittedOffset):
                    offsets += 1
                    shard.take_offset(key, value)
                elif isinstance(key, GroupKey) and not isinstance(value, CommittedOffset):
                    metadata.append((shard.take_group(key, value), value))
        except (LogError, BatchError, OSError) as problem:
            if self._shards.get(shard.index) is not shard:
                # Another broker leads by now, and the log is being made like its own.
                return
            logger.error(
                "the groups of %s-%d cannot be read back and stay unavailable: %s",
                OFFSETS_TOPIC, shard.index, problem,
            )  # fmt: skip
            return
        if self._shards.get(shard.index) is not shard:
            return
        shard.is_loaded = True
        for held, value in metadata:
            self._carry_out(held, held.group.restore(value, self._deadlines.now()))
        took_ms = (self._loop.time() - started) * 1000
        logger.info(
            "coordinating %d groups with %d committed offsets of %s-%d, read back in %.0f ms",
            len(shard.groups), offsets, OFFSETS_TOPIC, shard.index, took_ms,
        )  # fmt: skip

    def _unload(self, index: int) -> None:
        shard = self._shards.pop(index, None)
        if shard is None:
            return
        shard.journal.close()
        for held in shard.groups.values():
            self._carry_out(held, held.group.die(Error.NOT_COORDINATOR))

    # Who coordinates what

    def partition_of(self, group_id: str) -> int:
        """The partition of `__consumer_offsets` that a group belongs to."""
        topic = self._broker.state.topics.get(OFFSETS_TOPIC)
        if topic is None:
            return partition_of(group_id, self._broker.settings.offsets_topic_num_partitions)
        return partition_of(group_id, len(topic.partitions))

    async def ensure_topic(self) -> ClusterError | None:
        """Creates `__consumer_offsets` on first use; why not, where it cannot be."""
        broker = self._broker
        if OFFSETS_TOPIC in broker.state.topics:
            return None
        topic = offsets_topic(broker.settings, len(broker.state.brokers))
        (outcome,) = await broker.controller.ensure_topics([topic])
        # Whoever is told where its group is asks for it at once.
        await broker.replicas.caught_up()
        return outcome if isinstance(outcome, ClusterError) else None

    def _shard_of(self, group_id: str) -> Shard | Error:
        shard = self._shards.get(self.partition_of(group_id))
        if shard is None:
            return Error.NOT_COORDINATOR
        return shard if shard.is_loaded else Error.COORDINATOR_LOAD_IN_PROGRESS

    def find(self, group_id: str) -> HeldGroup | Error:
        """The group, or GROUP_ID_NOT_FOUND, or why this broker cannot say."""
        shard = self._shard_of(group_id)
        if isinstance(shard, Error):
            return shard
        return shard.groups.get(group_id, Error.GROUP_ID_NOT_FOUND)

    def list_groups(self) -> list[HeldGroup] | Error:
        """All groups here; the error while some are still being read back."""
        if not all(shard.is_loaded for shard in self._shards.values()):
            return Error.COORDINATOR_LOAD_IN_PROGRESS
        return list(self._held())

    def _held(self) -> Iterable[HeldGroup]:
        for shard in self._shards.values():
            if shard.is_loaded:
                yield from list(shard.groups.values())

    # Membership

    def join(self, group_id: str, request: Join) -> asyncio.Future[Joined]:
        answer: asyncio.Future[Joined] = self._loop.create_future()
        settings = self._broker.settings
        shard = self._shard_of(group_id)
        if not group_id:
            answer.set_result(Joined(Error.INVALID_GROUP_ID, request.member_id))
        elif not (
            settings.group_min_session_timeout_ms
            <= request.session_timeout_ms
            <= settings.group_max_session_timeout_ms
        ):
            answer.set_result(Joined(Error.INVALID_SESSION_TIMEOUT, request.member_id))
        elif isinstance(shard, Error):
            answer.set_result(Joined(shard, request.member_id))
        elif request.member_id and group_id not in shard.groups:
            answer.set_result(Joined(Error.UNKNOWN_MEMBER_ID, request.member_id))
        else:
            held = shard.get_or_create(group_id)
            self._carry_out(held, held.group.join(request, answer, self._deadlines.now()))
        return answer

    def sync(self, group_id: str, request: Sync) -> asyncio.Future[Synced]:
        answer: asyncio.Future[Synced] = self._loop.create_future()
        held = self._member_of(group_id)
        if isinstance(held, Error):
            answer.set_result(Synced(held))
        else:
            self._carry_out(held, held.group.sync(request, answer, self._deadlines.now()))
        return answer

    def heartbeat(
        self, group_id: str, member_id: str, instance_id: str | None, generation: int
    ) -> Error:
        held = self._member_of(group_id)
        if isinstance(held, Error):
            # While a group is read back nobody is called dead, so a member may go on.
            return Error.NONE if held is Error.COORDINATOR_LOAD_IN_PROGRESS else held
        return held.group.heartbeat(member_id, instance_id, generation, self._deadlines.now())

    def leave(self, group_id: str, departures: Sequence[Departure]) -> list[Error] | Error:
        held = self._member_of(group_id)
        if held is Error.UNKNOWN_MEMBER_ID:
            return [held] * len(departures)
        if isinstance(held, Error):
            return held
        errors, effects = held.group.leave(departures, self._deadlines.now())
        self._carry_out(held, effects)
        return errors

    def _member_of(self, group_id: str) -> HeldGroup | Error:
        if not group_id:
            return Error.INVALID_GROUP_ID
        held = self.find(group_id)
        return Error.UNKNOWN_MEMBER_ID if held is Error.GROUP_ID_NOT_FOUND else held

    def _expire(self, held: HeldGroup) -> None:
        self._carry_out(held, held.group.expire(self._deadlines.now()))

    def _carry_out(self, held: HeldGroup, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Answer):
                if not effect.ticket.done():
                    effect.ticket.set_result(effect.body)
            elif isinstance(effect, Store):
                self._store(held, effect)
            else:
                log = logger.warning if effect.needs_action else logger.info
                log("%s", effect)
        if held.is_forgettable:
            self._forget(held)
        self._deadlines.arm(held, held.group.due_at)

    def _store(self, held: HeldGroup, store: Store) -> None:
        now_ms = self._broker.now_ms()
        held.emptied_at = now_ms if store.purpose is Purpose.EMPTY else None
        value = group_value(store.metadata._replace(state_timestamp=now_ms))
        # Whatever came of the write, a tombstone is needed to be rid of it.
        held.is_stored = True
        held.shard.journal.write(
            [(group_key(held.group.id), value)],
            now_ms,
            _nothing,
            partial(self._stored, held, store),
        )

    def _stored(self, held: HeldGroup, store: Store, error: Error) -> None:
        if error:
            logger.warning("group %r could not be stored: %s", held.group.id, error.name)
        self._carry_out(held, held.group.stored(store, error, self._deadlines.now()))

    def _forget(self, held: HeldGroup) -> None:
        held.group.die(Error.COORDINATOR_NOT_AVAILABLE)
        groups = held.shard.groups
        if groups.get(held.group.id) is held:
            del groups[held.group.id]

    # Offsets

    def commit(
        self,
        group_id: str,
        member_id: str,
        instance_id: str | None,
        generation: int,
        committed: dict[TopicPartition, CommittedOffset],
    ) -> asyncio.Future[Error]:
        """Done when every in-sync replica has the offsets; GROUP_ID_NOT_FOUND is a member's."""
        answer: asyncio.Future[Error] = self._loop.create_future()
        shard = self._shard_of(group_id)
        if isinstance(shard, Error):
            answer.set_result(shard)
            return answer
        held = shard.groups.get(group_id)
        if held is None and generation >= 0:
            answer.set_result(Error.GROUP_ID_NOT_FOUND)
            return answer
        if held is None:
            held = shard.get_or_create(group_id)
        now = self._deadlines.now()
        error = held.group.check_commit(member_id, instance_id, generation, now)
        if error:
            answer.set_result(error)
            return answer
        records: list[KeyValue] = [
            (offset_key(group_id, *key), offset_value(value)) for key, value in committed.items()
        ]
        offsets = held.offsets

        def apply() -> None:
            for (topic, partition), value in committed.items():
                offsets.put(topic, partition, value)
            offsets.end(committed)

        offsets.begin(committed)
        shard.journal.write(records, self._broker.now_ms(), apply, _settler(answer))
        if answer.done() and answer.result():
            offsets.end(committed)
            if held.is_forgettable:
                self._forget(held)
        return answer

    def delete_offsets(
        self, held: HeldGroup, partitions: Sequence[TopicPartition]
    ) -> asyncio.Future[Error]:
        """Done when it is sure that nobody will see the offsets again."""
        answer: asyncio.Future[Error] = self._loop.create_future()
        self._remove_offsets(held, partitions, _settler(answer))
        return answer

    def _remove_offsets(
        self,
        held: HeldGroup,
        partitions: Sequence[TopicPartition],
        done: Callable[[Error], None],
    ) -> None:
        records: list[KeyValue] = [
            (offset_key(held.group.id, *key), None)
            for key in partitions
            if held.offsets.get(*key) is not None
        ]

        def apply() -> None:
            for key in partitions:
                held.offsets.remove(*key)

        held.shard.journal.write(records, self._broker.now_ms(), apply, done)

    def delete_group(self, group_id: str) -> asyncio.Future[Error]:
        """Deletes a group without members, and its offsets."""
        answer: asyncio.Future[Error] = self._loop.create_future()
        held = self.find(group_id)
        if isinstance(held, Error):
            answer.set_result(held)
        elif held.group.state is State.DEAD:
            answer.set_result(Error.GROUP_ID_NOT_FOUND)
        elif held.group.state is not State.EMPTY:
            answer.set_result(Error.NON_EMPTY_GROUP)
        else:
            self._delete(held, _settler(answer))
        return answer

    def _delete(self, held: HeldGroup, done: Callable[[Error], None]) -> None:
        group_id = held.group.id
        records: list[KeyValue] = [(offset_key(group_id, *key), None) for key, _ in held.offsets]
        records.append((group_key(group_id), None))
        # From here on it is gone for everyone; a write that fails brings it back at a restart.
        self._forget(held)
        held.shard.journal.write(records, self._broker.now_ms(), _nothing, done)

    async def _expire_offsets_now_and_then(self) -> None:
        settings = self._broker.settings
        while True:
            await asyncio.sleep(settings.offsets_retention_check_interval_ms / 1000)
            try:
                await self.expire_offsets()
            except Exception:
                logger.exception("expiring offsets failed; it is tried again later")

    async def expire_offsets(self) -> None:
        """Deletes offsets that have outlived their retention, and groups that have nothing left."""
        retention_ms = self._broker.settings.offsets_retention_minutes * _MINUTE_MS
        for count, held in enumerate(list(self._held()), 1):
            group = held.group
            if group.state is State.DEAD:
                continue
            expired = held.offsets.expired(
                group, held.emptied_at, self._broker.now_ms(), retention_ms
            )
            if expired:
                self._remove_offsets(held, expired, _ignore)
                logger.info("group %r: %d offsets expired", group.id, len(expired))
            if group.is_forgettable and not held.offsets:
                self._delete(held, _ignore)
            if count % _GROUPS_AT_A_TIME == 0:
                await asyncio.sleep(0)


def _settler(answer: asyncio.Future[Error]) -> Callable[[Error], None]:
    def settle(error: Error) -> None:
        if not answer.done():
            answer.set_result(error)

    return settle


def _random_id() -> str:
    return str(uuid.uuid4())


def _nothing() -> None:
    pass


def _ignore(error: Error) -> None:
    if error:
        logger.warning("a deletion in %s failed: %s", OFFSETS_TOPIC, error.name)
