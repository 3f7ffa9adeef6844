"""Errors between us and a broker, each with the data of what went wrong."""

from __future__ import annotations

from collections.abc import Mapping
from uuid import UUID

from moldau.wire.errors import Error

# After these the same question may be answered, by the same broker or by the leader of then.
RETRIABLE = frozenset(
    (
        Error.UNKNOWN_TOPIC_OR_PARTITION,
        Error.LEADER_NOT_AVAILABLE,
        Error.NOT_LEADER_OR_FOLLOWER,
        Error.REQUEST_TIMED_OUT,
        Error.BROKER_NOT_AVAILABLE,
        Error.REPLICA_NOT_AVAILABLE,
        Error.NETWORK_EXCEPTION,
        Error.COORDINATOR_LOAD_IN_PROGRESS,
        Error.COORDINATOR_NOT_AVAILABLE,
        Error.NOT_COORDINATOR,
        Error.KAFKA_STORAGE_ERROR,
        Error.FENCED_LEADER_EPOCH,
        Error.UNKNOWN_LEADER_EPOCH,
        Error.OFFSET_NOT_AVAILABLE,
        Error.UNKNOWN_TOPIC_ID,
        Error.INCONSISTENT_TOPIC_ID,
        Error.FETCH_SESSION_TOPIC_ID_ERROR,
        Error.THROTTLING_QUOTA_EXCEEDED,
    )
)


def name_of(code: int) -> str:
    """Kafka's name of an error code, or the number where we have no name for it."""
    try:
        return Error(code).name
    except ValueError:
        return f"error {code}"


class PeerError(Exception):
    """Anything that keeps a broker from answering us."""


class ConnectionLost(PeerError):
    """The connection to `address` broke or never came about; another attempt may succeed."""

    def __init__(self, address: str, reason: str) -> None:
        super().__init__(f"{address}: {reason}")
        self.address = address
        self.reason = reason


class ConnectionRefused(ConnectionLost):
    """Nobody listens at `address`, or somebody in between says so: a hint of death, no proof."""


class MalformedAnswer(ConnectionLost):
    """The peer sent bytes that are not the answer to our question; the connection is useless."""


class NotAuthenticated(ConnectionLost):
    """One side did not accept who the other says it is; to try again changes nothing."""


class Unreachable(PeerError):
    """No broker answered in time; `tried` has the last reason for each address."""

    def __init__(self, tried: Mapping[str, str], within_s: float) -> None:
        attempts = ", ".join(f"{address} ({reason})" for address, reason in tried.items())
        super().__init__(f"no broker answered within {within_s:g} s; tried {attempts or 'none'}")
        self.tried = dict(tried)


class UnsupportedByBroker(PeerError):
    """The broker speaks no version of a request that we speak."""

    def __init__(self, address: str, api: str, ours: str, theirs: str) -> None:
        super().__init__(f"{address} supports {api} {theirs}, but {ours} is needed")


class Refused(PeerError):
    """The broker answered with an error code."""

    def __init__(self, code: int, what: str, message: str | None = None) -> None:
        super().__init__(f"{what}: {name_of(code)}" + (f" ({message})" if message else ""))
        self.code = code

    @property
    def is_retriable(self) -> bool:
        return self.code in RETRIABLE

    @property
    def is_unknown(self) -> bool:
        """Whether the cluster says that it has no such topic or partition."""
        return self.code in (Error.UNKNOWN_TOPIC_OR_PARTITION, Error.UNKNOWN_TOPIC_ID)


class UnknownTopic(Refused):
    """A topic that the cluster does not have, or a `partition` that the topic does not have."""

    def __init__(self, topic: str, partition: int | None = None) -> None:
        what = f"topic {topic!r}" if partition is None else f"{topic}-{partition}"
        super().__init__(Error.UNKNOWN_TOPIC_OR_PARTITION, f"{what} does not exist")
        self.topic = topic


class OffsetOutOfRange(PeerError):
    """`offset` lies outside what the partition holds now: from `log_start` up to `log_end`."""

    def __init__(
        self, topic: str, partition: int, offset: int, log_start: int, log_end: int
    ) -> None:
        super().__init__(
            f"{topic}-{partition} has no offset {offset}: it holds {log_start} to {log_end}"
        )
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self.log_start = log_start
        self.log_end = log_end


class TopicRecreated(PeerError):
    """The name stands for another topic than it did: it was deleted and created again."""

    def __init__(self, topic: str, was: UUID, now: UUID) -> None:
        super().__init__(f"topic {topic!r} was deleted and created again (id {was}, now {now})")
        self.topic = topic
        self.was = was
        self.now = now
