"""Incremental fetch sessions (KIP-227): a client names its partitions once, then only changes.

`moldau.wire.fetch.session` says how requests name their session.

A session's answers carry only the partitions that have records, an error, or other offsets than
the client was last told. Event loop only.
"""

from __future__ import annotations

import random
from collections import OrderedDict

from moldau.broker.security.principal import ANONYMOUS, Principal
from moldau.wire.errors import Error
from moldau.wire.fetch.request import FetchPartition, FetchRequest
from moldau.wire.fetch.response import FetchedPartition
from moldau.wire.fetch.session import FIRST_EPOCH, NO_EPOCH, SessionError, next_epoch
from moldau.wire.primitives import TopicKey

# Over all sessions, whose number alone would not bound what they take.
_MOST_PARTITIONS = 500_000


class _Told:
    """A partition of a session, and what the client was last told of it."""

    __slots__ = ("high_watermark", "last_stable", "log_start", "wanted")

    def __init__(self, wanted: FetchPartition) -> None:
        self.wanted = wanted
        self.high_watermark = self.last_stable = self.log_start = -1

    def is_changed_by(self, answer: FetchedPartition) -> bool:
        is_changed = (
            answer.records is not None
            or answer.error != 0
            or answer.diverging is not None
            or answer.high_watermark != self.high_watermark
            or answer.last_stable != self.last_stable
            or answer.log_start != self.log_start
        )
        # After an error the client must hear of the partition again, whatever its offsets.
        self.high_watermark = -1 if answer.error else answer.high_watermark
        self.last_stable = answer.last_stable
        self.log_start = answer.log_start
        return is_changed


class FetchSession:
    """The partitions of one client, in the order in which they are served."""

    def __init__(self, session_id: int, by_id: bool, principal: Principal) -> None:
        self.id = session_id
        self.principal = principal
        self.by_id = by_id
        self.epoch = FIRST_EPOCH
        self._partitions: OrderedDict[tuple[TopicKey, int], _Told] = OrderedDict()

    def __len__(self) -> int:
        return len(self._partitions)

    def update(self, request: FetchRequest) -> None:
        """Apply what a request changes and forgets."""
        for key, partitions in request.topics:
            for wanted in partitions:
                told = self._partitions.get((key, wanted.partition))
                if told is None:
                    self._partitions[key, wanted.partition] = _Told(wanted)
                else:
                    told.wanted = wanted
        for key, indexes in request.forgotten:
            for index in indexes:
                self._partitions.pop((key, index), None)

    def wanted(self) -> list[tuple[TopicKey, list[FetchPartition]]]:
        """Return all partitions of the session, neighbours of one topic together."""
        topics: list[tuple[TopicKey, list[FetchPartition]]] = []
        for (key, _), told in self._partitions.items():
            if not topics or topics[-1][0] != key:
                topics.append((key, []))
            topics[-1][1].append(told.wanted)
        return topics

    def changes(
        self, topics: list[tuple[TopicKey, list[FetchedPartition]]]
    ) -> list[tuple[TopicKey, list[FetchedPartition]]]:
        """Return the part of an answer that the client does not know yet."""
        changes = []
        for key, partitions in topics:
            changed = []
            for answer in partitions:
                place = (key, answer.index)
                told = self._partitions.get(place)
                if told is None or told.is_changed_by(answer):
                    changed.append(answer)
                    # A served partition goes to the end, so that none starves behind one that
                    # always fills the answer.
                    if told is not None and answer.records is not None:
                        self._partitions.move_to_end(place)
            if changed:
                changes.append((key, changed))
        return changes


class FetchSessions:
    """All sessions, at most `slots`; the least recently used one makes room.

    To anybody but the principal that began it a session is not there.
    """

    def __init__(self, slots: int) -> None:
        self._slots = slots
        self._sessions: OrderedDict[int, FetchSession] = OrderedDict()
        self._partitions = 0

    def __len__(self) -> int:
        return len(self._sessions)

    def open(
        self, request: FetchRequest, by_id: bool, principal: Principal = ANONYMOUS
    ) -> FetchSession | None:
        """Return the session of a request, begun or gone on with; None where it wants none."""
        if request.session_epoch in (NO_EPOCH, FIRST_EPOCH):
            ended = self._sessions.get(request.session_id)
            if ended is not None and ended.principal == principal:
                self._end(request.session_id)
            if request.session_epoch == NO_EPOCH or not self._slots:
                return None
            return self._begin(request, by_id, principal)
        session = self._sessions.get(request.session_id)
        if session is None or session.principal != principal:
            raise SessionError(Error.FETCH_SESSION_ID_NOT_FOUND)
        expected = next_epoch(session.epoch)
        if request.session_epoch != expected:
            raise SessionError(Error.INVALID_FETCH_SESSION_EPOCH)
        if session.by_id != by_id:
            raise SessionError(Error.FETCH_SESSION_TOPIC_ID_ERROR)
        session.epoch = expected
        self._sessions.move_to_end(session.id)
        if not self._update(session, request):
            raise SessionError(Error.FETCH_SESSION_ID_NOT_FOUND)
        return session

    def _begin(
        self, request: FetchRequest, by_id: bool, principal: Principal
    ) -> FetchSession | None:
        while len(self._sessions) >= self._slots:
            self._end(next(iter(self._sessions)))
        session = FetchSession(self._new_id(), by_id, principal)
        self._sessions[session.id] = session
        return session if self._update(session, request) else None

    def _update(self, session: FetchSession, request: FetchRequest) -> bool:
        """Take in what a request changes; False when the session has become too large to keep."""
        before = len(session)
        session.update(request)
        self._partitions += len(session) - before
        while self._partitions > _MOST_PARTITIONS:
            self._end(next(iter(self._sessions)))
        return session.id in self._sessions

    def _end(self, session_id: int) -> None:
        session = self._sessions.pop(session_id, None)
        if session is not None:
            self._partitions -= len(session)

    def _new_id(self) -> int:
        while True:
            session_id = random.randint(1, 2**31 - 1)
            if session_id not in self._sessions:
                return session_id
