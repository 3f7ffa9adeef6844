"""The state machine of a consumer group: from what members want to what each of them has.

Three epochs follow each other, and none of them ever goes back:

    group epoch       goes up whenever what the assignment depends on changes: somebody joins,
                      leaves or is fenced, a subscription changes, a topic comes, grows or goes
    target's epoch    the group epoch that the target assignment was made for. The target says who
                      shall have what in the end; it is made anew when a heartbeat comes in after
                      the group epoch went up, but not more often than the assignment interval
    member epoch      the target's epoch that a member has come to. It moves there on its own, at
                      its heartbeats, and nobody waits for anybody but for a partition's last owner

A member is on its way from what it has to its target:

    state                  what it has                       what ends it
    Stable                 what its target says              the target has a later epoch
    UnrevokedPartitions    what it keeps; and what it is     its heartbeat says that it holds none
                           to give up, in the epoch before   of that any more; or it is fenced when
                                                             the rebalance timeout is over
    UnreleasedPartitions   what it may have so far; others   at its heartbeats it gets what is free
                           have not given up the rest yet    by then; Stable once that is all

So a member first gives up, then moves to the target's epoch, then gets what others gave up. What it
is giving up is its own until it says otherwise, and a partition is given to a member only if it is
nobody's: no partition has two owners, ever. A crash keeps that, for each step is written before
anybody is told.

The group is Empty without members, Assigning while its epoch is ahead of the target's, Reconciling
while a member is not Stable in the target's epoch, and else Stable.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from uuid import UUID

from moldau.broker.coordination.groups.assignors.assignor import (
    NOTHING,
    Assignment,
    Assignor,
    MemberSpec,
)
from moldau.broker.coordination.groups.consumer.parts import (
    STRANGER,
    Current,
    GroupEpoch,
    Member,
    MemberState,
    Owned,
    Part,
    ResolvedRegex,
    TargetEpoch,
)
from moldau.broker.coordination.groups.consumer.state import GroupState
from moldau.broker.coordination.groups.consumer.topics import Topics, metadata_hash

LEFT_FOR_NOW = -2

_NO_PARTITIONS: frozenset[int] = frozenset()


class GroupStatus(Enum):
    """The states of a group; the value is Kafka's name."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"
    DEAD = "Dead"


class UnknownState(Exception):
    """A member's state was written by a later version; it has to begin anew with nothing."""


class Machine:
    """The transitions. No I/O and no clock; what they change is in `state`, as parts to be written.

    `assignors` are those that the group can use by name, the default first.
    """

    __slots__ = ("_assignors", "_hashed", "_seen_topics", "_topics", "state")

    def __init__(self, topics: Topics, assignors: Callable[[], Mapping[str, Assignor]]) -> None:
        self.state = GroupState()
        self._topics = topics
        self._assignors = assignors
        # The version of the topics that the group epoch takes into account.
        self._seen_topics = (-1, 0)
        # The last hash of topics, with their version and names.
        self._hashed: tuple[int, set[str], int] = (-1, set(), 0)

    @property
    def status(self) -> GroupStatus:
        state = self.state
        if not state.members:
            return GroupStatus.EMPTY
        target_epoch = state.target_epoch.epoch
        if state.epoch.epoch > target_epoch:
            return GroupStatus.ASSIGNING
        if state.stable_in[target_epoch] == len(state.members):
            return GroupStatus.STABLE
        return GroupStatus.RECONCILING

    # What the assignment depends on

    def enroll(self, id: str, member: Member) -> bool:
        """Take in what a member says of itself; return whether the group epoch has to go up for
        it. A regular expression that is not looked up yet changes nothing so far."""
        state = self.state
        before = state.members.get(id, STRANGER)
        if id not in state.members or member != before:
            state.put(Part.MEMBER, id, member)
        matters = member.topics != before.topics
        if member.regex != before.regex:
            self._drop_unused(before.regex)
            matters |= member.regex in state.regexes if member.regex else bool(before.regex)
        return matters

    @property
    def is_up_to_date(self) -> bool:
        """Whether the group epoch takes the topics into account as they are now."""
        return self._seen_topics == (self._topics.version, self.state.taken_back)

    def catch_up(self, matters: bool) -> bool:
        """Let the group epoch go up if it has to, for what members said or what became of their
        topics; return whether it did."""
        state = self.state
        version = (self._topics.version, state.taken_back)
        if not matters and version == self._seen_topics:
            return False
        self._seen_topics = version
        found = self._hash_topics()
        if not matters and found == state.epoch.metadata_hash:
            return False
        state.put(Part.EPOCH, "", GroupEpoch(state.epoch.epoch + 1, found))
        return True

    def resolve(self, found: Mapping[str, ResolvedRegex]) -> bool:
        """Take in the topics that match regular expressions; return whether the group epoch went
        up for it."""
        state = self.state
        matters = False
        for regex, resolved in found.items():
            # By now nobody may want it any more.
            if regex in state.regex_users:
                known = state.regexes.get(regex)
                matters |= resolved.topics != (frozenset() if known is None else known.topics)
                state.put(Part.REGEX, regex, resolved)
        return self.catch_up(matters)

    def replace(self, old_id: str, new_id: str) -> None:
        """A static member comes back under another member id: it has what its old self had."""
        state = self.state
        member, target = state.members[old_id], state.target(old_id)
        current = state.current(old_id)._replace(epoch=0, previous_epoch=0)
        self._forget(old_id)
        state.put(Part.MEMBER, new_id, member)
        state.put(Part.TARGET, new_id, target)
        state.put(Part.CURRENT, new_id, current)

    def leave_for_now(self, id: str) -> None:
        """A static member stops and will be back: nobody gets what it has until its session ends,
        but what it was giving up is free."""
        current = self.state.current(id)
        self.state.put(Part.CURRENT, id, current._replace(epoch=LEFT_FOR_NOW, revoking={}))

    def fence(self, ids: Iterable[str]) -> None:
        """Members are gone: what they had is free."""
        state = self.state
        regexes = set()
        for id in ids:
            regexes.add(state.members[id].regex)
            self._forget(id)
        for regex in sorted(regexes):
            self._drop_unused(regex)
        state.put(Part.EPOCH, "", GroupEpoch(state.epoch.epoch + 1, self._hash_topics()))

    def _hash_topics(self) -> int:
        """Hash what the assignment depends on of the topics that members want."""
        version, names = self._topics.version, self.state.topic_names
        if self._hashed[:2] != (version, names):
            self._hashed = (version, names, metadata_hash(self._topics, names))
        return self._hashed[2]

    def _forget(self, id: str) -> None:
        for part in (Part.CURRENT, Part.TARGET, Part.MEMBER):
            self.state.put(part, id, None)

    def _drop_unused(self, regex: str) -> None:
        state = self.state
        if regex and regex not in state.regex_users and regex in state.regexes:
            state.put(Part.REGEX, regex, None)

    # The target

    @property
    def assignor(self) -> Assignor:
        """The one that most members ask for; the default if none does."""
        assignors = self._assignors()
        votes = self.state.assignor_votes
        named = [name for name in assignors if name in votes]
        chosen = max(named, key=lambda name: votes[name]) if named else next(iter(assignors))
        return assignors[chosen]

    def assign(self, interval_ms: int, now_ms: int) -> bool:
        """Make the target anew if the group epoch is ahead of it and the last time is long enough
        ago; return whether that was so."""
        state = self.state
        if state.epoch.epoch <= state.target_epoch.epoch or self.waits_ms(interval_ms, now_ms):
            return False
        sizes: dict[UUID, int] = {}
        members: dict[str, MemberSpec] = {}
        targets = state.targets
        # Mostly all want the same.
        subscribed: dict[tuple[frozenset[str], str], frozenset[UUID]] = {}
        names, regex, topics = frozenset[str](), "", frozenset[UUID]()
        for id, member in state.members.items():
            if member.topics != names or member.regex != regex:
                names, regex = wanted = member.topics, member.regex
                if wanted not in subscribed:
                    subscribed[wanted] = self._subscribed(member, sizes)
                topics = subscribed[wanted]
            before = targets.get(id, NOTHING)
            members[id] = MemberSpec(topics, before, member.instance_id, member.rack)
        found = self.assignor.assign(members, sizes) if members else {}
        for id in members:
            target, last = found.get(id, NOTHING), targets.get(id)
            if target is not last and (last is None or target != last):
                state.put(Part.TARGET, id, dict(target))
        state.put(Part.TARGET_EPOCH, "", TargetEpoch(state.epoch.epoch, now_ms))
        return True

    def waits_ms(self, interval_ms: int, now_ms: int) -> int:
        """Return for how long a target that is behind the group epoch stays so; 0 if none is, or
        if it may be made anew."""
        state = self.state
        made_at = state.target_epoch.assigned_at_ms
        is_behind = state.epoch.epoch > state.target_epoch.epoch
        # A clock that was set back must not keep the group waiting.
        if is_behind and made_at and made_at <= now_ms < made_at + interval_ms:
            return made_at + interval_ms - now_ms
        return 0

    def _subscribed(self, member: Member, sizes: dict[UUID, int]) -> frozenset[UUID]:
        """Return the topics that a member wants and that exist, and note their sizes."""
        found = set()
        for name in self.state.topics_of(member):
            topic = self._topics.get(name)
            if topic is not None:
                found.add(topic.id)
                sizes[topic.id] = topic.partitions
        return frozenset(found)

    # The way there

    def reconcile(self, id: str, owned: Assignment | None, *, resubscribed: bool = False) -> None:
        """Bring a member as near to its target as can be now. `owned` is what it says to have,
        None if it says nothing. UnknownState if it has to begin anew."""
        state = self.state
        current, target_epoch = state.current(id), state.target_epoch.epoch
        if not resubscribed and _is_reconciled(current, target_epoch):
            return
        subscribed = self._subscribed(state.members[id], {})
        if current.state is MemberState.STABLE and current.epoch == target_epoch:
            found = _without_unsubscribed(current, subscribed, owned)
        elif current.state is MemberState.UNREVOKED_PARTITIONS and _holds(current.revoking, owned):
            found = current
            if resubscribed:
                found = _without_unsubscribed(current, subscribed, owned)
        elif current.state is MemberState.UNKNOWN and (owned is None or owned):
            raise UnknownState
        else:
            found = self._next(id, current, subscribed, owned)
        if found != current:
            state.put(Part.CURRENT, id, found)

    def _next(
        self, id: str, current: Current, subscribed: frozenset[UUID], owned: Assignment | None
    ) -> Current:
        state = self.state
        target, target_epoch = state.target(id), state.target_epoch.epoch
        assigned: dict[UUID, dict[int, int]] = {}
        revoking: dict[UUID, dict[int, int]] = {}
        gained: list[tuple[UUID, int]] = []
        must_wait = False
        for topic in {*target, *current.assigned}:
            wanted = target.get(topic, _NO_PARTITIONS) if topic in subscribed else _NO_PARTITIONS
            has = current.assigned.get(topic, {})
            for partition, epoch in has.items():
                side = assigned if partition in wanted else revoking
                side.setdefault(topic, {})[partition] = epoch
            owners = state.owners.get(topic, {})
            for partition in wanted - has.keys():
                if partition in owners:
                    must_wait = True
                else:
                    gained.append((topic, partition))
        if revoking and _holds(revoking, owned):
            unrevoked = MemberState.UNREVOKED_PARTITIONS
            return Current(current.epoch, current.epoch, unrevoked, assigned, revoking)
        for topic, partition in gained:
            assigned.setdefault(topic, {})[partition] = target_epoch
        reached = MemberState.UNRELEASED_PARTITIONS if must_wait else MemberState.STABLE
        return Current(target_epoch, current.epoch, reached, assigned)

    def waits_for_others(self, id: str) -> bool:
        """Return whether a member lacks a partition of its target that somebody still has."""
        state = self.state
        current = state.current(id)
        return current.state is MemberState.UNRELEASED_PARTITIONS and any(
            state.owner(topic, partition) is not None
            for topic, partitions in state.target(id).items()
            for partition in partitions
            if partition not in current.assigned.get(topic, {})
        )


def _is_reconciled(current: Current, target_epoch: int) -> bool:
    return current.state is MemberState.STABLE and current.epoch == target_epoch


def _holds(revoking: Owned, owned: Assignment | None) -> bool:
    """Return whether a member may still hold what it is to give up: it says so, or nothing."""
    if owned is None:
        return True
    return any(
        not owned.get(topic, _NO_PARTITIONS).isdisjoint(revoking[topic]) for topic in revoking
    )


def _without_unsubscribed(
    current: Current, subscribed: frozenset[UUID], owned: Assignment | None
) -> Current:
    """Take away what a member does not want any more, without waiting for the next target."""
    assigned = {topic: has for topic, has in current.assigned.items() if topic in subscribed}
    if len(assigned) == len(current.assigned):
        return current
    revoking = {topic: dict(has) for topic, has in current.revoking.items()}
    for topic, has in current.assigned.items():
        if topic not in subscribed:
            revoking.setdefault(topic, {}).update(has)
    if _holds(revoking, owned):
        unrevoked = MemberState.UNREVOKED_PARTITIONS
        return Current(current.epoch, current.epoch, unrevoked, assigned, revoking)
    return current._replace(previous_epoch=current.epoch, assigned=assigned)
