"""Messages: what a consumer group is asked and what comes of it, as values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from moldau.broker.coordination.groups.assignors.assignor import Assignment, Assignor
from moldau.broker.coordination.groups.consumer.parts import Member
from moldau.wire.errors import Error

JOINS = 0
LEAVES = -1
LEAVES_FOR_NOW = -2


class Heartbeat(msgspec.Struct, frozen=True):
    """A ConsumerGroupHeartbeat; None or -1 where nothing has changed since the last one.

    `now_ms` is the wall clock's time.
    """

    member_id: str
    epoch: int
    instance_id: str | None = None
    rack: str | None = None
    rebalance_timeout_ms: int = -1
    topics: frozenset[str] | None = None
    regex: str | None = None
    assignor: str | None = None
    owned: Assignment | None = None
    client_id: str = ""
    client_host: str = ""
    now_ms: int = 0

    @property
    def is_full(self) -> bool:
        """Whether it says everything, as who missed an answer does."""
        names = self.topics is not None or self.regex is not None
        return self.rebalance_timeout_ms != -1 and names and self.owned is not None

    def changed(self, known: Member) -> Member:
        """Return what the member is with this heartbeat."""
        timeout_ms = self.rebalance_timeout_ms
        return Member(
            known.instance_id if self.instance_id is None else self.instance_id,
            known.rack if self.rack is None else self.rack,
            self.client_id,
            self.client_host,
            known.topics if self.topics is None else self.topics,
            known.regex if self.regex is None else self.regex,
            known.rebalance_timeout_ms if timeout_ms == -1 else timeout_ms,
            known.assignor if self.assignor is None else self.assignor,
        )


class SteadyBeat(NamedTuple):
    """A heartbeat that says nothing but that its member lives: most of them."""

    member_id: str
    epoch: int
    instance_id: str | None
    client_id: str
    client_host: str


class HeartbeatAnswer(msgspec.Struct, frozen=True):
    """The answer to a heartbeat; no assignment means that it is as before."""

    error: Error
    message: str | None = None
    member_id: str | None = None
    epoch: int = 0
    interval_ms: int = 0
    assignment: Assignment | None = None


class Refused(Exception):
    """A request that a group refuses, with Kafka's error and words."""

    def __init__(self, error: Error, message: str) -> None:
        super().__init__(message)
        self.error = error
        self.message = message


class Limits(NamedTuple):
    """What the settings of the broker and the group come to for a consumer group."""

    session_timeout_ms: int
    heartbeat_interval_ms: int
    assignment_interval_ms: int
    max_size: int
    # The assignors that it can use by name, the default first.
    assignors: Mapping[str, Assignor]
    classic_max_size: int
    regex_refresh_ms: int
    can_upgrade: bool = True
    can_downgrade: bool = True
