"""Share groups: who is in one, and from which partitions each member fetches.

Nothing has to be handed over: several members may fetch from a partition, and records are locked
one by one. So a member has its new assignment as soon as it asks.

    epoch           goes up
    group epoch     when members come, go or read other topics, or when those topics change
    target epoch    to the group epoch, when everybody's target is computed, at once
    member epoch    to the target epoch, when the member's next heartbeat brings it its target

    state    is so
    Empty    nobody is in the group
    Stable   somebody is
    Dead     the group is gone, or coordinated elsewhere

What a member is told was written first. The machine has no I/O and no clock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from uuid import UUID
from zlib import crc32

from msgspec.structs import replace

from moldau.broker.coordination.deadlines import NEVER
from moldau.broker.coordination.groups.assignors.assignor import NOTHING, MemberSpec
from moldau.broker.coordination.groups.assignors.simple import SimpleAssignor
from moldau.broker.coordination.groups.group import SHARE, Answer, Commit, Effect, Store, Ticket
from moldau.broker.coordination.groups.report import Cause, Reasons, Rebalanced
from moldau.broker.coordination.groups.share import records
from moldau.broker.coordination.groups.share.messages import (
    JOINS,
    LEAVES,
    Heard,
    Heartbeat,
    Refused,
    ShareLimits,
    Topics,
)
from moldau.broker.coordination.groups.share.records import (
    Current,
    KnownTopic,
    MemberMetadata,
    Part,
    part_key,
)
from moldau.broker.coordination.groups.share.state import State
from moldau.broker.coordination.records import KeyValue
from moldau.wire.errors import Error

_NOBODY = Current(0, 0, NOTHING)
ASSIGNOR = SimpleAssignor()
# A member that could not be removed, for want of replicas, is tried again after this.
_AGAIN_MS = 1_000


class StoreState(Store):
    """A state of a group that has to be written before anybody is told."""

    __slots__ = ("_before", "_group", "_state", "heard", "ticket")

    def __init__(
        self, group: ShareGroup, before: State, ticket: Ticket | None, heard: Heard | None
    ) -> None:
        self._group = group
        self._before = before
        self._state = group.state
        self.ticket = ticket
        self.heard = heard

    @property
    def leaves_empty(self) -> bool:
        return not self._state.members

    def records(self, group_id: str, now_ms: int) -> list[KeyValue]:
        return self._state.records_since(self._before, group_id, now_ms)

    def take_back(self) -> None:
        self._group.state = self._before


class ShareGroup:
    """One share group; see `moldau.broker.coordination.groups.group.Group`."""

    kind = SHARE
    # How far it has come is kept elsewhere, and never expires.
    expires = False
    protocol_type = "share"

    __slots__ = (
        "_deadlines", "_is_dead", "_limits", "_seen", "_topics", "id", "is_closed", "state",
    )  # fmt: skip

    def __init__(self, id: str, topics: Topics, limits: Callable[[], ShareLimits]) -> None:
        self.id = id
        self.state = State()
        self._topics = topics
        self._limits = limits
        self._is_dead = False
        self.is_closed = False
        # When each member is gone if it is not heard of.
        self._deadlines: dict[str, int] = {}
        # The version of the topics that the epoch takes account of.
        self._seen = -1

    # What the coordinator asks of any group

    @property
    def members(self) -> dict[str, MemberMetadata]:
        return self.state.members

    @property
    def due_at(self) -> int:
        return min(self._deadlines.values(), default=NEVER)

    @property
    def state_name(self) -> str:
        return "Dead" if self._is_dead else "Stable" if self.state.members else "Empty"

    @property
    def is_empty(self) -> bool:
        return not self._is_dead and not self.state.members

    @property
    def is_dead(self) -> bool:
        return self._is_dead

    @property
    def is_forgettable(self) -> bool:
        return not self.state.members

    def is_subscribed_to(self, topic: str) -> bool:
        return any(topic in member.topics for member in self.state.members.values())

    def keeps_offsets_of(self, topic: str) -> bool:
        return True

    def check_commit(self, commit: Commit, now: int) -> Error:
        """Refuse: members of share groups acknowledge, and commit no offsets."""
        return Error.GROUP_ID_NOT_FOUND

    def check_fetch(self, member_id: str | None, epoch: int) -> Error:
        return Error.GROUP_ID_NOT_FOUND

    def check_delete(self) -> Error:
        if self._is_dead:
            return Error.GROUP_ID_NOT_FOUND
        return Error.NON_EMPTY_GROUP if self.state.members else Error.NONE

    def check_delete_offsets(self) -> Error:
        return Error.GROUP_ID_NOT_FOUND

    def replay(self, key: bytes, value: bytes) -> None:
        found = records.read_part(key)
        if found is None:
            return
        part, id = found
        state = self.state
        if part is Part.MEMBER:
            state.members[id] = records.read_member(value)
        elif part is Part.TARGET_MEMBER:
            state.targets[id] = records.read_target_member(value)
        elif part is Part.CURRENT_MEMBER:
            state.currents[id] = records.read_current(value)
        elif part is Part.GROUP:
            epoch, metadata_hash = records.read_group(value)
            self.state = replace(state, epoch=epoch, metadata_hash=metadata_hash)
        elif part is Part.TARGET:
            self.state = replace(state, target_epoch=records.read_target(value))
        else:
            self.state = replace(state, known=records.read_states(value))

    def resume(self, now: int) -> list[Effect]:
        timeout_ms = self._limits().session_timeout_ms
        self._deadlines = dict.fromkeys(self.state.members, now + timeout_ms)
        return []

    def tombstones(self) -> list[KeyValue]:
        gone = State().records_since(self.state, self.id, 0)
        parts = [part_key(part, self.id) for part in (Part.GROUP, Part.TARGET, Part.STATES)]
        written = {key for key, _ in gone if key not in parts}
        return [(key, None) for key in [*written, *parts]]

    def stored(self, store: StoreState, error: Error, now: int) -> list[Effect]:
        if error and not self._is_dead:
            for id in self.state.members.keys() - self._deadlines.keys():
                self._deadlines[id] = now + _AGAIN_MS
        if store.ticket is None:
            return []
        return [Answer(store.ticket, Heard(error) if error else store.heard)]

    def expire(self, now: int) -> list[Effect]:
        silent = [id for id, at in self._deadlines.items() if at <= now]
        return self._remove(silent, Cause.SILENT, now)

    def die(self, error: Error) -> list[Effect]:
        self._is_dead = True
        self._deadlines.clear()
        return []

    # What members say

    def heartbeat(self, request: Heartbeat, ticket: Ticket, now: int) -> list[Effect]:
        """Hear from a member. Refused if it may not go on; nothing has changed then."""
        id = request.member_id
        if request.epoch == LEAVES:
            self._check_member(id)
            heard = Heard(Error.NONE, None, id, LEAVES)
            return self._remove([id], Cause.LEFT, now, ticket, heard)
        limits = self._limits()
        known = self.state.members.get(id)
        if request.epoch == JOINS:
            if self.is_closed:
                raise Refused(
                    Error.COORDINATOR_NOT_AVAILABLE,
                    "The offsets of the share group are being deleted or altered.",
                )
            if known is None and len(self.state.members) >= limits.max_size:
                raise Refused(
                    Error.GROUP_MAX_SIZE_REACHED,
                    f"The share group has reached its maximum capacity of {limits.max_size} "
                    "members.",
                )
        else:
            self._check_epoch(id, request.epoch)
        before = self.state
        member = _said(known, request)
        cause = None
        if known is None:
            cause = Cause.JOINED
        elif set(member.topics) != set(known.topics):
            cause = Cause.RESUBSCRIBED
        if member != known:
            self.state = replace(before, members={**before.members, id: member})
        self._catch_up(cause is not None)
        effects: list[Effect] = []
        if self.state.epoch != before.epoch:
            effects.append(self._rebalanced(cause or Cause.TOPICS_CHANGED, [id], now))
        current = before.currents.get(id, _NOBODY)
        target = self.state.targets.get(id, NOTHING)
        epoch = self.state.target_epoch
        if current.epoch != epoch or current.assigned != target:
            new = Current(epoch, current.epoch, target)
            self.state = replace(self.state, currents={**self.state.currents, id: new})
        self._deadlines[id] = now + limits.session_timeout_ms
        # Whoever is behind missed an answer, and perhaps an assignment.
        is_news = request.epoch != epoch or current.assigned != target
        heard = Heard(
            Error.NONE, None, id, epoch, limits.heartbeat_interval_ms, target if is_news else None
        )
        if self.state == before:
            return [Answer(ticket, heard)]
        return [StoreState(self, before, ticket, heard), *effects]

    def _check_member(self, id: str) -> None:
        if id not in self.state.members:
            raise Refused(
                Error.UNKNOWN_MEMBER_ID, f"Member {id} is not a member of group {self.id}."
            )

    def _check_epoch(self, id: str, epoch: int) -> None:
        self._check_member(id)
        current = self.state.currents.get(id, _NOBODY)
        if epoch > current.epoch:
            kind = "greater"
        elif epoch < current.epoch and epoch != current.previous_epoch:
            kind = "smaller"
        else:
            return
        raise Refused(
            Error.FENCED_MEMBER_EPOCH,
            f"The share group member has a {kind} member epoch ({epoch}) than the one known by the "
            f"group coordinator ({current.epoch}). The member must abandon all its partitions and "
            "rejoin.",
        )

    def _remove(
        self,
        ids: Sequence[str],
        cause: Cause,
        now: int,
        ticket: Ticket | None = None,
        heard: Heard | None = None,
    ) -> list[Effect]:
        before = self.state
        for id in ids:
            self._deadlines.pop(id, None)
        gone = [id for id in ids if id in before.members]
        if not gone:
            return []
        self.state = replace(
            before,
            members=_without(before.members, gone),
            targets=_without(before.targets, gone),
            currents=_without(before.currents, gone),
        )
        self._catch_up(True)
        return [
            StoreState(self, before, ticket, heard),
            self._rebalanced(cause, gone, now),
        ]

    @contextmanager
    def closed(self) -> Iterator[None]:
        """Let nobody join while what is written of its partitions is deleted or set anew: a member
        would go on in a group that has lost its position."""
        self.is_closed = True
        try:
            yield
        finally:
            self.is_closed = False

    def bump(self) -> tuple[int, StoreState]:
        """Raise the group epoch, for the states of a group whose offsets are set anew."""
        before = self.state
        self.state = replace(before, epoch=before.epoch + 1, target_epoch=before.epoch + 1)
        return self.state.epoch, StoreState(self, before, None, None)

    def know(self, known: dict[UUID, KnownTopic]) -> StoreState:
        """Take note of the topics whose partitions have states."""
        before = self.state
        self.state = replace(before, known=known)
        return StoreState(self, before, None, None)

    # Assigning

    def _catch_up(self, has_changed: bool) -> None:
        """Raise the group epoch if something has changed, and assign anew."""
        version = self._topics.version
        if not has_changed and version == self._seen:
            return
        state = self.state
        names = sorted({name for member in state.members.values() for name in member.topics})
        found = {name: topic for name in names if (topic := self._topics.get(name)) is not None}
        metadata_hash = crc32(repr(sorted(found.items())).encode()) if found else 0
        self._seen = version
        if not has_changed and metadata_hash == state.metadata_hash:
            return
        sizes = dict(found.values())
        specs = {
            id: MemberSpec(
                frozenset(found[name][0] for name in member.topics if name in found),
                state.targets.get(id, NOTHING),
            )
            for id, member in state.members.items()
        }
        targets = ASSIGNOR.assign(specs, sizes) if specs else {}
        known = dict(state.known)
        for name, (id, partitions) in found.items():
            known[id] = KnownTopic(name, frozenset(range(partitions)))
        self.state = replace(
            state,
            epoch=state.epoch + 1,
            metadata_hash=metadata_hash,
            target_epoch=state.epoch + 1,
            targets=targets,
            known=known,
        )

    def _rebalanced(self, cause: Cause, members: Iterable[str], now: int) -> Rebalanced:
        reasons = Reasons(now)
        for id in members:
            reasons.add(cause, id)
        return Rebalanced(
            self.id, self.state.epoch, len(self.state.members), ASSIGNOR.name, None, 0, reasons
        )


def _said(known: MemberMetadata | None, request: Heartbeat) -> MemberMetadata:
    """Return what is known of a member by now."""
    topics = request.topics
    if topics is None:
        topics = known.topics if known is not None else ()
    rack = request.rack
    if rack is None and known is not None:
        rack = known.rack
    return MemberMetadata(rack, request.client_id, request.client_host, tuple(sorted(set(topics))))


def _without(values: dict, gone: Iterable[str]) -> dict:  # type: ignore[type-arg]
    return {id: value for id, value in values.items() if id not in set(gone)}
