"""The group coordinator of a broker: brings requests, time and the log to its groups.

A group belongs to the partition of `__consumer_offsets` that its id hashes to, and whoever leads
that partition coordinates it. What must survive is written there first and counts once it is below
the high watermark, so that the next leader knows it too.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Iterator, Sequence
from functools import partial

from moldau.broker.coordination.deadlines import Deadlines
from moldau.broker.coordination.groups.classic.group import ClassicGroup
from moldau.broker.coordination.groups.classic.messages import (
    Departure,
    Join,
    Joined,
    Sync,
    Synced,
)
from moldau.broker.coordination.groups.group import Answer, Effect, Store
from moldau.broker.coordination.groups.held import HeldGroup, HeldGroups
from moldau.broker.coordination.groups.records import CommittedOffset
from moldau.broker.coordination.groups.retention import complain, expire_offsets
from moldau.broker.coordination.host import Host
from moldau.broker.coordination.journal import Journal, nothing, settler
from moldau.broker.coordination.placement import Size
from moldau.broker.coordination.shards import Shards
from moldau.broker.partitions.partition import Partition
from moldau.cluster.state.internal_topics import CONSUMER_OFFSETS
from moldau.topic_partition import TopicPartition
from moldau.wire.errors import Error

logger = logging.getLogger("moldau.groups")

_MINUTE_MS = 60_000


class GroupCoordinator:
    """The groups that this broker coordinates. Event loop only.

    What may have to wait is answered with a future, which is often done already.
    """

    def __init__(self, host: Host) -> None:
        self._host = host
        self._loop = host.loop
        self._deadlines: Deadlines[HeldGroup] = Deadlines(host.loop, self._expire)
        self.shards = Shards(
            CONSUMER_OFFSETS,
            host,
            size=self._topic_size,
            write_timeout_ms=lambda: host.settings.offsets_commit_timeout_ms,
            new_state=self._new_groups,
        )

    def _topic_size(self) -> Size:
        settings = self._host.settings
        return Size(
            settings.offsets_topic_num_partitions,
            settings.offsets_topic_replication_factor,
            settings.offsets_topic_segment_bytes,
        )

    def _new_groups(self, journal: Journal) -> HeldGroups:
        return HeldGroups(journal, self._new_group, self._carry_out, self._deadlines.now)

    def _new_group(self, group_id: str) -> ClassicGroup:
        settings = self._host.settings
        return ClassicGroup(
            group_id,
            new_id=_random_id,
            initial_delay_ms=settings.group_initial_rebalance_delay_ms,
            max_size=settings.group_max_size,
        )

    def start(self) -> None:
        self._host.spawn(self._expire_offsets_now_and_then())

    def stop(self) -> None:
        """Send everyone who waits away; the broker is about to stop."""
        self._deadlines.stop()
        self.shards.close()

    def partition_changed(self, partition: Partition) -> None:
        """Follow the role that a partition of `__consumer_offsets` has been given."""
        self.shards.partition_changed(partition)

    def topic_deleted(self, name: str) -> None:
        """Forget what groups have read of a topic that is gone: it is of no use to anyone."""
        self.shards.topic_deleted(name)
        for held in self._held():
            partitions = held.offsets.by_topic.get(name)
            if partitions:
                gone = [(name, index) for index in partitions]
                held.remove_offsets(gone, self._host.now_ms(), complain)

    # Which groups are here

    def find(self, group_id: str) -> HeldGroup | Error:
        """Return the group, or GROUP_ID_NOT_FOUND, or why this broker cannot say."""
        groups = self.shards.find(group_id)
        if isinstance(groups, Error):
            return groups
        return groups.by_id.get(group_id, Error.GROUP_ID_NOT_FOUND)

    def list_groups(self) -> list[HeldGroup] | Error:
        """Return all groups here; the error while some are still being read back."""
        if self.shards.is_loading:
            return Error.COORDINATOR_LOAD_IN_PROGRESS
        return list(self._held())

    def _held(self) -> Iterator[HeldGroup]:
        for groups in self.shards:
            yield from list(groups.by_id.values())

    # Membership of classic groups

    def join(self, group_id: str, request: Join) -> asyncio.Future[Joined]:
        answer: asyncio.Future[Joined] = self._loop.create_future()
        settings = self._host.settings
        groups = self.shards.find(group_id)
        if not group_id:
            answer.set_result(Joined(Error.INVALID_GROUP_ID, request.member_id))
        elif not (
            settings.group_min_session_timeout_ms
            <= request.session_timeout_ms
            <= settings.group_max_session_timeout_ms
        ):
            answer.set_result(Joined(Error.INVALID_SESSION_TIMEOUT, request.member_id))
        elif isinstance(groups, Error):
            answer.set_result(Joined(groups, request.member_id))
        elif request.member_id and group_id not in groups.by_id:
            answer.set_result(Joined(Error.UNKNOWN_MEMBER_ID, request.member_id))
        else:
            held = groups.get_or_create(group_id)
            if isinstance(held.group, ClassicGroup):
                self._carry_out(held, held.group.join(request, answer, self._deadlines.now()))
            else:
                answer.set_result(Joined(Error.INCONSISTENT_GROUP_PROTOCOL, request.member_id))
        return answer

    def sync(self, group_id: str, request: Sync) -> asyncio.Future[Synced]:
        answer: asyncio.Future[Synced] = self._loop.create_future()
        found = self._classic(group_id)
        if isinstance(found, Error):
            answer.set_result(Synced(found))
        else:
            held, group = found
            self._carry_out(held, group.sync(request, answer, self._deadlines.now()))
        return answer

    def heartbeat(
        self, group_id: str, member_id: str, instance_id: str | None, generation: int
    ) -> Error:
        found = self._classic(group_id)
        if isinstance(found, Error):
            # While a group is being loaded no member is declared dead, so members may continue.
            return Error.NONE if found is Error.COORDINATOR_LOAD_IN_PROGRESS else found
        return found[1].heartbeat(member_id, instance_id, generation, self._deadlines.now())

    def leave(self, group_id: str, departures: Sequence[Departure]) -> list[Error] | Error:
        found = self._classic(group_id)
        if found is Error.UNKNOWN_MEMBER_ID:
            return [found] * len(departures)
        if isinstance(found, Error):
            return found
        held, group = found
        errors, effects = group.leave(departures, self._deadlines.now())
        self._carry_out(held, effects)
        return errors

    def _classic(self, group_id: str) -> tuple[HeldGroup, ClassicGroup] | Error:
        """Return the group that a member says to be in; UNKNOWN_MEMBER_ID if there is no classic
        one."""
        if not group_id:
            return Error.INVALID_GROUP_ID
        held = self.find(group_id)
        if held is Error.GROUP_ID_NOT_FOUND:
            return Error.UNKNOWN_MEMBER_ID
        if isinstance(held, Error):
            return held
        if not isinstance(held.group, ClassicGroup):
            return Error.UNKNOWN_MEMBER_ID
        return held, held.group

    # What groups want done

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
            held.forget()
        self._deadlines.arm(held, held.group.due_at)

    def _store(self, held: HeldGroup, store: Store) -> None:
        now_ms = self._host.now_ms()
        held.emptied_at = now_ms if store.leaves_empty else None
        # Whatever came of the write, a tombstone is needed to be rid of it.
        held.is_stored = True
        records = store.records(held.group.id, now_ms)
        held.journal.write(records, now_ms, nothing, partial(self._stored, held, store))

    def _stored(self, held: HeldGroup, store: Store, error: Error) -> None:
        if error:
            logger.warning("group %r could not be stored: %s", held.group.id, error.name)
        self._carry_out(held, held.group.stored(store, error, self._deadlines.now()))

    # Offsets, and deleting

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
        groups = self.shards.find(group_id)
        if isinstance(groups, Error):
            answer.set_result(groups)
            return answer
        if generation >= 0 and group_id not in groups.by_id:
            answer.set_result(Error.GROUP_ID_NOT_FOUND)
            return answer
        held = groups.get_or_create(group_id)
        now = self._deadlines.now()
        error = held.group.check_commit(member_id, instance_id, generation, now)
        if error:
            answer.set_result(error)
        else:
            held.commit(committed, self._host.now_ms(), answer)
        return answer

    def delete_offsets(
        self, held: HeldGroup, partitions: Sequence[TopicPartition]
    ) -> asyncio.Future[Error]:
        """Done when it is sure that nobody will see the offsets again."""
        answer: asyncio.Future[Error] = self._loop.create_future()
        held.remove_offsets(partitions, self._host.now_ms(), settler(answer))
        return answer

    def delete_group(self, group_id: str) -> asyncio.Future[Error]:
        """Delete a group without members, and its offsets."""
        answer: asyncio.Future[Error] = self._loop.create_future()
        held = self.find(group_id)
        error = held if isinstance(held, Error) else held.group.check_delete()
        if isinstance(held, Error) or error:
            answer.set_result(error)
        else:
            held.delete(self._host.now_ms(), settler(answer))
        return answer

    async def _expire_offsets_now_and_then(self) -> None:
        while True:
            await asyncio.sleep(self._host.settings.offsets_retention_check_interval_ms / 1000)
            try:
                await self.expire_offsets()
            except Exception:
                logger.exception("expiring offsets failed; trying again later")

    async def expire_offsets(self) -> None:
        """Delete offsets that have outlived their retention, and groups that have nothing left."""
        retention_ms = self._host.settings.offsets_retention_minutes * _MINUTE_MS
        await expire_offsets(list(self._held()), retention_ms, self._host.now_ms)


def _random_id() -> str:
    return str(uuid.uuid4())
