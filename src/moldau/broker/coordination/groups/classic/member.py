"""Members of a classic group."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from moldau.broker.coordination.groups.classic.messages import Join, Protocols
from moldau.broker.coordination.groups.records import MemberMetadata


class Member(msgspec.Struct, eq=False):
    """One member: what it told about itself, what it was assigned, until when it counts as alive.

    A member is new until its first generation: it does not know its id yet and cannot send
    heartbeats, so it has until `expires_at` to be still there, however long the others take.
    """

    id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocols: Protocols
    assignment: bytes = b""
    expires_at: int = 0
    is_new: bool = False

    @classmethod
    def new(cls, member_id: str, request: Join) -> Member:
        return cls(
            member_id,
            request.instance_id,
            request.client_id,
            request.client_host,
            request.rebalance_timeout_ms,
            request.session_timeout_ms,
            request.protocols,
            is_new=True,
        )

    @classmethod
    def stored(cls, metadata: MemberMetadata, protocol: str | None) -> Member:
        """Return the member that was written down, with the one protocol that is known of it."""
        return cls(
            metadata.member_id,
            metadata.instance_id,
            metadata.client_id,
            metadata.client_host,
            metadata.rebalance_timeout_ms,
            metadata.session_timeout_ms,
            ((protocol or "", metadata.subscription),),
            metadata.assignment,
        )

    def heard(self, now: int) -> None:
        """It lives; a new member cannot have sent this and keeps its longer deadline."""
        if not self.is_new:
            self.expires_at = now + self.session_timeout_ms

    def metadata(self, protocol: str | None) -> bytes:
        """Return the member's metadata for the protocol that the group chose."""
        for name, data in self.protocols:
            if name == protocol:
                return data
        return b""

    def vote_for(self, protocol: str | None) -> str:
        """Return the protocol that the group chose, or before it did the one that it likes best."""
        names = [name for name, _ in self.protocols]
        return protocol if protocol in names else names[0]

    def vote(self, candidates: Iterable[str]) -> str:
        """Return the one of the candidates that the member likes best."""
        return next(name for name, _ in self.protocols if name in candidates)

    def to_store(self, protocol: str | None, assignment: bytes) -> MemberMetadata:
        return MemberMetadata(
            self.id,
            self.instance_id,
            self.client_id,
            self.client_host,
            self.rebalance_timeout_ms,
            self.session_timeout_ms,
            self.metadata(protocol),
            assignment,
        )
