"""Checks: who may do what in a consumer group, and with which of Kafka's errors others may not."""

from __future__ import annotations

from moldau.broker.coordination.groups.assignors.assignor import Assignment
from moldau.broker.coordination.groups.consumer.messages import (
    JOINS,
    LEAVES_FOR_NOW,
    Heartbeat,
    Refused,
)
from moldau.broker.coordination.groups.consumer.parts import Owned
from moldau.broker.coordination.groups.consumer.state import GroupState
from moldau.broker.coordination.groups.consumer.topics import Topics
from moldau.broker.coordination.groups.group import Commit
from moldau.wire.errors import Error

# The first version of OffsetCommit that knows member epochs.
_MEMBER_EPOCHS = 9


def check_room(state: GroupState, member_id: str, max_size: int) -> None:
    if len(state.members) >= max_size and member_id not in state.members:
        raise Refused(
            Error.GROUP_MAX_SIZE_REACHED,
            f"The consumer group has reached its maximum capacity of {max_size} members.",
        )


def find_dynamic(group_id: str, state: GroupState, request: Heartbeat) -> str:
    """Return the id of who sent a heartbeat, if it may go on under its epoch."""
    id = request.member_id
    if request.epoch == JOINS:
        return id
    check_member(group_id, state, id)
    current, epoch = state.current(id), request.epoch
    if epoch == current.epoch:
        return id
    told = (
        f"epoch ({epoch}) than the one known by the group coordinator ({current.epoch}). The "
        "member must abandon all its partitions and rejoin."
    )
    if epoch > current.epoch:
        raise Refused(
            Error.FENCED_MEMBER_EPOCH, f"The consumer group member has a greater member {told}"
        )
    # The answer that brought it the current epoch may have been lost, if it has nothing else yet.
    is_behind = epoch == current.previous_epoch and _is_part_of(request.owned, current.assigned)
    if epoch < current.epoch and not is_behind:
        raise Refused(
            Error.FENCED_MEMBER_EPOCH, f"The consumer group member has a smaller member {told}"
        )
    return id


def check_member(group_id: str, state: GroupState, member_id: str) -> None:
    if member_id not in state.members:
        raise Refused(
            Error.UNKNOWN_MEMBER_ID, f"Member {member_id} is not a member of group {group_id}."
        )


def check_instance(member_id: str, instance_id: str, known_id: str | None) -> None:
    """Refuse whoever is not the static member that it says to be."""
    if known_id is None:
        raise Refused(Error.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown.")
    if known_id != member_id:
        raise Refused(
            Error.FENCED_INSTANCE_ID,
            f"Static member {member_id} with instance id {instance_id} was fenced by member "
            f"{known_id}.",
        )


def check_released(state: GroupState, known_id: str, member_id: str, instance_id: str) -> None:
    """Refuse a static member whose old self has not left; one of the classic protocol never
    does."""
    is_classic = state.members[known_id].classic is not None
    if not is_classic and state.current(known_id).epoch != LEAVES_FOR_NOW:
        raise Refused(
            Error.UNRELEASED_INSTANCE_ID,
            f"Static member {member_id} with instance id {instance_id} cannot join the group "
            f"because the instance id is owned by {known_id} member.",
        )


def find_leaving(group_id: str, state: GroupState, request: Heartbeat) -> str:
    if request.instance_id is None:
        check_member(group_id, state, request.member_id)
    else:
        known_id = state.instances.get(request.instance_id)
        check_instance(request.member_id, request.instance_id, known_id)
    return request.member_id


def check_commit(state: GroupState, topics: Topics, commit: Commit) -> Error:
    """Say whether offsets may be committed so: in the member's epoch, or in an earlier one for
    partitions that it has had since then (KIP-1251)."""
    generation = commit.generation
    if generation < 0 and not state.members:
        return Error.NONE
    if (
        commit.is_transactional
        and generation == -1
        and not commit.member_id
        and commit.instance_id is None
    ):
        return Error.NONE
    member = state.members.get(commit.member_id)
    if member is None:
        return Error.UNKNOWN_MEMBER_ID
    is_classic = member.classic is not None
    if not commit.is_transactional and not is_classic and commit.version < _MEMBER_EPOCHS:
        return Error.UNSUPPORTED_VERSION
    current = state.current(commit.member_id)
    if generation == current.epoch:
        return Error.NONE
    # The protocol of transactions knows no epochs of members: clients take them for a bug.
    has_epoch = not is_classic and not commit.is_transactional
    stale = Error.STALE_MEMBER_EPOCH if has_epoch else Error.ILLEGAL_GENERATION
    if generation > current.epoch:
        return stale
    for name, partition in commit.partitions:
        topic = topics.get(name)
        since = None
        if topic is not None:
            since = current.assigned.get(topic.id, {}).get(partition)
            if since is None:
                since = current.revoking.get(topic.id, {}).get(partition)
        if since is None or generation < since:
            return stale
    return Error.NONE


def check_fetch(state: GroupState, member_id: str | None, epoch: int) -> Error:
    if member_id is None and epoch < 0:
        return Error.NONE
    member = state.members.get(member_id or "")
    if member is None:
        return Error.UNKNOWN_MEMBER_ID
    if state.current(member_id or "").epoch == epoch:
        return Error.NONE
    return Error.STALE_MEMBER_EPOCH if member.classic is None else Error.ILLEGAL_GENERATION


def is_unfinished(state: GroupState, topics: Topics) -> bool:
    """Return whether the log ends in the middle of a change: a partition that members want is in
    nobody's target, although the target is that of the group epoch."""
    targets: dict[object, set[int]] = {}
    for target in state.targets.values():
        for topic_id, partitions in target.items():
            targets.setdefault(topic_id, set()).update(partitions)
    for name in state.topic_names:
        topic = topics.get(name)
        if topic is not None and len(targets.get(topic.id, ())) < topic.partitions:
            return True
    return any(id not in state.currents for id in state.members)


def _is_part_of(owned: Assignment | None, assigned: Owned) -> bool:
    if owned is None:
        return False
    return all(partitions <= assigned.get(topic, {}).keys() for topic, partitions in owned.items())
