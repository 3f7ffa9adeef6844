"""The members of a group and what they have in common."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from moldau.broker.coordination.groups.classic.member import Member
from moldau.broker.coordination.groups.classic.messages import Protocols
from moldau.broker.coordination.groups.classic.subscription import subscribed_topics


class Roster:
    """Members by id, in the order they came; static ones also by their instance id."""

    __slots__ = ("_support", "by_instance", "members")

    def __init__(self) -> None:
        self.members: dict[str, Member] = {}
        self.by_instance: dict[str, str] = {}
        # How many members support a protocol.
        self._support: Counter[str] = Counter()

    def enter(self, member: Member) -> None:
        self.members[member.id] = member
        if member.instance_id is not None:
            self.by_instance[member.instance_id] = member.id
        self._support.update(_names(member.protocols))

    def remove(self, member_id: str) -> None:
        member = self.members.pop(member_id)
        self._forget_protocols(member)
        if member.instance_id is not None:
            del self.by_instance[member.instance_id]

    def rename(self, member: Member, new_id: str) -> None:
        del self.members[member.id]
        member.id = new_id
        self.members[new_id] = member
        if member.instance_id is not None:
            self.by_instance[member.instance_id] = new_id

    def set_protocols(self, member: Member, protocols: Protocols) -> None:
        self._forget_protocols(member)
        member.protocols = protocols
        self._support.update(_names(protocols))

    def agrees_on(self, protocols: Protocols) -> bool:
        """Whether every member supports one of these."""
        everyone = len(self.members)
        return any(self._support.get(name, 0) == everyone for name, _ in protocols)

    def choose_protocol(self) -> str:
        """The protocol with the most votes among those that every member supports."""
        candidates = {name for name, count in self._support.items() if count == len(self.members)}
        votes = Counter(member.vote(candidates) for member in self.members.values())
        return votes.most_common(1)[0][0]

    def subscribed_topics(self, protocol: str | None) -> frozenset[str] | None:
        """The topics that consumers want between them; None where one cannot be understood."""
        topics: set[str] = set()
        for member in self.members.values():
            wanted = subscribed_topics(member.metadata(protocol))
            if wanted is None:
                return None
            topics |= wanted
        return frozenset(topics)

    @property
    def rebalance_timeout_ms(self) -> int:
        """How long the slowest member may take to rejoin."""
        timeouts = (member.rebalance_timeout_ms for member in self.members.values())
        return max(0, max(timeouts, default=0))

    def _forget_protocols(self, member: Member) -> None:
        for name in _names(member.protocols):
            self._support[name] -= 1
            if not self._support[name]:
                del self._support[name]


def _names(protocols: Protocols) -> Iterable[str]:
    # A set, so that a name that a client gives twice counts once.
    return {name for name, _ in protocols}
