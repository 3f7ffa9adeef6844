"""Committing changes: transactions, and what became of them."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Sequence
from typing import Any

from moldau.cluster.state.changes import AnyChange, BrokerConfigured
from moldau.cluster.store import Conflict, NotController, StoreError
from moldau.cluster.zookeeper.differences import topic_differences
from moldau.cluster.zookeeper.sessions.operations import (
    Check,
    Create,
    Operation,
    Refused,
    Stat,
    Unanswered,
    Unreachable,
)
from moldau.cluster.zookeeper.sessions.session import Session
from moldau.cluster.zookeeper.tree import Tree
from moldau.cluster.zookeeper.writes import (
    AccessWrite,
    ConfigWrite,
    Draft,
    TopicWrite,
    Write,
    batches,
)
from moldau.cluster.zookeeper.znodes import Notice, Paths, encode_notice

logger = logging.getLogger("moldau.cluster.zookeeper")

_ATTEMPTS = 5
_UNKNOWN = "ZooKeeper is out of reach: we cannot know whether a commit took place"


class Displaced(Conflict):
    """This broker's own registration is not the last under its id."""


class Commits:
    """Writes drafts. Event loop only, one call at a time (the store's lock)."""

    def __init__(self, session: Session, paths: Paths, tree: Tree, broker_id: int) -> None:
        self._session = session
        self._paths = paths
        self._tree = tree
        self._broker_id = broker_id
        self._own = (paths.broker(broker_id), paths.folder(broker_id))

    def joining(self, draft: Draft) -> list[Check]:
        """Return checks that replicas join the ISR in the life they were judged by (KIP-903)."""
        registrations = self._tree.registrations
        joining = sorted(draft.joining())
        if not all(broker in registrations for broker in joining):
            raise Conflict(f"not all of the brokers {joining} are registered")
        return [Check(self._paths.folder(broker), registrations[broker]) for broker in joining]

    async def write(self, draft: Draft, guards: Sequence[Check]) -> None:
        """Make it so, in as few transactions as hold it and while the guards hold. Errors as in
        MetadataStore.commit."""
        writes = draft.writes(self._tree.state)
        for write in writes:
            if isinstance(write, TopicWrite) and write.name in self._tree.damaged:
                raise StoreError(self._tree.damaged[write.name])
        for batch in batches([(write, self._operations(write)) for write in writes]):
            await self._write_batch(guards, batch)

    def notice(
        self, *, topics: Sequence[str] = (), brokers: bool = False, configs: bool = False
    ) -> Create:
        """Return the part of a transaction that tells everybody of it."""
        notice = Notice(uuid.uuid4().hex, self._broker_id, tuple(topics), brokers, configs)
        return Create(self._paths.new_change, encode_notice(notice), sequence=True)

    def _operations(self, write: Write) -> list[Operation]:
        if isinstance(write, ConfigWrite):
            return write.operations(self._paths, self._tree.config_versions.get(write.broker))
        if isinstance(write, AccessWrite):
            return write.operations(self._paths, self._tree.access_versions.get(write.change.key))
        return write.operations(self._paths, self._tree.versions.get(write.name, -1))

    async def _write_batch(
        self, guards: Sequence[Check], batch: list[tuple[Write, list[Operation]]]
    ) -> None:
        names = [write.name for write, _ in batch if isinstance(write, TopicWrite)]
        configs = any(isinstance(write, ConfigWrite) for write, _ in batch)
        access = [write.change.key for write, _ in batch if isinstance(write, AccessWrite)]
        mark = uuid.uuid4().hex
        notice = Notice(mark, self._broker_id, tuple(names), configs=configs, access=tuple(access))
        operations = [
            *guards,
            *(operation for _, operations in batch for operation in operations),
            Create(self._paths.new_change, encode_notice(notice), sequence=True),
        ]
        session_id = self._session.id
        known = self._versions(names)
        was_unanswered = False
        for _ in range(_ATTEMPTS):
            try:
                results = await self._session.multi(operations)
            except Unreachable as error:
                if was_unanswered:
                    raise Unanswered(_UNKNOWN) from error
                raise
            except Unanswered as error:
                logger.info("%s; checking whether the commit took place", error)
                was_unanswered = True
                if await self._happened(mark, session_id):
                    return
            except Refused as refusal:
                # A server may process a request only after its sender has sent it again.
                if was_unanswered and await self._happened(mark, session_id):
                    return
                await self._read_anew(names, access, configs=configs)
                raise self._meaning(refusal, guards, names, known) from refusal
            else:
                self._take(batch, results[len(guards) :])
                return
        raise Unanswered(
            f"the connection to ZooKeeper broke {_ATTEMPTS} times during one commit: "
            "we cannot know whether it took place"
        )

    def _take(self, batch: list[tuple[Write, list[Operation]]], results: list[Any]) -> None:
        """It happened: so it is part of the state at once, and its notice brings no news."""
        tree = self._tree
        changes: list[AnyChange] = []
        tree.own_notices.add(results[-1].rpartition("/")[2])
        place = 0
        for write, operations in batch:
            # The node itself comes first among the operations of a write.
            result = results[place]
            place += len(operations)
            version = result.version if isinstance(result, Stat) else 0
            if isinstance(write, ConfigWrite):
                tree.config_versions[write.broker] = version
                changes.append(BrokerConfigured(write.broker, write.configs))
                continue
            if isinstance(write, AccessWrite):
                if write.change.is_empty:
                    tree.access_versions.pop(write.change.key, None)
                else:
                    tree.access_versions[write.change.key] = version
                changes.append(write.change)
                continue
            changes += topic_differences(write.old, write.new)
            if write.new is None:
                tree.versions.pop(write.name, None)
            else:
                tree.versions[write.name] = version
        tree.publish(changes)

    async def _happened(self, mark: str, session_id: int) -> bool:
        """Return whether the transaction took place; the state shows it then. Conflict if that is
        unknown for good, or if it did not and the session that sent it is over."""
        for _ in range(_ATTEMPTS):
            try:
                await self._session.wait_until_connected()
                # Another server than the former may have some catching up to do.
                await self._session.sync()
                happened = await self._tree.find(mark)
                await self._tree.catch_up()
            except Unanswered:
                continue
            except Unreachable as error:
                raise Unanswered(_UNKNOWN) from error
            if happened is None or (not happened and self._session.id != session_id):
                raise Conflict("the connection to ZooKeeper broke; the state was read again")
            return happened
        raise Unanswered(_UNKNOWN)

    async def _read_anew(self, names: list[str], access: list[str], *, configs: bool) -> None:
        """After a refusal, which was decided on what is there."""
        for _ in range(_ATTEMPTS):
            try:
                await self._tree.catch_up()
                await self._tree.refresh_topics(names)
                if configs:
                    await self._tree.refresh_configs()
                if access:
                    await self._tree.refresh_access(access)
                return
            except Unanswered as error:
                logger.info("%s; reading again", error)
        raise Unreachable(f"the connection to ZooKeeper broke {_ATTEMPTS} times during one commit")

    def _meaning(
        self, refusal: Refused, guards: Sequence[Check], names: list[str], known: tuple[object, ...]
    ) -> StoreError:
        """Return what a refusal means for a commit that was decided on `known` versions."""
        if refusal.at < len(guards):
            if guards[refusal.at].path == self._paths.controller_epoch:
                return NotController("another broker has been elected controller")
            if guards[refusal.at].path in self._own:
                return Displaced("another process registered with this broker's id")
            return Conflict("the broker has registered again in the meantime")
        for name in names:
            if name in self._tree.damaged:
                return StoreError(self._tree.damaged[name])
        if self._versions(names) == known:
            return StoreError(f"{refusal}, although nothing has changed")
        return Conflict(str(refusal))

    def _versions(self, names: list[str]) -> tuple[object, ...]:
        tree = self._tree
        topics = [(tree.versions.get(name), tree.state.topics.get(name)) for name in names]
        return (topics, dict(tree.config_versions), dict(tree.access_versions))
