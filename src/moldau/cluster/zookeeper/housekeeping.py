"""Housekeeping of the controller in ZooKeeper."""

from __future__ import annotations

import logging
import time

from moldau.cluster.store import NotController
from moldau.cluster.zookeeper.commits import Commits
from moldau.cluster.zookeeper.differences import broker_differences
from moldau.cluster.zookeeper.election import Election
from moldau.cluster.zookeeper.sessions.operations import Refused
from moldau.cluster.zookeeper.sessions.session import Session
from moldau.cluster.zookeeper.sessions.watcher import Watch
from moldau.cluster.zookeeper.tree import Tree
from moldau.cluster.zookeeper.trimming import trim_deleted, trim_notices
from moldau.cluster.zookeeper.znodes import Paths

logger = logging.getLogger("moldau.cluster.zookeeper")

_TRIM_DELETED_EVERY_S = 3600.0


class Housekeeping:
    """Event loop only, one call at a time (the store's lock), and only as the
    controller."""

    def __init__(
        self,
        session: Session,
        paths: Paths,
        tree: Tree,
        election: Election,
        commits: Commits,
        *,
        on_members: Watch,
    ) -> None:
        self._session = session
        self._paths = paths
        self._tree = tree
        self._election = election
        self._commits = commits
        self._on_members = on_members
        self._trim_deleted_at = 0.0

    async def announce_members(self) -> None:
        """Tell everybody of brokers whose session ended, for nobody else would, and watch for the
        next. NotController if another is by now."""
        brokers = await self._tree.read_brokers(self._on_members)
        changes = broker_differences(self._tree.state.brokers, brokers)
        if not changes:
            return
        try:
            await self._session.multi([*self._election.guards, self._commits.notice(brokers=True)])
        except Refused as refusal:
            raise NotController("another broker has been elected controller") from refusal
        await self._tree.refresh_topics_since(self._tree.notices)
        self._tree.publish(changes)

    async def trim(self) -> None:
        """Remove what nobody needs any more."""
        guards = self._election.guards
        try:
            self._tree.notices = await trim_notices(
                self._session, self._paths, guards, self._tree.notices
            )
            if time.monotonic() >= self._trim_deleted_at:
                self._trim_deleted_at = time.monotonic() + _TRIM_DELETED_EVERY_S
                await trim_deleted(self._session, self._paths, guards)
        except Refused as refusal:
            # Somebody else did, or does from now on; what is left is seen with the next notice.
            logger.info("could not trim the list of changes: %s", refusal)
            self._tree.notices = []
