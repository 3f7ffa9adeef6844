"""Ownership in a consumer group of KIP-848, as its members may believe in it.

A member has a partition from the answer that gives it until it gives it up itself, is refused, or
has not been heard for its session timeout; and one that it was told to give up no longer than its
rebalance timeout. Both count from when it sent the heartbeat, for the coordinator cannot have begun
earlier. At no instant two members believe to have the same partition; nobody commits offsets of one
that another has got since, in an epoch that is over for it; committed offsets never go back; in the
end everything is somebody's.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from tests.simulation.checks.history import Violation

# How long a request that was given up may still be on its way.
LATE_S = 20.0


@dataclass
class Claim:
    """A member that believes to have a partition, and for how long it may."""

    member: str
    since_s: float
    # The end of the session, and of the time to give the partition up, if it has been told to.
    session_s: float
    revoked_s: float = float("inf")
    # Until then a heartbeat that was given up before may arrive, and say that the member does not
    # have the partition. The protocol has nothing against that.
    doubtful_until_s: float = 0.0

    @property
    def until_s(self) -> float:
        return min(self.session_s, self.revoked_s)


@dataclass
class Ownership:
    """Who has which partition of a topic, and the offsets that were committed."""

    now_s: Callable[[], float]
    partitions: int
    claims: dict[int, dict[str, Claim]] = field(default_factory=dict)
    # Since when the last owner has had a partition.
    last: dict[int, Claim] = field(default_factory=dict)
    acknowledged: dict[int, int] = field(default_factory=dict)
    attempted: dict[int, int] = field(default_factory=dict)
    # Commits that nobody answered: they may come late, and go back behind others of their member.
    unanswered: dict[int, list[tuple[float, int]]] = field(default_factory=dict)

    def claim(
        self, partition: int, member: str, session_s: float, doubtful_until_s: float
    ) -> Claim:
        """A member was told that it has a partition."""
        now_s, claims = self.now_s(), self.claims.setdefault(partition, {})
        for other in claims.values():
            is_known = other.member != member and other.doubtful_until_s < now_s
            if is_known and other.until_s > now_s:
                raise Violation(
                    f"{member} was given partition {partition}, which {other.member} has had since "
                    f"{other.since_s:.3f} s, and has until {other.until_s:.3f} s"
                )
        claim = Claim(member, now_s, session_s, doubtful_until_s=doubtful_until_s)
        claims[member] = self.last[partition] = claim
        return claim

    def release(self, partition: int, member: str) -> None:
        self.claims.get(partition, {}).pop(member, None)

    def is_complete(self) -> bool:
        """Whether each partition has an owner now, and only one."""
        now_s = self.now_s()
        return all(
            sum(claim.until_s > now_s for claim in self.claims.get(partition, {}).values()) == 1
            for partition in range(self.partitions)
        )

    # Offsets

    def found(self, member: str, partition: int, least: int, offset: int) -> None:
        """A member was told what is committed; `least` was acknowledged before it asked."""
        most = self.attempted.get(partition, -1)
        for given_up_s, position in self.unanswered.get(partition, ()):
            if self.now_s() - given_up_s < LATE_S and position < least:
                least = position
                self.acknowledged[partition] = offset
        if not least <= offset <= most:
            raise Violation(
                f"{member} was told that partition {partition} is committed up to {offset}; "
                f"{least} was acknowledged, {most} asked for"
            )

    def committed(
        self, member: str, partition: int, position: int, epoch: int, before: int, sent_s: float
    ) -> None:
        """A commit that was sent then was taken; `before` was acknowledged by then."""
        if position < before:
            raise Violation(
                f"{member} could commit {position} of partition {partition} in epoch {epoch}, "
                f"after {before} was acknowledged"
            )
        last = self.last.get(partition)
        if last is not None and last.member != member and last.since_s < sent_s:
            raise Violation(
                f"{member} could commit {position} of partition {partition} in epoch {epoch} at "
                f"{sent_s:.3f} s, but {last.member} has had it since {last.since_s:.3f} s"
            )
        self.acknowledged[partition] = max(position, self.acknowledged.get(partition, -1))
