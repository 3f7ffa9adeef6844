"""Migration of a group that is in use, from the classic to the consumer protocol and back.

A consumer of the new protocol that joins a classic group makes it a consumer group, in which the
others keep their protocol and what they have: each generation is a member epoch there. When the
last one of the new protocol leaves, it is a classic group again, and those who are left rejoin.
"""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from moldau.broker.coordination.groups.assignors.assignor import Assignment
from moldau.broker.coordination.groups.classic.group import ClassicGroup
from moldau.broker.coordination.groups.classic.member import Member as ClassicMember
from moldau.broker.coordination.groups.consumer.embedded import (
    Partitions,
    read_assignment,
    read_subscription,
    write_assignment,
)
from moldau.broker.coordination.groups.consumer.messages import Limits, Refused
from moldau.broker.coordination.groups.consumer.parts import (
    ClassicMetadata,
    Current,
    GroupEpoch,
    Member,
    MemberState,
    Part,
    TargetEpoch,
)
from moldau.broker.coordination.groups.consumer.state import GroupState
from moldau.broker.coordination.groups.consumer.topics import Topics, metadata_hash
from moldau.broker.coordination.groups.group import Effect
from moldau.broker.coordination.records import InvalidRecord, KeyValue
from moldau.wire.errors import Error


def check_upgrade(classic: ClassicGroup, limits: Limits) -> None:
    """Refuse what keeps a classic group in use from becoming a consumer group."""
    if not limits.can_upgrade:
        reason = "online upgrade is disabled."
    elif not classic.roster.is_consumer:
        reason = "the group does not use the consumer embedded protocol."
    elif len(classic.members) > limits.max_size:
        reason = "the group size exceeds the consumer group maximum size."
    else:
        return
    raise Refused(
        Error.GROUP_ID_NOT_FOUND,
        f"Cannot upgrade classic group {classic.id} to consumer group because {reason}",
    )


def upgrade(state: GroupState, classic: ClassicGroup, topics: Topics) -> None:
    """Take the members of a classic group in, with what each has, into a group that is new."""
    generation = classic.generation
    taken: set[tuple[UUID, int]] = set()
    for id, each in classic.members.items():
        try:
            subscription = read_subscription(each.metadata(each.vote_for(classic.protocol)))
            # A rebalance that fails clears the assignments, but not what members still read.
            had = read_assignment(each.assignment) if each.assignment else subscription.owned
            assigned = ids_of(topics, had)
        except InvalidRecord:
            raise Refused(
                Error.GROUP_ID_NOT_FOUND,
                f"Cannot upgrade the classic group {classic.id} to consumer group because the "
                "embedded consumer protocol is malformed.",
            ) from None
        member = Member(
            each.instance_id,
            subscription.rack,
            each.client_id,
            each.client_host,
            subscription.topics,
            "",
            each.rebalance_timeout_ms,
            None,
            ClassicMetadata(each.session_timeout_ms, each.protocols),
        )
        # A leader among clients may have given a partition to two; here it has one owner.
        places = {(topic, each) for topic, has in assigned.items() for each in has} - taken
        taken |= places
        target: dict[UUID, frozenset[int]] = {}
        for topic, partition in places:
            target[topic] = target.get(topic, frozenset()) | {partition}
        owned = {topic: dict.fromkeys(has, generation) for topic, has in target.items()}
        state.put(Part.MEMBER, id, member)
        state.put(Part.TARGET, id, target)
        stable = Current(generation, generation, MemberState.STABLE, owned)
        state.put(Part.CURRENT, id, stable)
    found = metadata_hash(topics, state.topic_names)
    state.put(Part.EPOCH, "", GroupEpoch(generation, found))
    state.put(Part.TARGET_EPOCH, "", TargetEpoch(generation))


def downgraded(
    state: GroupState, classic: ClassicGroup, left: Sequence[str], topics: Topics, now: int
) -> tuple[KeyValue, list[Effect]]:
    """Give the members that are left, all of the classic protocol, to a classic group that is new.
    Return its record, and what it wants done: they are to rejoin."""
    members = []
    for id in left:
        member = state.members[id]
        assert member.classic is not None
        taken_over = ClassicMember(
            id,
            member.instance_id,
            member.client_id,
            member.client_host,
            member.rebalance_timeout_ms,
            member.classic.session_timeout_ms,
            member.classic.protocols,
        )
        taken_over.assignment = assignment_for(member.classic, names_of(topics, state.target(id)))
        members.append(taken_over)
    return classic.take_over(members, state.epoch.epoch, now)


def assignment_for(classic: ClassicMetadata, partitions: Partitions) -> bytes:
    """Write an assignment as a member of the classic protocol reads it."""
    try:
        version = read_subscription(classic.protocols[0][1]).version
    except (InvalidRecord, IndexError):
        version = 0
    return write_assignment(partitions, version)


def ids_of(topics: Topics, partitions: Partitions) -> Assignment:
    """Return partitions by the ids of their topics, of those that exist."""
    found = {}
    for name, has in partitions.items():
        topic = topics.get(name)
        if topic is not None:
            inside = frozenset(each for each in has if 0 <= each < topic.partitions)
            if inside:
                found[topic.id] = inside
    return found


def names_of(topics: Topics, assignment: Assignment) -> Partitions:
    """Return partitions by the names of their topics, of those that exist."""
    named = ((topics.name_of(topic), has) for topic, has in assignment.items())
    return {name: frozenset(has) for name, has in named if name is not None}
