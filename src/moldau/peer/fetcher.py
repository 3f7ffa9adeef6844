"""A fetcher: reads one partition from its leader, through leader changes and broker restarts."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from moldau.peer.cluster import EARLIEST, LATEST, Cluster
from moldau.peer.connection import Connection
from moldau.peer.dialogue import Asked
from moldau.peer.errors import (
    RETRIABLE,
    ConnectionLost,
    OffsetOutOfRange,
    PeerError,
    Refused,
    TopicRecreated,
    UnknownTopic,
    Unreachable,
)
from moldau.peer.fetch_stream import FetchStream
from moldau.peer.retries import Attempts, attempts
from moldau.wire.errors import Error
from moldau.wire.fetch.request import FetchPartition, FetchRequest


@dataclass(frozen=True, slots=True)
class FetchSettings:
    """The settings of a fetch, under Kafka's names."""

    max_bytes: int = 8 << 20  # max.partition.fetch.bytes
    max_wait_ms: int = 500  # fetch.max.wait.ms
    min_bytes: int = 1  # fetch.min.bytes
    read_committed: bool = False  # isolation.level


class PartitionFetcher:
    """Fetches of one partition. With a `topic_id`, a recreated topic is TopicRecreated.

    `ask_ahead` sends the next fetch before the last answer is worked through, so that broker and
    caller work at the same time. All records of an answer are taken before the next is asked for.
    """

    def __init__(
        self,
        cluster: Cluster,
        topic: str,
        partition: int,
        topic_id: UUID | None = None,
        settings: FetchSettings | None = None,
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.settings = settings or FetchSettings()
        self._cluster = cluster
        self._expected_id = topic_id
        self._topic_id: UUID | None = None
        self._epoch = -1
        self._leader: Connection | None = None
        self._ahead: tuple[int, Asked] | None = None

    def close(self) -> None:
        """Return the connection, or close it if a response is outstanding."""
        if self._leader is not None and self._leader.unanswered:
            self._leader.close()
        self._leader = self._ahead = None

    def ask_ahead(self, offset: int) -> None:
        """Send the fetch at `offset` now; a failure shows in the `fetch` that follows."""
        if self._leader is not None and not self._leader.unanswered:
            try:
                self._ahead = (offset, self._send(self._leader, offset))
            except ConnectionLost:
                self.close()

    def fetch(self, offset: int) -> FetchStream:
        """Return what the leader has from `offset` on; no records if none came in `max_wait_ms`.

        Raises OffsetOutOfRange, TopicRecreated, UnknownTopic, or what was wrong last when it
        could not be had within `retry_within_s`. ConnectionLost while records are taken is the
        caller's, who knows how far they came.
        """
        tries = attempts(self._cluster.settings)
        unknown: Attempts | None = None
        while True:
            last: PeerError
            try:
                stream = self._fetch_once(offset)
                code = stream.partition.error
                if code == Error.NONE:
                    return stream
                self.close()
                if code == Error.OFFSET_OUT_OF_RANGE:
                    self._check_range(offset)
                last = Refused(code, f"fetch of {self.topic}-{self.partition}")
                if code not in RETRIABLE | {Error.OFFSET_OUT_OF_RANGE}:
                    raise last
            except (ConnectionLost, Unreachable) as problem:
                self.close()
                last = problem
            except Refused as problem:
                self.close()
                if not problem.is_retriable:
                    raise
                last = problem
            if isinstance(last, UnknownTopic):
                # Counted from when a broker first said so, not from when the last one went away.
                settings = self._cluster.settings
                unknown = unknown or attempts(settings, settings.unknown_topic_within_s)
                if not unknown.pause():
                    raise last
                continue
            unknown = None
            if not tries.pause():
                if isinstance(last, Unreachable):
                    raise Unreachable(last.tried, tries.within_s)
                raise last

    def _fetch_once(self, offset: int) -> FetchStream:
        expected = 1 if self._ahead is not None and self._ahead[0] == offset else 0
        if self._leader is not None and self._leader.unanswered != expected:
            # A response that is no longer needed, or whose rest is not.
            self.close()
        connection = self._leader or self._find_leader()
        if self._ahead is not None:
            asked, self._ahead = self._ahead[1], None
        else:
            asked = self._send(connection, offset)
        return connection.receive_fetch(asked)

    def _send(self, connection: Connection, offset: int) -> Asked:
        settings = self.settings
        wanted = FetchPartition(self.partition, self._epoch, offset, max_bytes=settings.max_bytes)
        key = connection.fetch_key(self.topic, self._topic_id)
        request = FetchRequest(
            [(key, [wanted])],
            max_wait_ms=settings.max_wait_ms,
            min_bytes=settings.min_bytes,
            max_bytes=settings.max_bytes,
            isolation_level=int(settings.read_committed),
        )
        return connection.send_fetch(request)

    def _find_leader(self) -> Connection:
        node, epoch, view = self._cluster.leader_of(self.topic, self.partition)
        found = view.topics[self.topic].id
        if None not in (found, self._expected_id) and found != self._expected_id:
            assert found is not None
            assert self._expected_id is not None
            raise TopicRecreated(self.topic, self._expected_id, found)
        self._topic_id, self._epoch = found, epoch
        self._leader = self._cluster.to(node)
        return self._leader

    def _check_range(self, offset: int) -> None:
        key = (self.topic, self.partition)
        read_committed = self.settings.read_committed
        start = self._cluster.list_offsets({key: EARLIEST})[key].offset
        end = self._cluster.list_offsets({key: LATEST}, read_committed=read_committed)[key].offset
        # Retention may have moved on, or a new leader may have caught up, since the fetch.
        if not start <= offset <= end:
            raise OffsetOutOfRange(self.topic, self.partition, offset, start, end)
