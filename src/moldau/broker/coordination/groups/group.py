"""Groups, whatever their kind: what the coordinator asks of one, and what it does for one.

A kind of group is a state machine without I/O and clock. Requests that only one kind knows (those
of `classic` are JoinGroup, SyncGroup, Heartbeat and LeaveGroup) go to it directly.
"""

from __future__ import annotations

from collections.abc import Collection, Sized
from typing import Any, NamedTuple, Protocol

from moldau.broker.coordination.records import KeyValue
from moldau.topic_partition import TopicPartition
from moldau.wire.errors import Error

# The kinds of groups.
CLASSIC, CONSUMER, SHARE = "classic", "consumer", "share"

# The one that waits for an answer; a group only hands it back.
Ticket = Any


class Answer(NamedTuple):
    """Somebody's answer is known."""

    ticket: Ticket
    body: Any


class Store:
    """The group must be written down; `Group.stored` wants to know what came of it."""

    __slots__ = ()

    @property
    def replaced(self) -> Group | None:
        """The group of another kind whose place this one takes; None if there is none."""
        return None

    @property
    def leaves_empty(self) -> bool:
        """Whether the last member is gone with this, so that its offsets begin to age."""
        raise NotImplementedError

    def records(self, group_id: str, now_ms: int) -> list[KeyValue]:
        """Make the records to write; none where only what was written before has to be safe."""
        raise NotImplementedError

    def take_back(self) -> None:
        """Nothing of it was written, nor will be: the group is to be as it was before."""

    def settled(self, group: Group, error: Error, now: int) -> list[Effect]:
        """Go on after the write; by now the group may be somewhere else."""
        return group.stored(self, error, now)


class Report(Protocol):
    """Something that an operator may want to read in the broker's log."""

    @property
    def needs_action(self) -> bool: ...


class Become(NamedTuple):
    """Another group is there from now on, of another kind."""

    group: Group


class Resolve(NamedTuple):
    """The topics that match these regular expressions are to be looked up, as far as `context` may
    see them; the group's `resolved` wants to know."""

    regexes: frozenset[str]
    context: Any


# What a group wants done, in this order.
Effect = Answer | Store | Become | Resolve | Report


class Commit(NamedTuple):
    """Who wants to commit offsets of which partitions. `generation` is a member epoch in groups
    that have such. A client of an older version than `version` says may not know those."""

    member_id: str
    instance_id: str | None
    generation: int
    partitions: Collection[TopicPartition]
    version: int
    is_transactional: bool = False


class Group(Protocol):
    """One group. A call takes `now`, in milliseconds of a clock that only goes forward, and returns
    the effects that the caller has to see to, in order."""

    @property
    def id(self) -> str: ...

    @property
    def due_at(self) -> int:
        """When `expire` wants to be called next."""
        ...

    @property
    def members(self) -> Sized:
        """Whoever is in the group."""
        ...

    @property
    def kind(self) -> str:
        """Kafka's name for this kind of group."""
        ...

    @property
    def state_name(self) -> str:
        """Kafka's name for the state that the group is in."""
        ...

    @property
    def protocol_type(self) -> str | None:
        """The type of its members, for example consumer; None if unknown."""
        ...

    @property
    def is_empty(self) -> bool:
        """Whether the group has no members, and is not dead."""
        ...

    @property
    def is_dead(self) -> bool:
        """Whether the group has ended here: it was deleted, or another broker coordinates it."""
        ...

    @property
    def is_forgettable(self) -> bool:
        """Whether nobody is in the group or on the way into it."""
        ...

    @property
    def expires(self) -> bool:
        """Whether it is deleted by itself once it has neither members nor offsets."""
        ...

    def is_subscribed_to(self, topic: str) -> bool:
        """Return whether a member may want the topic."""
        ...

    def keeps_offsets_of(self, topic: str) -> bool:
        """Return whether offsets of the topic are kept however old they are (KIP-211)."""
        ...

    def check_commit(self, commit: Commit, now: int) -> Error:
        """Say whether offsets may be committed so."""
        ...

    def check_fetch(self, member_id: str | None, epoch: int) -> Error:
        """Say whether somebody may read offsets who says to be this member (KIP-848)."""
        ...

    def check_delete(self) -> Error:
        """Say whether the group can be deleted."""
        ...

    def check_delete_offsets(self) -> Error:
        """Say whether offsets can be deleted, of topics that nobody is subscribed to."""
        ...

    def replay(self, key: bytes, value: bytes) -> None:
        """Take in a record of this kind of group from the log, in any order; InvalidRecord if it is
        none."""
        ...

    def resume(self, now: int) -> list[Effect]:
        """Go on from what was replayed, which is all there is."""
        ...

    def tombstones(self) -> list[KeyValue]:
        """Return what deletes all records of the group but its offsets."""
        ...

    def stored(self, store: Any, error: Error, now: int) -> list[Effect]:
        """Go on after a Store of its own; by now the group may be somewhere else."""
        ...

    def expire(self, now: int) -> list[Effect]:
        """Do what is due by `now`, and find out what is due next."""
        ...

    def die(self, error: Error) -> list[Effect]:
        """End here: everyone who waits is told so."""
        ...
