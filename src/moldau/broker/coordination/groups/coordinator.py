"""The group coordinator of a broker: brings requests, time and the log to its groups.

A group belongs to the partition of `__consumer_offsets` that its id hashes to, and whoever leads
that partition coordinates it. What must survive is written there first and counts once it is below
the high watermark, so that the next leader knows it too.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, cast

from moldau.broker.coordination.deadlines import Deadlines
from moldau.broker.coordination.groups.classic.group import ClassicGroup
from moldau.broker.coordination.groups.classic.messages import (
    Departure,
    Join,
    Joined,
    Sync,
    Synced,
)
from moldau.broker.coordination.groups.group import (
    CLASSIC,
    CONSUMER,
    SHARE,
    Answer,
    Become,
    Commit,
    Effect,
    Group,
    Resolve,
    Store,
)
from moldau.broker.coordination.groups.held import HeldGroup, HeldGroups
from moldau.broker.coordination.groups.records import CommittedOffset
from moldau.broker.coordination.groups.report import Rebalanced
from moldau.broker.coordination.groups.retention import complain, expire_offsets
from moldau.broker.coordination.host import Host
from moldau.broker.coordination.journal import Done, Journal, Transactional, nothing, settler
from moldau.broker.coordination.placement import Size
from moldau.broker.coordination.shards import Shards
from moldau.broker.partitions.partition import Partition
from moldau.cluster.state.internal_topics import CONSUMER_OFFSETS
from moldau.log.markers import TransactionEnd
from moldau.topic_partition import TopicPartition
from moldau.wire.errors import Error

if TYPE_CHECKING:
    from moldau.broker.coordination.groups.consumer.classic_members import ClassicMembers
    from moldau.broker.coordination.groups.consumer.group import ConsumerGroup
    from moldau.broker.coordination.groups.consumer.membership import ConsumerMembership
    from moldau.broker.coordination.groups.share.membership import ShareMembership

logger = logging.getLogger("moldau.groups")

_MINUTE_MS = 60_000


class GroupCoordinator:
    """The groups that this broker coordinates. Event loop only.

    What may have to wait is answered with a future, which is often done already. Code for other
    kinds of groups than the classic one is imported when there is one.
    """

    def __init__(self, host: Host) -> None:
        self._host = host
        self._loop = host.loop
        self._deadlines: Deadlines[HeldGroup] = Deadlines(host.loop, self._expire)
        self._kinds: dict[str, Callable[[str], Group]] = {
            CLASSIC: self._new_classic,
            CONSUMER: lambda group_id: self.consumers.new_group(group_id),
            SHARE: lambda group_id: self.sharing.new_group(group_id),
        }
        self.shards = Shards(
            CONSUMER_OFFSETS,
            host,
            size=self._topic_size,
            write_timeout_ms=lambda: host.settings.offsets_commit_timeout_ms,
            new_state=self._new_groups,
        )

    @cached_property
    def consumers(self) -> ConsumerMembership:
        from moldau.broker.coordination.groups.consumer.membership import ConsumerMembership

        now = self._deadlines.now
        return ConsumerMembership(self._host, self._new_classic, self._carry_out, now)

    @cached_property
    def sharing(self) -> ShareMembership:
        from moldau.broker.coordination.groups.share.membership import ShareMembership

        return ShareMembership(self._host, self._carry_out, self._deadlines.now)

    def _topic_size(self) -> Size:
        settings = self._host.settings
        return Size(
            settings.offsets_topic_num_partitions,
            settings.offsets_topic_replication_factor,
            settings.offsets_topic_segment_bytes,
        )

    def _new_groups(self, journal: Journal) -> HeldGroups:
        return HeldGroups(
            journal, self._kinds, self._carry_out, self._deadlines.now, self._host.now_ms()
        )

    def _new_classic(self, group_id: str) -> ClassicGroup:
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
            gone = [(name, index) for index in held.offsets.by_topic.get(name, ())]
            gone += [key for key in held.offsets.staged if key[0] == name and key not in gone]
            if gone:
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

    # Membership

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
            self._join(groups.get_or_create(group_id), request, answer)
        return answer

    def _join(self, held: HeldGroup, request: Join, answer: asyncio.Future[Joined]) -> None:
        group = _consumer_group(held)
        if group is not None and group.members:
            self.consumers.join_classic(held, group, request, answer)
            return
        error = Error.NONE
        if group is not None:
            error = self._become_classic(held)
        elif not isinstance(held.group, ClassicGroup):
            error = Error.INCONSISTENT_GROUP_PROTOCOL
        if error or not isinstance(held.group, ClassicGroup):
            answer.set_result(Joined(error, request.member_id))
        else:
            self._carry_out(held, held.group.join(request, answer, self._deadlines.now()))

    def _become_classic(self, held: HeldGroup) -> Error:
        """Put a classic group in the place of a consumer group without members."""
        outcome: list[Error] = []
        tombstones, now_ms = held.group.tombstones(), self._host.now_ms()
        held.journal.write(tombstones, now_ms, nothing, outcome.append)
        error = outcome[0] if outcome else Error.NONE
        if not error:
            held.group = self._new_classic(held.group.id)
        return error

    def sync(self, group_id: str, request: Sync) -> asyncio.Future[Synced]:
        answer: asyncio.Future[Synced] = self._loop.create_future()
        found = self._joined(group_id)
        if isinstance(found, Error):
            answer.set_result(Synced(found))
        else:
            held, members = found
            self._carry_out(held, members.sync(request, answer, self._deadlines.now()))
        return answer

    def heartbeat(
        self, group_id: str, member_id: str, instance_id: str | None, generation: int
    ) -> Error:
        found = self._joined(group_id)
        if isinstance(found, Error):
            # While a group is being loaded no member is declared dead, so members may continue.
            return Error.NONE if found is Error.COORDINATOR_LOAD_IN_PROGRESS else found
        return found[1].heartbeat(member_id, instance_id, generation, self._deadlines.now())

    def leave(self, group_id: str, departures: Sequence[Departure]) -> list[Error] | Error:
        found = self._joined(group_id)
        if found is Error.UNKNOWN_MEMBER_ID:
            return [found] * len(departures)
        if isinstance(found, Error):
            return found
        held, members = found
        errors, effects = members.leave(departures, self._deadlines.now())
        self._carry_out(held, effects)
        return errors

    def _joined(self, group_id: str) -> tuple[HeldGroup, ClassicGroup | ClassicMembers] | Error:
        """Return the group that a member of the classic protocol says to be in; UNKNOWN_MEMBER_ID
        if there is none that such can be in."""
        if not group_id:
            return Error.INVALID_GROUP_ID
        held = self.find(group_id)
        if held is Error.GROUP_ID_NOT_FOUND:
            return Error.UNKNOWN_MEMBER_ID
        if isinstance(held, Error):
            return held
        if (group := _consumer_group(held)) is not None:
            return held, self.consumers.classic(group)
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
            elif isinstance(effect, Become):
                held.group = effect.group
            elif isinstance(effect, Resolve):
                self.consumers.resolve(held, effect)
            else:
                if isinstance(effect, Rebalanced):
                    held.history.add(self._host.now_ms(), held.group.kind, effect)
                log = logger.warning if effect.needs_action else logger.info
                log("%s", effect)
        if held.is_forgettable:
            held.forget()
        self._deadlines.arm(held, held.group.due_at)

    def _store(self, held: HeldGroup, store: Store) -> None:
        now_ms = self._host.now_ms()
        held.emptied_at = now_ms if store.leaves_empty else None
        is_writing = True

        def done(error: Error) -> None:
            if error and is_writing:
                # Refused at once: what fails later may still come to pass.
                store.take_back()
                if store.replaced is not None:
                    held.group = store.replaced
            self._stored(held, store, error)

        records = store.records(held.group.id, now_ms)
        if records:
            # Whatever comes of the write, a tombstone is needed to be rid of it.
            held.is_stored = True
            held.journal.write(records, now_ms, nothing, done)
        else:
            held.journal.settle(done)
        is_writing = False

    def _stored(self, held: HeldGroup, store: Store, error: Error) -> None:
        if error:
            logger.warning("group %r could not be stored: %s", held.group.id, error.name)
        self._carry_out(held, store.settled(held.group, error, self._deadlines.now()))

    # Offsets, and deleting

    def commit(
        self, group_id: str, commit: Commit, committed: dict[TopicPartition, CommittedOffset]
    ) -> Error | asyncio.Future[Error]:
        """Known when every in-sync replica has the offsets; GROUP_ID_NOT_FOUND is a member's."""
        found = self._committing(group_id, commit)
        if isinstance(found, Error):
            return found
        return found[1].commit(committed, self._host.now_ms())

    def stage(
        self,
        group_id: str,
        commit: Commit,
        transaction: Transactional,
        committed: dict[TopicPartition, CommittedOffset],
    ) -> asyncio.Future[Error]:
        """Write offsets that a transaction commits; done when every in-sync replica has them."""
        answer: asyncio.Future[Error] = self._loop.create_future()
        found = self._committing(group_id, commit)
        if isinstance(found, Error):
            answer.set_result(found)
        else:
            groups, held = found
            groups.stage(held, transaction, committed, self._host.now_ms(), answer)
        return answer

    def _committing(self, group_id: str, commit: Commit) -> tuple[HeldGroups, HeldGroup] | Error:
        """Return the group that offsets are committed to, or why they cannot be."""
        groups = self.shards.find(group_id)
        if isinstance(groups, Error):
            return groups
        if commit.generation >= 0 and group_id not in groups.by_id:
            is_staged = commit.is_transactional
            return Error.ILLEGAL_GENERATION if is_staged else Error.GROUP_ID_NOT_FOUND
        held = groups.get_or_create(group_id)
        error = held.group.check_commit(commit, self._deadlines.now())
        return error or (groups, held)

    def write_marker(self, partition: Partition, end: TransactionEnd, done: Done) -> None:
        """Append the end of a transaction to a partition of `__consumer_offsets`."""
        groups = self.shards.at(partition.index)
        if isinstance(groups, Error):
            done(groups)
        else:
            groups.write_marker(end, self._host.now_ms(), done)

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


def _consumer_group(held: HeldGroup) -> ConsumerGroup | None:
    return cast("ConsumerGroup", held.group) if held.group.kind == CONSUMER else None


def _random_id() -> str:
    return str(uuid.uuid4())
