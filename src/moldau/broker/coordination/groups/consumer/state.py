"""The state of a consumer group: the sum of its records, with the indexes that questions need."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple, TypeVar
from uuid import UUID

from moldau.broker.coordination.groups.assignors.assignor import NOTHING, Assignment
from moldau.broker.coordination.groups.consumer.parts import (
    Current,
    GroupEpoch,
    Member,
    MemberState,
    Owned,
    Part,
    ResolvedRegex,
    TargetEpoch,
    Value,
)

T = TypeVar("T")

_NOTHING_YET = Current()
# Ahead of the target's, so that whoever joins first gets an epoch, whatever it subscribes to.
_FIRST = GroupEpoch(1)


class Change(NamedTuple):
    """A part that is another from now on, and what it was."""

    part: Part
    name: str
    value: Value
    before: Value


class GroupState:
    """The parts of one group. Every change goes through `put`, whether it is decided here or read
    back from the log, so that a state can be read back from any number of its records, in any
    order.

    `owners` says who has a partition, or still has to give it up. Nobody else gets it until then.
    """

    __slots__ = (
        "assignor_votes",
        "changes",
        "currents",
        "epoch",
        "instances",
        "members",
        "owners",
        "regex_users",
        "regexes",
        "stable_in",
        "taken_back",
        "target_epoch",
        "targets",
        "topic_users",
    )

    def __init__(self) -> None:
        self.epoch = _FIRST
        self.target_epoch = TargetEpoch(0)
        self.members: dict[str, Member] = {}
        self.targets: dict[str, Assignment] = {}
        self.currents: dict[str, Current] = {}
        self.regexes: dict[str, ResolvedRegex] = {}
        # Indexes
        self.instances: dict[str, str] = {}
        self.owners: dict[UUID, dict[int, str]] = {}
        # How many members are Stable, by the epoch that they have come to.
        self.stable_in: Counter[int] = Counter()
        self.topic_users: Counter[str] = Counter()
        self.regex_users: Counter[str] = Counter()
        self.assignor_votes: Counter[str | None] = Counter()
        # What was put since it was last taken.
        self.changes: list[Change] = []
        # How often changes were taken back: whoever relies on one has to look again then.
        self.taken_back = 0

    def take_changes(self) -> list[Change]:
        changes, self.changes = self.changes, []
        return changes

    def take_back(self, changes: list[Change]) -> None:
        """Let it be as it was before the last changes."""
        self.taken_back += bool(changes)
        for part, name, _, before in reversed(changes):
            self._apply(part, name, before)

    def put(self, part: Part, name: str, value: Value) -> None:
        """Let a part be so from now on; None removes it."""
        before = self._apply(part, name, value)
        self.changes.append(Change(part, name, value, before))

    def _apply(self, part: Part, name: str, value: Value) -> Value:
        """Take a part in, and return what it was."""
        before: Value
        match part:
            case Part.EPOCH:
                before = self.epoch
                self.epoch = value if isinstance(value, GroupEpoch) else _FIRST
            case Part.TARGET_EPOCH:
                before = self.target_epoch
                self.target_epoch = value if isinstance(value, TargetEpoch) else TargetEpoch(0)
            case Part.MEMBER:
                before = self.members.get(name)
                self._index_member(name, before, value if isinstance(value, Member) else None)
            case Part.CURRENT:
                before = self.currents.get(name)
                self._index_current(name, before, value if isinstance(value, Current) else None)
            case Part.REGEX:
                before = self.regexes.pop(name, None)
                if isinstance(value, ResolvedRegex):
                    self.regexes[name] = value
            case Part.TARGET:
                before = self.targets.pop(name, None)
                if isinstance(value, dict):
                    self.targets[name] = value
        return before

    def _index_member(self, id: str, before: Member | None, after: Member | None) -> None:
        for member, by in ((before, -1), (after, 1)):
            if member is None:
                continue
            for topic in member.topics:
                _count(self.topic_users, topic, by)
            if member.regex:
                _count(self.regex_users, member.regex, by)
            _count(self.assignor_votes, member.assignor, by)
        instance_id = None if before is None else before.instance_id
        if instance_id is not None and self.instances.get(instance_id) == id:
            del self.instances[instance_id]
        if after is None:
            self.members.pop(id, None)
            return
        self.members[id] = after
        if after.instance_id is not None:
            self.instances[after.instance_id] = id

    def _index_current(self, id: str, before: Current | None, after: Current | None) -> None:
        for current, by in ((before, -1), (after, 1)):
            if current is not None and current.state is MemberState.STABLE:
                _count(self.stable_in, current.epoch, by)
        if before is not None:
            for topic, partition in _places(before):
                owners = self.owners.get(topic, {})
                if owners.get(partition) == id:
                    del owners[partition]
                    if not owners:
                        del self.owners[topic]
        if after is None:
            self.currents.pop(id, None)
            return
        self.currents[id] = after
        for topic, partition in _places(after):
            self.owners.setdefault(topic, {})[partition] = id

    # Questions

    def owner(self, topic: UUID, partition: int) -> str | None:
        return self.owners.get(topic, {}).get(partition)

    def target(self, member_id: str) -> Assignment:
        return self.targets.get(member_id, NOTHING)

    def current(self, member_id: str) -> Current:
        return self.currents.get(member_id, _NOTHING_YET)

    def topics_of(self, member: Member) -> frozenset[str]:
        """Return the names of the topics that a member wants: those that it named, and those that
        match its regular expression, as far as that was looked up."""
        resolved = self.regexes.get(member.regex) if member.regex else None
        return member.topics if resolved is None else member.topics | resolved.topics

    @property
    def topic_names(self) -> set[str]:
        """The names of the topics that any member wants."""
        names = set(self.topic_users)
        for regex in self.regex_users:
            if regex in self.regexes:
                names |= self.regexes[regex].topics
        return names

    def parts(self) -> Iterator[tuple[Part, str]]:
        """Go through all that there is a record of, as far as is known."""
        for part, held in (
            (Part.CURRENT, self.currents),
            (Part.TARGET, self.targets),
            (Part.MEMBER, self.members),
        ):
            for name in held:
                yield part, name
        yield Part.TARGET_EPOCH, ""
        for regex in self.regexes:
            yield Part.REGEX, regex
        yield Part.EPOCH, ""


def _places(current: Current) -> Iterator[tuple[UUID, int]]:
    owned: Owned
    for owned in (current.assigned, current.revoking):
        for topic, partitions in owned.items():
            for partition in partitions:
                yield topic, partition


def _count(counter: Counter[T], name: T, by: int) -> None:
    counter[name] += by
    if not counter[name]:
        del counter[name]
