"""The tree of nodes in ZooKeeper, as far as this broker knows it, and how it keeps up with it."""

from __future__ import annotations

import bisect
import logging
from collections.abc import Collection, Iterable, Sequence
from uuid import UUID

from moldau.cluster.state.access import AccessDamaged
from moldau.cluster.state.changes import AnyChange, ClusterCreated, TopicDeleted
from moldau.cluster.state.state import ClusterState, ImpossibleChange
from moldau.cluster.state.topics import BrokerInfo
from moldau.cluster.store import Listener, StoreError
from moldau.cluster.zookeeper.differences import (
    access_differences,
    broker_differences,
    config_differences,
    topic_differences,
)
from moldau.cluster.zookeeper.reading import (
    ReadTopics,
    read_access,
    read_brokers,
    read_configs,
    read_deleted,
    read_folders,
    read_topics,
)
from moldau.cluster.zookeeper.sessions.operations import Create, NoNode, Unanswered, Unreachable
from moldau.cluster.zookeeper.sessions.session import Session
from moldau.cluster.zookeeper.sessions.watcher import Watch
from moldau.cluster.zookeeper.znodes import (
    DamagedNode,
    Notice,
    Paths,
    decode_notice,
    encode_notice,
)

logger = logging.getLogger("moldau.cluster.zookeeper")

_ATTEMPTS = 5


class Tree:
    """The state, with the versions of the nodes that it was read from. Event loop only.

    Level-triggered: a notice in /changes names what is to be read again, and what is published is
    the difference between what is there and what was known. Whoever missed notices reads all.

    All methods that read or write expect that nobody else does at the same time (the store's lock),
    for what one has read would be old when another has written.

    A node that cannot be understood, or that went without having been deleted, is complained about
    and left alone: what was known of it stays, and `damaged` says why nobody may write it.
    """

    def __init__(self, session: Session, paths: Paths, broker_id: int, on_notice: Watch) -> None:
        self.state = ClusterState()
        self.versions: dict[str, int] = {}
        self.config_versions: dict[int | None, int] = {}
        self.access_versions: dict[str, int] = {}
        self.folder_ids: dict[int, str] = {}
        # The version of /folders/<id>, not newer than the known registration of the broker.
        self.folder_versions: dict[int, int] = {}
        # The same, for brokers that are registered and have not started another life since.
        self.registrations: dict[int, int] = {}
        self.damaged: dict[str, str] = {}
        self.listeners: list[Listener] = []
        # Notices of transactions whose outcome is known here already.
        self.own_notices: set[str] = set()
        self.notices: list[str] = []
        self._last_notice = ""
        # The session in which everything was read last; 0 before the first time.
        self._loaded_in = 0
        self._session = session
        self._paths = paths
        self._broker_id = broker_id
        self._on_notice = on_notice
        self._recalled: set[UUID] = set()

    def publish(self, changes: Sequence[AnyChange]) -> None:
        """Make the changes part of the state and tell the listeners."""
        applied: list[AnyChange] = []
        for change in changes:
            try:
                self.state.apply(change)
            except ImpossibleChange as error:
                logger.error("the data in ZooKeeper contradicts itself: %s", error)
            else:
                applied.append(change)
        if not applied:
            return
        for listener in self.listeners:
            try:
                listener(applied)
            except Exception:
                # The change stands, whatever a listener does.
                kinds = ", ".join(sorted({type(change).__name__ for change in applied}))
                logger.exception("a listener failed on %s", kinds)

    @property
    def is_loaded(self) -> bool:
        """Whether it was ever read."""
        return bool(self._loaded_in)

    async def be_current(self) -> None:
        """Read everything anew if that has not been done in this session."""
        for _ in range(_ATTEMPTS):
            session_id = self._session.id
            # One that ended leaves 0 behind, which is also what nothing was ever read in.
            if session_id and self._loaded_in == session_id:
                return
            try:
                await self._session.sync()
                await self.load()
            except Unanswered as error:
                logger.info("%s; reading again", error)
            else:
                self._loaded_in = session_id
                return
        raise Unreachable(f"the connection to ZooKeeper at {self._session.hosts} keeps breaking")

    async def load(self) -> None:
        """Read everything, and publish how it differs from what was known."""
        session, paths = self._session, self._paths
        await self._check_cluster_id()
        # Listed first: what changes while the rest is read shows in a later notice.
        notices = await self._list_notices()
        if not notices:
            await self._append_notice()
            notices = await self._list_notices()
        names = await session.children(paths.topics)
        topics = await read_topics(session, paths, {*names, *self.state.topics})
        deleted = await read_deleted(session, paths)
        # Versions and state go together: nothing may come between taking the one and the other.
        self.publish(self._topic_changes(topics, deleted))
        await self.refresh_configs()
        await self.refresh_access(None)
        await self._refresh_brokers(notices)
        # Deletions that happened before our time, for folders that may still lie here.
        recalled = deleted - self._recalled - self.state.deleted - self.state.topics_by_id.keys()
        self._recalled = deleted
        self.publish([TopicDeleted("", id) for id in recalled])
        self._take_notices(notices)

    async def catch_up(self) -> None:
        """Read what the notices since the last time name, and watch for the next."""
        notices = await self._list_notices()
        later = self._later(notices)
        if later is None:
            logger.info("missed changes in ZooKeeper that have been trimmed; reading everything")
            await self.load()
            return
        fresh = [name for name in later if name not in self.own_notices]
        read = await self.read_notices(fresh)
        if read is None:
            await self.load()
            return
        access = {key for notice in read for key in notice.access}
        if access:
            await self.refresh_access(access)
        topics = {name for notice in read for name in notice.topics}
        if topics:
            await self.refresh_topics(topics)
        if any(notice.configs for notice in read):
            await self.refresh_configs()
        if any(notice.brokers for notice in read):
            await self._refresh_brokers(notices)
        self._take_notices(notices)

    async def refresh_configs(self) -> None:
        """Read the brokers' settings anew, and publish how they differ from what was known."""
        self.publish(await self._config_changes())

    async def refresh_access(self, keys: Collection[str] | None) -> None:
        """Read entries of who may do what anew, these or all, and publish how they differ."""
        read = await read_access(self._session, self._paths, keys)
        known = self.state.access.entries
        asked = {*known, *self.access_versions, *read} if keys is None else set(keys)
        for key in asked - read.keys():
            self.access_versions.pop(key, None)
        self.access_versions |= {key: version for key, (_, version) in read.items()}
        old = {key: known[key] for key in asked if key in known}
        changes = access_differences(old, {key: entry for key, (entry, _) in read.items()})
        for change in changes:
            if isinstance(change, AccessDamaged):
                logger.error(
                    "%s. Until the node is repaired, only super users may use the resource, the "
                    "user cannot log in, or the quotas are the lowest possible",
                    change.problem,
                )
        self.publish(changes)

    async def find(self, commit: str) -> bool | None:
        """Return whether the transaction with this mark happened since the last catch-up; None if
        that cannot be told any more."""
        later = self._later(await self._session.children(self._paths.changes))
        read = None if later is None else await self.read_notices(later)
        return None if read is None else any(notice.commit == commit for notice in read)

    async def read_notices(self, names: Sequence[str]) -> list[Notice] | None:
        """Return the notices, or None if one of them is gone or makes no sense."""
        paths = [self._paths.change(name) for name in names]
        notices = []
        for path, found in zip(paths, await self._session.get_many(paths), strict=True):
            if found is None:
                return None
            try:
                notices.append(decode_notice(path, found[0]))
            except DamagedNode as error:
                logger.error("%s; reading everything instead", error)
                return None
        return notices

    async def refresh_topics(self, names: Iterable[str]) -> None:
        """Read topics anew, and publish how they differ from what was known."""
        topics = await read_topics(self._session, self._paths, names)
        gone = [self.state.topics[name].id for name in topics.gone if name in self.state.topics]
        marks = await self._session.get_many(self._paths.deleted_topic(id) for id in gone)
        deleted = {id for id, mark in zip(gone, marks, strict=True) if mark is not None}
        replaced = {
            self.state.topics[name].id
            for name, (topic, _) in topics.found.items()
            if name in self.state.topics and self.state.topics[name].id != topic.id
        }
        self.publish(self._topic_changes(topics, deleted | replaced))

    async def _refresh_brokers(self, notices: Sequence[str]) -> None:
        brokers = await self.read_brokers()
        await self.refresh_topics_since(notices)
        self.publish(broker_differences(self.state.brokers, brokers))

    async def refresh_topics_since(self, notices: Sequence[str]) -> None:
        """Read the topics anew that changed after these notices were listed.

        To be done before a registration is published that was read meanwhile: a broker gives up
        what its last life had before it registers, and nobody may count on it under its new
        registration who does not know of that.
        """
        last = notices[-1] if notices else ""
        later = sorted(
            name
            for name in await self._session.children(self._paths.changes)
            if name > last and name not in self.own_notices
        )
        if not later:
            return
        read = await self.read_notices(later)
        names = self.state.topics if read is None else {n for each in read for n in each.topics}
        if names:
            await self.refresh_topics(list(names))

    async def read_brokers(self, watch: Watch | None = None) -> dict[int, BrokerInfo]:
        """Return who is registered now."""
        # First, so that a later life of a broker is never taken for the one that is registered.
        folders = await read_folders(self._session, self._paths)
        brokers = await read_brokers(self._session, self._paths, watch)
        self.folder_ids = {id: folder_id for id, (folder_id, _) in folders.items()}
        self.folder_ids |= {id: info.folder_id for id, (info, _) in brokers.items()}
        self.folder_versions = {id: stat.version for id, (_, stat) in folders.items()}
        # A registration writes both nodes at once, and a new life the folder's alone at first.
        self.registrations = {
            id: stat.version
            for id, (_, stat) in folders.items()
            if id in brokers and brokers[id][1].mzxid == stat.mzxid
        }
        return {id: info for id, (info, _) in brokers.items()}

    # -- reading

    async def _check_cluster_id(self) -> None:
        """The ensemble may have lost its memory or be another one: its topics are not ours then."""
        try:
            data, _ = await self._session.get(self._paths.id)
        except NoNode:
            data = b""
        cluster_id = data.decode("ascii", "replace")
        if not cluster_id:
            raise StoreError(
                f"{self._paths.id} is missing in ZooKeeper at {self._session.hosts}: it has "
                "lost its data or is another ensemble. This broker ignores it; restore it"
            )
        known = self.state.cluster_id
        if known and cluster_id != known:
            raise StoreError(
                f"ZooKeeper at {self._session.hosts} now holds the cluster {cluster_id}, but "
                f"this broker belongs to {known}. This broker ignores it"
            )
        if not known:
            self.publish([ClusterCreated(cluster_id)])

    async def _list_notices(self) -> list[str]:
        return sorted(await self._session.children(self._paths.changes, self._on_notice))

    def _later(self, notices: Sequence[str]) -> list[str] | None:
        """Return those after the last one that was read; None if some in between may be gone, as
        they are trimmed from the oldest on."""
        ordered = sorted(notices)
        place = bisect.bisect_left(ordered, self._last_notice)
        if place == len(ordered) or ordered[place] != self._last_notice:
            return None
        return ordered[place + 1 :]

    def _take_notices(self, notices: list[str]) -> None:
        self.notices = notices
        self._last_notice = notices[-1] if notices else ""
        # Later ones may be there already: of transactions that ended after the notices were listed.
        self.own_notices = {name for name in self.own_notices if name > self._last_notice}

    async def _append_notice(self) -> None:
        notice = encode_notice(Notice(commit="first", broker=self._broker_id))
        await self._session.multi([Create(self._paths.new_change, notice, sequence=True)])

    def _topic_changes(self, read: ReadTopics, deleted: set[UUID]) -> list[AnyChange]:
        changes: list[AnyChange] = []
        for name, problem in read.damaged.items():
            self._damage(name, problem)
        for name in read.gone:
            topic = self.state.topics.get(name)
            if topic is not None and topic.id not in deleted:
                path = self._paths.topic(name)
                self._damage(name, f"{path} is missing in ZooKeeper, but nobody deleted the topic")
                continue
            self.versions.pop(name, None)
            self.damaged.pop(name, None)
            if topic is not None:
                changes.append(TopicDeleted(name, topic.id))
        for name, (topic, version) in read.found.items():
            try:
                changes += topic_differences(self.state.topics.get(name), topic)
            except ImpossibleChange as error:
                self._damage(name, str(error))
                continue
            self.versions[name] = version
            if self.damaged.pop(name, None) is not None:
                logger.info("%s in ZooKeeper is valid again", self._paths.topic(name))
        return changes

    def _damage(self, name: str, problem: str) -> None:
        if self.damaged.get(name) != problem:
            logger.error(
                "%s. Topic '%s' stays as this broker knows it, and cannot be changed until "
                "the node is repaired",
                problem,
                name,
            )
        self.damaged[name] = problem

    async def _config_changes(self) -> list[AnyChange]:
        read = await read_configs(self._session, self._paths)
        self.config_versions = {broker: version for broker, (_, version) in read.items()}
        known = self.state.broker_configs
        # Invalid data changes nothing.
        configs = {
            broker: known.get(broker, {}) if values is None else values
            for broker, (values, _) in read.items()
        }
        return config_differences(known, configs)
