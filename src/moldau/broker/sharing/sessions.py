"""Share sessions: a member names its partitions to a leader once, then only changes (KIP-932).

    epoch in a request   what it means
    0                    a new session, in place of the one that there may be
    n                    the next request of a session: one more than in the request before
    -1                   the last request of a session, which ends with it

A session belongs to a connection and ends with it. What its member has acquired is released then.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator

from moldau.broker.coordination.share.state import ShareKey
from moldau.wire.errors import Error
from moldau.wire.primitives import TopicIdPartition

INITIAL, FINAL = 0, -1
_LAST_EPOCH = 2**31 - 1


class ShareSessionError(Exception):
    """A request that does not fit its session."""

    def __init__(self, code: Error) -> None:
        super().__init__(code.name)
        self.code = code


class ShareSession:
    """The partitions that one member reads from this broker; `epoch` is that of its next
    request. Once its last request is here, or another session is in its place, it is not open."""

    __slots__ = ("connection", "epoch", "group", "is_open", "member", "partitions")

    def __init__(self, group: str, member: str, connection: Hashable) -> None:
        self.group = group
        self.member = member
        self.connection = connection
        self.epoch = 1
        self.is_open = True
        # In the order in which they were named.
        self.partitions: dict[TopicIdPartition, None] = {}

    def share_keys(self) -> Iterator[ShareKey]:
        """Go through its partitions, as the group sees them."""
        for topic_id, index in self.partitions:
            yield ShareKey(self.group, topic_id, index)

    def in_turn(self) -> list[TopicIdPartition]:
        """Return its partitions, beginning with another one each time."""
        partitions = list(self.partitions)
        at = self.epoch % max(len(partitions), 1)
        return partitions[at:] + partitions[:at]


class ShareSessions:
    """The share sessions of a broker. Event loop only.

    `ended` is called with each session that ends.
    """

    def __init__(self, most: Callable[[], int], ended: Callable[[ShareSession], None]) -> None:
        self._most = most
        self._ended = ended
        self._sessions: dict[tuple[str, str], ShareSession] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def open(self, group: str, member: str, connection: Hashable) -> ShareSession:
        """Begin a session."""
        before = self._sessions.get((group, member))
        if before is not None:
            self.end(before)
        if len(self._sessions) >= self._most():
            raise ShareSessionError(Error.SHARE_SESSION_LIMIT_REACHED)
        session = self._sessions[group, member] = ShareSession(group, member, connection)
        return session

    def resume(self, group: str, member: str, epoch: int) -> ShareSession:
        """Return the session that a request goes on with, or ends."""
        session = self._sessions.get((group, member))
        if session is None:
            raise ShareSessionError(Error.SHARE_SESSION_NOT_FOUND)
        if epoch == FINAL:
            session.is_open = False
            return session
        if epoch != session.epoch:
            raise ShareSessionError(Error.INVALID_SHARE_SESSION_EPOCH)
        session.epoch = 1 if epoch == _LAST_EPOCH else epoch + 1
        return session

    def end(self, session: ShareSession) -> None:
        if self._sessions.get((session.group, session.member)) is session:
            del self._sessions[session.group, session.member]
            session.is_open = False
            self._ended(session)

    def hung_up(self, connection: Hashable) -> None:
        """End the sessions of a connection that has ended."""
        if self._sessions:
            for session in [s for s in self._sessions.values() if s.connection is connection]:
                self.end(session)
