"""Membership of share groups: brings heartbeats to groups."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from uuid import UUID

from moldau.broker.coordination.groups.group import Effect, Store
from moldau.broker.coordination.groups.held import HeldGroup, HeldGroups
from moldau.broker.coordination.groups.limits import GroupLimits
from moldau.broker.coordination.groups.share.group import ShareGroup
from moldau.broker.coordination.groups.share.messages import (
    JOINS,
    Heard,
    Heartbeat,
    Refused,
    ShareLimits,
)
from moldau.broker.coordination.groups.share.records import KnownTopic
from moldau.broker.coordination.host import Host
from moldau.broker.coordination.shards import Shards
from moldau.broker.settings.broker import BrokerSettings
from moldau.broker.settings.group_config import group_config
from moldau.cluster.state.state import ClusterState
from moldau.wire.errors import Error


class ClusterTopics:
    """`Topics` as this broker knows them."""

    __slots__ = ("_state",)

    def __init__(self, state: ClusterState) -> None:
        self._state = state

    @property
    def version(self) -> int:
        return self._state.version

    def get(self, name: str) -> tuple[UUID, int] | None:
        topic = self._state.topics.get(name)
        return None if topic is None else (topic.id, len(topic.partitions))


class ShareMembership:
    """The share groups of a broker. Event loop only.

    `carry_out` sees to what a group wants done; `now` is the clock of groups.
    """

    def __init__(
        self,
        host: Host,
        carry_out: Callable[[HeldGroup, list[Effect]], None],
        now: Callable[[], int],
    ) -> None:
        self._host = host
        self._carry_out = carry_out
        self._now = now
        self._topics = ClusterTopics(host.state)
        self._limits = GroupLimits(host, _limits)

    def new_group(self, group_id: str) -> ShareGroup:
        return ShareGroup(group_id, self._topics, lambda: self._limits.get(group_id))

    def heartbeat(
        self, shards: Shards[HeldGroups], group_id: str, request: Heartbeat
    ) -> asyncio.Future[Heard]:
        """Answered once what the member is told is on every in-sync replica."""
        answer: asyncio.Future[Heard] = self._host.loop.create_future()
        groups = shards.find(group_id)
        if isinstance(groups, Error):
            answer.set_result(Heard(groups))
            return answer
        held = groups.by_id.get(group_id)
        try:
            if held is None and request.epoch != JOINS:
                raise Refused(Error.GROUP_ID_NOT_FOUND, f"Share group {group_id} not found.")
            held = held or groups.get_or_create(group_id, ShareGroup.kind)
            if not isinstance(held.group, ShareGroup):
                raise Refused(Error.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a share group.")
            self._carry_out(held, held.group.heartbeat(request, answer, self._now()))
        except Refused as refused:
            answer.set_result(Heard(refused.error, refused.message))
            if held is not None and held.is_forgettable:
                held.forget()
        return answer

    def draft(self, groups: HeldGroups, group_id: str) -> HeldGroup:
        """Return a group that is there once something is written of it."""
        return groups.draft(group_id, ShareGroup.kind)

    async def store(self, held: HeldGroup, store: Store) -> Error:
        """Write a change of a group that no member waits for."""
        written: asyncio.Future[Error] = self._host.loop.create_future()
        now_ms = self._host.now_ms()
        records = store.records(held.group.id, now_ms)
        is_writing = True

        def done(error: Error) -> None:
            if error and is_writing:
                store.take_back()
            if not written.done():
                written.set_result(error)

        if records:
            held.keep()
        held.journal.write(records, now_ms, lambda: None, done)
        is_writing = False
        return await written

    async def bump(self, held: HeldGroup, group: ShareGroup) -> int | Error:
        """Raise the epoch of a group; return the new one."""
        epoch, store = group.bump()
        error = await self.store(held, store)
        return error or epoch

    async def know(
        self, held: HeldGroup, group: ShareGroup, known: dict[UUID, KnownTopic]
    ) -> Error:
        """Write down which topics a group has states of."""
        return await self.store(held, group.know(known))


def _limits(own: Mapping[str, str], settings: BrokerSettings) -> ShareLimits:
    config = group_config(own, settings)
    return ShareLimits(
        config.share_session_timeout_ms,
        config.share_heartbeat_interval_ms,
        settings.group_share_max_size,
    )
