"""The roster: the members of a group and what they have in common."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from moldau.broker.coordination.groups.classic.member import Member
from moldau.broker.coordination.groups.classic.messages import Join, Protocols
from moldau.broker.coordination.groups.classic.subscription import CONSUMER, subscribed_topics
from moldau.wire.errors import Error


class Roster:
    """Members by id, in the order they came; static ones also by their instance id.

    One of them is the leader, while there are any. They have a type in common, and a protocol, once
    it has been chosen.
    """

    __slots__ = ("_support", "by_instance", "leader", "members", "protocol", "protocol_type")

    def __init__(self) -> None:
        self.members: dict[str, Member] = {}
        self.by_instance: dict[str, str] = {}
        self.leader: str | None = None
        self.protocol_type: str | None = None
        self.protocol: str | None = None
        # How many members support a protocol.
        self._support: Counter[str] = Counter()

    def enter(self, member: Member) -> None:
        self.members[member.id] = member
        if member.instance_id is not None:
            self.by_instance[member.instance_id] = member.id
        self._support.update(_names(member.protocols))
        if self.leader is None:
            self.leader = member.id

    def remove(self, member_id: str) -> None:
        member = self.members.pop(member_id)
        self._forget_protocols(member)
        if member.instance_id is not None:
            del self.by_instance[member.instance_id]
        if self.leader == member_id:
            self.leader = next(iter(self.members), None)

    def rename(self, member: Member, new_id: str) -> None:
        del self.members[member.id]
        if self.leader == member.id:
            self.leader = new_id
        member.id = new_id
        self.members[new_id] = member
        if member.instance_id is not None:
            self.by_instance[member.instance_id] = new_id

    def find(self, member_id: str, instance_id: str | None) -> str:
        """Return the member id that is meant: whoever has no id is known by its instance id, or
        not."""
        if not member_id and instance_id is not None:
            return self.by_instance.get(instance_id, "")
        return member_id

    def check(self, member_id: str, instance_id: str | None) -> Error:
        """Say whether somebody is who it says it is; not if it restarted since (KIP-345)."""
        if instance_id is not None:
            known_id = self.by_instance.get(instance_id)
            if known_id is None:
                return Error.UNKNOWN_MEMBER_ID
            if known_id != member_id:
                return Error.FENCED_INSTANCE_ID
        return Error.NONE if member_id in self.members else Error.UNKNOWN_MEMBER_ID

    def update(self, member: Member, request: Join) -> None:
        """Take what a member says of itself as it joins again."""
        self.set_protocols(member, request.protocols)
        member.rebalance_timeout_ms = request.rebalance_timeout_ms
        member.session_timeout_ms = request.session_timeout_ms
        member.client_id = request.client_id
        member.client_host = request.client_host

    def set_protocols(self, member: Member, protocols: Protocols) -> None:
        self._forget_protocols(member)
        member.protocols = protocols
        self._support.update(_names(protocols))

    def supports(self, protocol_type: str, protocols: Protocols) -> bool:
        """Return whether somebody with these could be a member beside the others."""
        if not self.members:
            return bool(protocol_type and protocols)
        if protocol_type != self.protocol_type:
            return False
        everyone = len(self.members)
        return any(self._support.get(name, 0) == everyone for name, _ in protocols)

    def choose_protocol(self) -> str:
        """Find the protocol with the most votes among those that every member supports."""
        candidates = {name for name, count in self._support.items() if count == len(self.members)}
        votes = Counter(member.vote(candidates) for member in self.members.values())
        return votes.most_common(1)[0][0]

    @property
    def is_consumer(self) -> bool:
        return self.protocol_type == CONSUMER

    def subscribed_topics(self) -> frozenset[str] | None:
        """Return the topics that consumers want between them; None where one cannot be
        understood."""
        if not self.is_consumer:
            return None
        topics: set[str] = set()
        for member in self.members.values():
            wanted = subscribed_topics(member.metadata(self.protocol))
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
