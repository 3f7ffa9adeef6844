"""The feeds of a leader: one for each session of a follower."""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING

from moldau.broker.api.records.fetch_sessions import FIRST_EPOCH, NO_EPOCH, SessionError, next_epoch
from moldau.broker.replication.leader.follower_session import Feed
from moldau.wire.errors import Error
from moldau.wire.fetch import FetchRequest

if TYPE_CHECKING:
    from moldau.broker.net.connection import Connection
    from moldau.broker.server import Broker

# A follower that has not asked for so long has gone, or begun anew.
_LONGEST_SILENCE_S = 60.0
# More fetchers than any follower has.
_MOST_PER_FOLLOWER = 64


class Feeds:
    """All feeds, by session id. Consumers' sessions never push them out. Event loop only."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._feeds: dict[int, Feed] = {}

    def __len__(self) -> int:
        return len(self._feeds)

    def open(self, request: FetchRequest, by_id: bool) -> Feed:
        """The feed of a question, begun or gone on with; SessionError if it fits none."""
        if request.session_epoch in (NO_EPOCH, FIRST_EPOCH):
            self._end(request.session_id)
            if request.session_epoch == NO_EPOCH:
                return Feed(self._broker, 0, by_id, request.replica_id)
            return self._begin(request, by_id)
        feed = self._feeds.get(request.session_id)
        if feed is None or feed.replica != request.replica_id:
            raise SessionError(Error.FETCH_SESSION_ID_NOT_FOUND)
        if request.session_epoch != next_epoch(feed.epoch):
            raise SessionError(Error.INVALID_FETCH_SESSION_EPOCH)
        if feed.by_id != by_id:
            raise SessionError(Error.FETCH_SESSION_TOPIC_ID_ERROR)
        feed.epoch = request.session_epoch
        return feed

    def hung_up(self, connection: Connection) -> None:
        """Drops what was fed by a connection that has ended: its follower begins anew."""
        for feed in list(self._feeds.values()):
            if feed.connection is connection:
                self._end(feed.id)

    def sweep(self) -> None:
        """Drops the feeds of followers that ask no more."""
        oldest = time.monotonic() - _LONGEST_SILENCE_S
        for feed in list(self._feeds.values()):
            if feed.fetched_at < oldest and not feed.is_parked:
                self._end(feed.id)

    def _begin(self, request: FetchRequest, by_id: bool) -> Feed:
        replica = request.replica_id
        if replica not in self._broker.state.brokers:
            return Feed(self._broker, 0, by_id, replica)
        of_replica = [feed for feed in self._feeds.values() if feed.replica == replica]
        if len(of_replica) >= _MOST_PER_FOLLOWER:
            self._end(min(of_replica, key=lambda feed: feed.fetched_at).id)
        session_id = random.randint(1, 2**31 - 1)
        while session_id in self._feeds:
            session_id = random.randint(1, 2**31 - 1)
        feed = self._feeds[session_id] = Feed(self._broker, session_id, by_id, replica)
        return feed

    def _end(self, session_id: int) -> None:
        feed = self._feeds.pop(session_id, None)
        if feed is not None:
            feed.close()
