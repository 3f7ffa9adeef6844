"""All sessions of followers at one leader."""

from __future__ import annotations

import random
import time
from collections.abc import Callable

from moldau.broker.net.connection import Connection
from moldau.broker.partitions.partition import Partition
from moldau.broker.partitions.partitions import Partitions
from moldau.broker.replication.leader.follower_session import FollowerSession
from moldau.wire.errors import Error
from moldau.wire.fetch.request import FetchRequest
from moldau.wire.fetch.session import FIRST_EPOCH, NO_EPOCH, SessionError, next_epoch

# A follower that has not asked for this long is gone, or has started again.
_LONGEST_SILENCE_S = 60.0
# More fetchers than any follower has.
_MOST_PER_FOLLOWER = 64


class FollowerSessions:
    """The sessions by their id. Consumers' sessions never push them out. Event loop only."""

    def __init__(self, partitions: Partitions, reconsider: Callable[[Partition], None]) -> None:
        """`reconsider` is called where a follower may have come to be in sync."""
        self._held = partitions
        self._reconsider = reconsider
        self._sessions: dict[int, FollowerSession] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def open(self, request: FetchRequest, by_id: bool) -> FollowerSession:
        """Return the session of a request, begun or gone on with; SessionError if it fits none."""
        if request.session_epoch in (NO_EPOCH, FIRST_EPOCH):
            self._end(request.session_id)
            if request.session_epoch == NO_EPOCH:
                return FollowerSession(self._held, self._reconsider, 0, by_id, request.replica_id)
            return self._begin(request, by_id)
        session = self._sessions.get(request.session_id)
        if session is None or session.replica != request.replica_id:
            raise SessionError(Error.FETCH_SESSION_ID_NOT_FOUND)
        if request.session_epoch != next_epoch(session.epoch):
            raise SessionError(Error.INVALID_FETCH_SESSION_EPOCH)
        if session.by_id != by_id:
            raise SessionError(Error.FETCH_SESSION_TOPIC_ID_ERROR)
        session.epoch = request.session_epoch
        return session

    def knows(self, replica: int) -> bool:
        """Return whether there is such a broker."""
        return replica in self._held.state.brokers

    def hung_up(self, connection: Connection) -> None:
        """End the sessions of a connection that has ended: its follower begins anew."""
        for session in list(self._sessions.values()):
            if session.connection is connection:
                self._end(session.id)

    def sweep(self) -> None:
        """End the sessions of followers that ask no more."""
        oldest = time.monotonic() - _LONGEST_SILENCE_S
        for session in list(self._sessions.values()):
            if session.fetched_at < oldest and not session.is_parked:
                self._end(session.id)

    def _begin(self, request: FetchRequest, by_id: bool) -> FollowerSession:
        replica = request.replica_id
        if not self.knows(replica):
            return FollowerSession(self._held, self._reconsider, 0, by_id, replica)
        of_replica = [session for session in self._sessions.values() if session.replica == replica]
        if len(of_replica) >= _MOST_PER_FOLLOWER:
            self._end(min(of_replica, key=lambda session: session.fetched_at).id)
        session_id = random.randint(1, 2**31 - 1)
        while session_id in self._sessions:
            session_id = random.randint(1, 2**31 - 1)
        session = self._sessions[session_id] = FollowerSession(
            self._held, self._reconsider, session_id, by_id, replica
        )
        return session

    def _end(self, session_id: int) -> None:
        session = self._sessions.pop(session_id, None)
        if session is not None:
            session.close()
