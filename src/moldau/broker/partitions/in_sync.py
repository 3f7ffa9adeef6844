"""In-sync replicas: those of a partition that keep up, as its leader sees them. No I/O, no clock.

    isr        the in-sync replicas that the cluster has agreed on
    proposed   what this leader has asked the cluster to agree on instead, or None
    counted    isr and proposed together: the maximal in-sync set (KIP-497)

While a proposal is under way nobody here knows whether it has taken effect. A replica that is being
added may be electable already, and one that is being removed may still be. So both count, and a
record is committed (below the high watermark) only when every counted replica has it.

    event                 isr          proposed
    propose               -            what should be
    agreed(isr)           isr          None, if isr is news
    refused               -            None
    (no answer)           -            kept: it may have happened

A follower is out of sync when it has not had everything for `lag_s` and does not have it now. It
comes back when it has reached the high watermark and the beginning of the leader's epoch: then it
has every committed record, and none that contradicts the leader's. Below the minimum, where the
high watermark stands still, it must have had everything as well.

A follower outside of the set that keeps up is waited for as well. Otherwise a leader alone under
load, whose high watermark is its log's end, would outrun it for ever.

While fewer are in sync than the minimum, nothing more is committed (KIP-966). Whoever left in that
time is in `elr` and may be elected, since it has all that is committed. So nothing is committed as
long as anybody is there, even with enough in sync: the cluster first has to agree that nobody is.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Iterable

NEVER = -math.inf
NOTHING = -1


class Follower:
    """A follower as the leader knows it: what it asked for last, and when it had everything.

    `epoch` is that of the registration under which it fetches.
    """

    __slots__ = ("_goal", "_goal_set_at", "caught_up_at", "epoch", "log_end", "log_start")

    def __init__(self) -> None:
        self.reset(NEVER)

    def reset(self, caught_up_at: float) -> None:
        """Nothing is known of it; give it the benefit of the doubt since `caught_up_at`."""
        self.log_end = self.log_start = NOTHING
        self.epoch = -1
        self.caught_up_at = caught_up_at
        self._goal = NOTHING
        self._goal_set_at = NEVER

    def fetched(self, log_end: int, log_start: int, epoch: int, leader_end: int, at: float) -> None:
        """It asked for `log_end`, so it has all that lies before, when the leader had `leader_end`.

        A follower of a busy leader never sees the end itself. So the end at some fetch is kept as
        its goal: when it gets there, in however many steps, it had everything at that fetch.
        """
        if log_end >= leader_end:
            self.had_everything(at)
        elif log_end >= self._goal != NOTHING:
            self.had_everything(self._goal_set_at)
        if log_end >= self._goal:
            self._goal = leader_end
            self._goal_set_at = at
        self.log_end = log_end
        self.log_start = log_start
        self.epoch = epoch

    def had_everything(self, at: float) -> None:
        if at > self.caught_up_at:
            self.caught_up_at = at

    def keeps_up(self, leader_end: int, now: float, lag_s: float) -> bool:
        return self.log_end >= leader_end or now - self.caught_up_at <= lag_s


class InSync:
    """The in-sync set of one partition during one leader epoch."""

    __slots__ = ("_counted", "_me", "elr", "epoch_start", "followers", "isr", "may_commit",
                 "minimum", "proposed", "replicas")  # fmt: skip

    def __init__(
        self,
        me: int,
        replicas: tuple[int, ...],
        isr: tuple[int, ...],
        epoch_start: int,
        now: float,
        elr: tuple[int, ...] = (),
        minimum: int = 1,
    ) -> None:
        self._me = me
        self.epoch_start = epoch_start
        self.replicas = replicas
        self.isr = isr
        self.elr = elr
        self.minimum = minimum
        self.may_commit = True
        self.proposed: tuple[int, ...] | None = None
        self.followers = {replica: Follower() for replica in replicas if replica != me}
        for member, follower in self.followers.items():
            if member in isr:
                follower.caught_up_at = now
        self._counted: list[Follower] = []
        self._count()

    def agreed(
        self,
        replicas: tuple[int, ...],
        isr: tuple[int, ...],
        elr: tuple[int, ...] = (),
        minimum: int = 1,
    ) -> list[int]:
        """Take the cluster's word on the partition; return who was put out by somebody else.

        Those may be about to come back with less than they had: nothing is known of them.
        """
        self.minimum = minimum
        if replicas == self.replicas and isr == self.isr and elr == self.elr:
            self._count()
            return []
        out = set(self.isr) - set(isr) - {self._me}
        if self.proposed is not None:
            out &= set(self.proposed)
        self.replicas, self.isr, self.elr, self.proposed = replicas, isr, elr, None
        known = self.followers
        self.followers = {
            replica: known.get(replica) or Follower() for replica in replicas if replica != self._me
        }
        lost = [replica for replica in out if replica in self.followers]
        for replica in lost:
            self.followers[replica].reset(NEVER)
        self._count()
        return lost

    def gone(self, live: Container[int]) -> list[int]:
        """Only these are registered: nobody outside of the set is waited for that is not.

        Answers of whom nothing is known any more. One may be back already, and have said where it
        is before word of its registration came.
        """
        lost = []
        for replica, follower in self.followers.items():
            if replica not in self.isr and replica not in live:
                if follower.log_end != NOTHING:
                    lost.append(replica)
                follower.reset(NEVER)
        return lost

    def refused(self) -> None:
        """The proposal has certainly not taken effect and never will."""
        self.proposed = None
        self._count()

    def propose(
        self,
        leader_end: int,
        high_watermark: int,
        now: float,
        lag_s: float,
        is_eligible: Callable[[int], bool],
    ) -> tuple[int, ...] | None:
        """Return the in-sync set that should apply from now on; None if nothing has to change.

        Also None while an earlier proposal is under way.
        """
        if self.proposed is not None:
            return None
        wanted = tuple(
            replica
            for replica in self.replicas
            if replica == self._me
            or (
                self.followers[replica].keeps_up(leader_end, now, lag_s)
                if replica in self.isr
                else self._joins(replica, leader_end, high_watermark, now, lag_s)
                and is_eligible(replica)
            )
        )
        if set(wanted) == set(self.isr):
            if not self._is_past_elr:
                return None
            wanted = self.isr
        self.proposed = wanted
        self._count()
        return wanted

    def is_right(self, leader_end: int, high_watermark: int, now: float, lag_s: float) -> bool:
        """Return whether nothing is to be proposed, or it has been already."""
        if self.proposed is not None:
            return True
        if self._is_past_elr:
            return False
        for replica, follower in self.followers.items():
            if replica in self.isr:
                if not follower.keeps_up(leader_end, now, lag_s):
                    return False
            elif self._joins(replica, leader_end, high_watermark, now, lag_s):
                return False
        return True

    def _joins(
        self, replica: int, leader_end: int, high_watermark: int, now: float, lag_s: float
    ) -> bool:
        """Return whether a replica may join and would not be put out again at once: that a high
        watermark has been reached which stands still says nothing."""
        return self.may_join(replica, high_watermark) and (
            self.may_commit or self.followers[replica].keeps_up(leader_end, now, lag_s)
        )

    def may_join(self, replica: int, high_watermark: int) -> bool:
        """Return whether a replica that is not in the set has got what it takes to be."""
        if replica in self.isr or replica not in self.followers:
            return False
        log_end = self.followers[replica].log_end
        return log_end >= high_watermark and log_end >= self.epoch_start

    def committed(self, own_end: int, leader_end: int, now: float, lag_s: float) -> int:
        """Return the offset that every counted replica has reached, `own_end` being the leader's
        own."""
        least = own_end
        for follower in self._counted:
            if follower.log_end < least:
                least = follower.log_end
        if len(self._counted) < len(self.followers):
            for follower in self.followers.values():
                if (
                    NOTHING < follower.log_end < least
                    and follower not in self._counted
                    and follower.keeps_up(leader_end, now, lag_s)
                ):
                    least = follower.log_end
        return least

    def low_watermark(self, own_start: int, live: Iterable[int]) -> int:
        """Return the offset before which no live replica holds anything any more."""
        starts = [self.followers[each].log_start for each in live if each in self.followers]
        return min([own_start, *starts])

    @property
    def _is_past_elr(self) -> bool:
        """Whether enough are in sync, and nobody needs to be eligible besides them."""
        return bool(self.elr) and len(self.isr) >= self.minimum

    def _count(self) -> None:
        self.may_commit = len(self.isr) >= self.minimum and not self.elr
        members = {*self.isr, *(self.proposed or ())}
        self._counted = [
            follower for replica, follower in self.followers.items() if replica in members
        ]
