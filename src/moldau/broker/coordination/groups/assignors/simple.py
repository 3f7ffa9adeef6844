"""The simple assignor of share groups: a partition may go to several members, as members may
outnumber partitions.

Every partition is shared by as many members as it takes for each of them to have something:
members / partitions, rounded up. Balance comes first, then stickiness: no two members that read the
same topics differ by more than one partition. Where members read different topics, each topic is
divided for itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import ceil
from uuid import UUID

from moldau.broker.coordination.groups.assignors.assignor import Assignment, MemberSpec
from moldau.broker.coordination.groups.assignors.hash_order import hash_order, string_hash

_Place = tuple[UUID, int]


class SimpleAssignor:
    """Kafka's only assignor of share groups."""

    name = "simple"

    def assign(
        self, members: Mapping[str, MemberSpec], sizes: Mapping[UUID, int]
    ) -> dict[str, Assignment]:
        ordered = hash_order(members, string_hash)
        found: dict[str, dict[UUID, set[int]]] = {id: {} for id in ordered}
        subscriptions = {members[id].topics for id in ordered}
        topics = sorted(sizes, key=str)
        problems = [topics] if len(subscriptions) == 1 else [[topic] for topic in topics]
        for some in problems:
            readers = [id for id in ordered if any(topic in members[id].topics for topic in some)]
            places = [(topic, index) for topic in some for index in range(sizes[topic])]
            if readers and places:
                for id, (topic, index) in _divide(readers, places, members):
                    found[id].setdefault(topic, set()).add(index)
        return {
            id: {topic: frozenset(indexes) for topic, indexes in topics_of.items()}
            for id, topics_of in found.items()
        }


def _divide(
    readers: Sequence[str], places: Sequence[_Place], members: Mapping[str, MemberSpec]
) -> list[tuple[str, _Place]]:
    """Divide partitions among members that read all of them."""
    sharing = ceil(len(readers) / len(places))
    each = sharing * len(places) / len(readers)
    room = {id: ceil(each * (n + 1)) - ceil(each * n) for n, id in enumerate(readers)}
    shared: dict[_Place, list[str]] = {place: [] for place in places}
    given: list[tuple[str, _Place]] = []

    def give(id: str, place: _Place) -> None:
        shared[place].append(id)
        room[id] -= 1
        given.append((id, place))

    for id in readers:
        for topic, indexes in members[id].assigned.items():
            for place in ((topic, index) for index in sorted(indexes)):
                if room[id] > 0 and len(shared.get(place, readers)) < sharing:
                    give(id, place)
    # Those that nobody has come first.
    for place in sorted(places, key=lambda place: len(shared[place])):
        for id in readers:
            if len(shared[place]) >= sharing:
                break
            if room[id] > 0 and id not in shared[place]:
                give(id, place)
    for place in places:
        if not shared[place]:
            give(max(readers, key=lambda id: room[id]), place)
    return given
