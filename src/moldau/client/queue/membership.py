"""Memberships in share groups: a thread that tells the coordinator that a member is alive."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID, uuid4

from moldau.peer.cluster import Cluster
from moldau.peer.errors import ConnectionLost, NotAuthenticated, PeerError, Refused, Unreachable
from moldau.wire.apis import Api
from moldau.wire.errors import Error
from moldau.wire.messages import milliseconds

logger = logging.getLogger("moldau.client")

_JOINS, _LEAVES = 0, -1
# Before a heartbeat that failed is sent again.
_PAUSE_S = 0.3
# While nothing is assigned: to a new group, that happens between two heartbeats.
_SOON_S = 0.5
# The coordinator has forgotten the member, which has to join anew.
_FORGOTTEN = (Error.UNKNOWN_MEMBER_ID, Error.FENCED_MEMBER_EPOCH, Error.GROUP_ID_NOT_FOUND)

Assignment = Mapping[UUID, frozenset[int]]


class Membership:
    """One member of a share group, from `start` to `leave`.

    A thread of its own sends the heartbeats (ShareGroupHeartbeat), however long the work on a
    message takes. `assigned` are the partitions to fetch from, by topic ids; `failed` is why the
    group does not want the member, if it does not. Both may be read from any thread.
    """

    def __init__(self, cluster: Cluster, group: str, topics: Sequence[str]) -> None:
        self.id = str(uuid4())
        self.group = group
        self.assigned: Assignment = {}
        self.failed: PeerError | None = None
        self._cluster = cluster
        self._topics = list(topics)
        self._epoch = _JOINS
        # Set when there is something to fetch from, or never will be.
        self._is_settled = threading.Event()
        self._is_leaving = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"heartbeats {group}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def wait(self, wait_s: float) -> None:
        """Return when the member has been assigned something or is refused, or after a while."""
        self._is_settled.wait(wait_s)

    def leave(self) -> None:
        """Tell the coordinator that the member goes, if it can be told, and hang up."""
        self.end()
        self._thread.join()

    def end(self) -> None:
        """Have the thread leave, and do not wait for it."""
        self._is_leaving.set()

    def _run(self) -> None:
        with self._cluster:
            while not self._is_leaving.wait(self._beat()):
                pass
            if self._epoch > _JOINS:
                try:
                    self._send(_LEAVES)
                except PeerError as problem:
                    logger.info("could not leave group %s: %s", self.group, problem)

    def _beat(self) -> float:
        """Send a heartbeat; return how long to wait for the next."""
        try:
            answer = self._send(self._epoch)
            if answer.error_code in _FORGOTTEN and self._epoch != _JOINS:
                self._epoch, self.assigned = _JOINS, {}
                self._is_settled.clear()
                return 0.0
            if answer.error_code:
                raise Refused(answer.error_code, f"group {self.group}", answer.error_message)
        except PeerError as problem:
            if not _passes(problem):
                self.failed = problem
                self._is_settled.set()
            logger.info("a heartbeat failed: %s", problem)
            return _PAUSE_S
        self.failed = None
        self._epoch = int(answer.member_epoch)
        if answer.assignment is not None:
            self.assigned = {
                each.topic_id: frozenset(each.partitions)
                for each in answer.assignment.topic_partitions
            }
        interval_s = milliseconds(answer.heartbeat_interval) / 1000
        if self.assigned:
            self._is_settled.set()
            return interval_s
        self._is_settled.clear()
        return min(interval_s, _SOON_S)

    def _send(self, epoch: int) -> Any:
        coordinator = self._cluster.to(self._cluster.coordinator(self.group))
        values = {
            "group_id": self.group,
            "member_id": self.id,
            "member_epoch": epoch,
            "subscribed_topic_names": self._topics if epoch == _JOINS else None,
        }
        return coordinator.ask(Api.SHARE_GROUP_HEARTBEAT, values)


def _passes(problem: PeerError) -> bool:
    """Return whether another attempt may succeed."""
    if isinstance(problem, Refused):
        return problem.is_retriable
    return isinstance(problem, ConnectionLost | Unreachable) and not isinstance(
        problem, NotAuthenticated
    )
