"""The range assignor: of every topic each member gets one run of partitions, in member order."""

from __future__ import annotations

from collections.abc import Mapping
from uuid import UUID

from moldau.broker.coordination.groups.assignors.assignor import Assignment, MemberSpec


class RangeAssignor:
    """Co-partitioned topics stay together: partition n of each goes to the same member, as long as
    members read the same topics. Static members come first, by their instance ids, so that a
    restart under another member id moves nothing."""

    name = "range"

    def assign(
        self, members: Mapping[str, MemberSpec], sizes: Mapping[UUID, int]
    ) -> dict[str, Assignment]:
        ordered = sorted(members, key=lambda id: _place(id, members[id]))
        found: dict[str, dict[UUID, frozenset[int]]] = {id: {} for id in members}
        for topic, size in sizes.items():
            readers = [id for id in ordered if topic in members[id].topics]
            start = 0
            for place, id in enumerate(readers):
                end = start + size // len(readers) + (place < size % len(readers))
                if end > start:
                    found[id][topic] = frozenset(range(start, end))
                start = end
        return {**found}


def _place(member_id: str, member: MemberSpec) -> tuple[bool, bytes]:
    name = member_id if member.instance_id is None else member.instance_id
    # Java compares strings by their UTF-16 code units.
    return member.instance_id is None, name.encode("utf-16-be", "surrogatepass")
