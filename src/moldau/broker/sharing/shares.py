"""Shares: the partitions that this broker leads and share groups read, and those who read them."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable, Iterator
from typing import Any

from moldau.broker.coordination.deadlines import Deadlines
from moldau.broker.coordination.host import Host
from moldau.broker.coordination.share.coordinator import ShareCoordinator
from moldau.broker.coordination.share.state import ShareKey
from moldau.broker.partitions.partition import Partition
from moldau.broker.partitions.partitions import Partitions
from moldau.broker.settings.broker import BrokerSettings
from moldau.broker.settings.group_config import GroupConfig, group_config
from moldau.broker.sharing.dead_letters import DeadLetters
from moldau.broker.sharing.delivery import Change
from moldau.broker.sharing.group_offsets import GroupOffsets
from moldau.broker.sharing.persister import Persister
from moldau.broker.sharing.sessions import ShareSession, ShareSessions
from moldau.broker.sharing.shared_partition import SharedPartition
from moldau.peer.peers import Peers
from moldau.wire.errors import Error
from moldau.wire.primitives import TopicIdPartition


class Shares:
    """All shared partitions of a broker, by their keys. Event loop only.

    `states` are those of share groups that this broker coordinates, which may be others.
    """

    def __init__(
        self,
        host: Host,
        me: int,
        partitions: Partitions,
        peers: Peers,
    ) -> None:
        self._host = host
        self.loop: asyncio.AbstractEventLoop = host.loop
        self.states = ShareCoordinator(host)
        self.persister = Persister(host, me, peers, self.states)
        self.group_offsets = GroupOffsets(host, partitions, peers, self.persister)
        self.dead_letters = DeadLetters(host, me, partitions, peers)
        self.sessions = ShareSessions(
            lambda: host.settings.group_share_max_share_sessions, self._left
        )
        self._by_key: dict[ShareKey, SharedPartition] = {}
        self._deadlines: Deadlines[SharedPartition] = Deadlines(
            host.loop, lambda shared: shared.expire()
        )
        # The settings of groups, with what they were made of.
        self._configs: dict[str, tuple[object, BrokerSettings, GroupConfig]] = {}

    def __iter__(self) -> Iterator[SharedPartition]:
        return iter(list(self._by_key.values()))

    def get(self, group: str, partition: Partition) -> SharedPartition:
        """Return a partition that this broker leads, as a group reads it."""
        key = ShareKey(group, partition.topic_id, partition.index)
        shared = self._by_key.get(key)
        if shared is not None and not shared.leads:
            shared.end(Error.NOT_LEADER_OR_FOLLOWER)
            shared = None
        if shared is None:
            shared = self._by_key[key] = SharedPartition(self, key, partition)
        return shared

    def find(self, key: ShareKey) -> SharedPartition | None:
        """Return a shared partition if there is one."""
        return self._by_key.get(key)

    def drop(self, session: ShareSession, partitions: Iterable[TopicIdPartition]) -> None:
        """Take partitions out of a session; what the member has of them stays its own until it
        says what became of it, or the lock ends."""
        for place in partitions:
            if session.partitions.pop(place, 0) is None:
                shared = self._by_key.get(ShareKey(session.group, *place))
                if shared is not None:
                    shared.readers.discard(session.member)

    def stop(self) -> None:
        """Send everyone away: the broker is about to stop."""
        for shared in self:
            shared.end(Error.NOT_LEADER_OR_FOLLOWER)
        self._deadlines.stop()
        self.states.stop()

    def _left(self, session: ShareSession) -> None:
        """Release what a member has whose session has ended."""
        for key in session.share_keys():
            shared = self._by_key.get(key)
            if shared is not None:
                shared.leave(session.member)
                if shared.is_idle:
                    self.forget(shared)

    # What partitions tell

    def partition_changed(self, partition: Partition) -> None:
        """End what is shared of a partition that this broker does not lead, or in another epoch."""
        for shared in self._of(partition):
            if not shared.leads:
                shared.end(Error.NOT_LEADER_OR_FOLLOWER)

    def partition_dropped(self, partition: Partition) -> None:
        for shared in self._of(partition):
            shared.end(Error.NOT_LEADER_OR_FOLLOWER)

    def partition_configured(self, partition: Partition) -> None:
        pass

    def brokers_changed(self) -> None:
        pass

    def _of(self, partition: Partition) -> list[SharedPartition]:
        if not self._by_key:
            return []
        place = (partition.topic_id, partition.index)
        return [shared for key, shared in self._by_key.items() if key[1:] == place]

    # What shared partitions ask for

    def now(self) -> int:
        return self._deadlines.now()

    def now_ms(self) -> int:
        return self._host.now_ms()

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        self._host.spawn(work)

    def arm(self, shared: SharedPartition, at: int) -> None:
        self._deadlines.arm(shared, at)

    def forget(self, shared: SharedPartition) -> None:
        if self._by_key.get(shared.key) is shared:
            del self._by_key[shared.key]

    def config(self, group: str) -> GroupConfig:
        """Return the settings of a group; they are made once, until something changes."""
        settings, own = self._host.settings, self._host.state.access.group_configs.get(group)
        known = self._configs.get(group)
        if known is None or known[0] is not own or known[1] is not settings:
            if len(self._configs) > 10_000:
                self._configs.clear()
            known = self._configs[group] = (own, settings, group_config(own or {}, settings))
        return known[2]

    def report(self, group: str) -> list[dict[str, Any]]:
        """Tell what a group has in flight of the partitions that this broker leads."""
        return [shared.report() for shared in self if shared.key.group == group and shared.machine]

    async def bury(self, shared: SharedPartition, change: Change) -> bool:
        name = self.config(shared.key.group).errors_deadletterqueue_topic_name
        return await self.dead_letters.bury(shared.partition, shared.key.group, name, change.dead)
