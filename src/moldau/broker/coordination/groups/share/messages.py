"""Messages: what a share group is asked and what comes of it, as values."""

from __future__ import annotations

from typing import NamedTuple, Protocol
from uuid import UUID

from moldau.broker.coordination.groups.assignors.assignor import Assignment
from moldau.wire.errors import Error

JOINS, LEAVES = 0, -1


class Heartbeat(NamedTuple):
    """A ShareGroupHeartbeat; None where nothing has changed since the last one."""

    member_id: str
    epoch: int
    rack: str | None
    topics: tuple[str, ...] | None
    client_id: str
    client_host: str


class Heard(NamedTuple):
    """The answer to a heartbeat; no assignment means that it is as before."""

    error: Error
    message: str | None = None
    member_id: str | None = None
    epoch: int = 0
    interval_ms: int = 0
    assignment: Assignment | None = None


class ShareLimits(NamedTuple):
    """What the settings of the broker and the group come to."""

    session_timeout_ms: int
    heartbeat_interval_ms: int
    max_size: int


class Topics(Protocol):
    """The topics of the cluster; `version` is another whenever one of them may have changed."""

    @property
    def version(self) -> int: ...

    def get(self, name: str) -> tuple[UUID, int] | None:
        """Return the id of a topic and how many partitions it has; None if there is no such."""
        ...


class Refused(Exception):
    """A heartbeat that the group refuses, with Kafka's error and words."""

    def __init__(self, error: Error, message: str) -> None:
        super().__init__(message)
        self.error = error
        self.message = message
