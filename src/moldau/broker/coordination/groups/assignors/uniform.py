"""The uniform assignor: everyone gets as many partitions as everyone else, and keeps what it has.

Balance comes first, then stickiness: no two members that read the same topics differ by more than
one partition, and a partition moves only for the sake of that. Members with different subscriptions
are balanced by `heterogeneous`.
"""

from __future__ import annotations

from collections.abc import Mapping
from uuid import UUID

from moldau.broker.coordination.groups.assignors.assignor import Assignment, MemberSpec
from moldau.broker.coordination.groups.assignors.hash_order import (
    hash_order,
    string_hash,
    uuid_hash,
)
from moldau.broker.coordination.groups.assignors.heterogeneous import Balance
from moldau.broker.coordination.groups.assignors.partitions import changed, walk

_NONE: frozenset[int] = frozenset()
_TOO_MANY = 1 << 40


class UniformAssignor:
    """Kafka's default, with Kafka's results."""

    name = "uniform"

    def assign(
        self, members: Mapping[str, MemberSpec], sizes: Mapping[UUID, int]
    ) -> dict[str, Assignment]:
        subscriptions = {member.topics for member in members.values()}
        if not any(subscriptions):
            return {id: {} for id in members}
        if len(subscriptions) == 1:
            return _assign_alike(members, sizes)
        return Balance(members, sizes).assign()


def _assign_alike(
    members: Mapping[str, MemberSpec], sizes: Mapping[UUID, int]
) -> dict[str, Assignment]:
    """Assign where all read the same topics."""
    taken: dict[UUID, set[int]] = {topic: set() for topic in sizes}
    # To hash an id takes Python as long as all the rest, and mostly there is one object of each.
    known = {id(topic): partitions for topic, partitions in taken.items()}
    held: dict[str, int] = {}
    for name, member in members.items():
        number = 0
        for topic, partitions in member.assigned.items():
            of_topic = known.get(id(topic))
            if of_topic is None:
                of_topic = taken.get(topic)
            if of_topic is None:
                # Of a topic that is gone: more than anybody may keep.
                number += _TOO_MANY
            else:
                of_topic |= partitions
                number += len(partitions)
        held[name] = number
    free: list[tuple[UUID, int]] = []
    for topic in hash_order(sizes, uuid_hash):
        of_topic = taken[topic]
        if len(of_topic) < sizes[topic]:
            free += [(topic, each) for each in range(sizes[topic]) if each not in of_topic]
    least, more = divmod(sum(sizes.values()), len(members))
    kept_of: dict[str, dict[UUID, list[int]]] = {}
    hungry: list[tuple[str, int]] = []
    for place, name in enumerate(hash_order(members, string_hash)):
        has_more = more > 0
        quota = least + has_more
        if held[name] <= quota:
            # It keeps all of it, as most do.
            quota -= held[name]
        else:
            assigned = members[name].assigned
            kept: dict[UUID, list[int]] = {}
            for topic in hash_order(assigned, uuid_hash):
                if topic not in sizes:
                    continue
                ordered = walk(assigned[topic])
                if quota:
                    kept[topic] = ordered[:quota]
                free += [(topic, partition) for partition in ordered[quota:]]
                quota -= min(quota, len(ordered))
            kept_of[name] = kept
        if quota and has_more and len(members) - place > more:
            # Those who come later may have one too many already, and keep it.
            quota -= 1
            has_more = False
        if quota:
            hungry.append((name, quota))
        more -= has_more
    rest = iter(free)
    gained_of: dict[str, dict[UUID, list[int]]] = {}
    for name, quota in hungry:
        gained: dict[UUID, list[int]] = {}
        for _, (topic, partition) in zip(range(quota), rest, strict=False):
            gained.setdefault(topic, []).append(partition)
        if gained:
            gained_of[name] = gained
    found = {name: member.assigned for name, member in members.items()}
    for name in kept_of.keys() | gained_of.keys():
        found[name] = _combine(found[name], kept_of.get(name), gained_of.get(name, {}))
    return found


def _combine(
    before: Assignment, kept: Mapping[UUID, list[int]] | None, gained: Mapping[UUID, list[int]]
) -> Assignment:
    """Return a member's assignment; sets of partitions that did not change stay as they are.

    Without `kept` it keeps everything.
    """
    if kept is None:
        kept = {topic: walk(before[topic]) for topic in hash_order(before, uuid_hash)}
    found: dict[UUID, frozenset[int]] = {}
    for topic in (*kept, *(topic for topic in gained if topic not in kept)):
        had, has, gets = before.get(topic, _NONE), kept.get(topic, ()), gained.get(topic, ())
        is_same = len(has) == len(had) and not gets
        found[topic] = had if is_same else changed(had, has, gets)
    return found
