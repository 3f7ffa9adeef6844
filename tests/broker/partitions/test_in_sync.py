"""The in-sync set, on values, and against a cluster that decides behind the leader's back."""

from __future__ import annotations

from functools import partial

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from moldau.broker.partitions.in_sync import InSync

LAG_S = 10.0


def anyone(replica: int) -> bool:
    return True


def in_sync(isr: tuple[int, ...] = (0, 1, 2), epoch_start: int = 0) -> InSync:
    return InSync(0, (0, 1, 2), isr, epoch_start, now=100.0)


def fetch(view: InSync, replica: int, log_end: int, leader_end: int, at: float = 100.0) -> None:
    view.followers[replica].fetched(log_end, 0, 1, leader_end, at)


def committed(view: InSync, leader_end: int, now: float = 100.0) -> int:
    return view.committed(leader_end, leader_end, now, LAG_S)


def propose(
    view: InSync, leader_end: int, high_watermark: int, now: float
) -> tuple[int, ...] | None:
    return view.propose(leader_end, high_watermark, now, LAG_S, anyone)


def test_what_all_have_is_committed_and_nobody_is_taken_on_trust() -> None:
    view = in_sync()
    assert committed(view, 5) < 0
    fetch(view, 1, 3, 5)
    assert committed(view, 5) < 0
    fetch(view, 2, 4, 5)
    assert committed(view, 5) == 3
    # The leader's own disk counts like a follower.
    assert view.committed(2, 5, 100.0, LAG_S) == 2


@pytest.mark.parametrize(
    ("fetches", "caught_up_at"),
    [
        ([(5, 5, 101)], 101),
        ([(4, 5, 101)], 100),
        # It asks for what was the end when it asked before, again and again.
        ([(4, 5, 101), (5, 6, 102), (6, 7, 103)], 102),
        ([(4, 5, 101), (4, 6, 102)], 100),
        # It gets there in steps, while the leader goes on at the same pace.
        ([(2, 8, 101), (4, 10, 102), (6, 12, 103)], 100),
        ([(2, 8, 101), (4, 10, 102), (6, 12, 103), (8, 14, 104), (10, 16, 105)], 101),
        ([(2, 8, 101), (8, 14, 104), (14, 20, 107)], 104),
    ],
)
def test_a_follower_had_everything_when_it_asked_for_the_end_of_then(
    fetches: list[tuple[int, int, float]], caught_up_at: float
) -> None:
    view = in_sync()
    for log_end, leader_end, at in fetches:
        fetch(view, 1, log_end, leader_end, at)
    assert view.followers[1].caught_up_at == caught_up_at


def test_a_follower_is_put_out_when_it_has_lagged_for_too_long() -> None:
    view = in_sync()
    fetch(view, 1, 5, 5, at=100.0)
    fetch(view, 2, 5, 5, at=105.0)
    # Whoever has everything may be silent as long as it likes.
    assert propose(view, 5, 5, now=1000.0) is None
    assert propose(view, 6, 5, now=110.0) is None
    assert not view.is_right(6, 5, 110.1, LAG_S)
    assert propose(view, 6, 5, now=110.1) == (0, 2)
    assert view.is_right(6, 5, 110.1, LAG_S)
    # Nothing else is asked for meanwhile, and it still counts.
    assert propose(view, 6, 5, now=200.0) is None
    fetch(view, 2, 6, 6, at=110.2)
    assert committed(view, 6) == 5
    assert view.agreed((0, 1, 2), (0, 2)) == []
    assert committed(view, 6, now=110.2) == 6


def test_a_follower_joins_at_the_high_watermark_and_the_start_of_the_epoch() -> None:
    view = in_sync((0, 1), epoch_start=7)
    fetch(view, 1, 9, 9)
    for log_end, may in ((5, False), (6, False), (7, True), (9, True)):
        fetch(view, 2, log_end, 9)
        assert view.may_join(2, high_watermark=6) is may
    assert not view.may_join(2, high_watermark=10)
    assert view.propose(9, 6, 100.0, LAG_S, lambda replica: False) is None
    assert propose(view, 9, 6, now=100.0) == (0, 1, 2)
    fetch(view, 1, 12, 12)
    assert committed(view, 12) == 9
    view.refused()
    assert view.isr == (0, 1)


def test_a_follower_that_keeps_up_is_waited_for_before_it_joins() -> None:
    view = in_sync((0,))
    fetch(view, 1, 5, 5, at=100.0)
    assert committed(view, 9, now=105.0) == 5
    assert committed(view, 9, now=111.0) == 9
    # Who may say again where it is, if it is there after all.
    assert view.gone({0, 2}) == [1]
    assert committed(view, 9, now=105.0) == 9
    assert view.gone({0, 2}) == []


def test_nothing_is_known_of_a_follower_that_somebody_else_put_out() -> None:
    view = in_sync()
    fetch(view, 1, 9, 9)
    fetch(view, 2, 9, 9)
    assert view.agreed((0, 1, 2), (0, 2)) == [1]
    assert not view.may_join(1, 9)
    assert committed(view, 10) == 9
    # A replica that goes, goes for good; a new one is unknown.
    assert view.agreed((0, 2, 3), (0, 2)) == []
    assert sorted(view.followers) == [2, 3]
    assert view.followers[2].log_end == 9
    assert view.agreed((0, 2, 3), (0, 2)) == []


def test_below_the_minimum_and_while_anybody_is_eligible_nothing_is_committed() -> None:
    view = InSync(0, (0, 1, 2), (0, 1), 0, 100.0, minimum=2)
    is_right = partial(view.is_right, 5, 5, 100.0, LAG_S)
    seen = [view.may_commit]
    fetch(view, 1, 4, 5, at=80.0)
    view.agreed((0, 1, 2), (0,), (1,), 2)
    fetch(view, 1, 4, 5, at=80.0)
    seen.append(view.may_commit)
    assert view.may_join(1, high_watermark=4)
    assert view.is_right(5, 4, 100.0, LAG_S), "who lags is not taken back as it is put out"
    # Enough are in sync by another minimum, but broker 1 may still be elected.
    view.agreed((0, 1, 2), (0,), (1,), 1)
    seen.append(view.may_commit)
    assert not is_right()
    assert propose(view, 5, 5, 100.0) == (0,)
    assert is_right(), "that is asked for already"
    view.agreed((0, 1, 2), (0,), (), 1)
    seen.append(view.may_commit)
    assert seen == [True, False, False, True]
    assert propose(view, 5, 5, 100.0) is None
    view.agreed((0, 1, 2), (0,), (1,), 2)
    fetch(view, 1, 5, 5)
    assert propose(view, 5, 4, 100.0) == (0, 1)


def test_the_low_watermark_is_that_of_the_live() -> None:
    view = in_sync()
    assert view.low_watermark(5, {0, 1, 2}) == -1
    view.followers[1].fetched(9, 4, 1, 9, 100.0)
    assert view.low_watermark(5, {0, 1}) == 4
    assert view.low_watermark(3, {0, 1}) == 3
    assert view.low_watermark(5, {0}) == 5


class Cluster(RuleBasedStateMachine):
    """A leader (0), its followers, and a store that may decide unheard.

    Whatever happens, whoever the store calls in sync has everything that the leader has committed:
    that replica may be the next leader.
    """

    @initialize(isr=st.sets(st.sampled_from([1, 2, 3])))
    def begin(self, isr: set[int]) -> None:
        self.replicas = (0, 1, 2, 3)
        self.stored = (0, *sorted(isr))
        self.view = InSync(0, self.replicas, self.stored, 0, now=0.0)
        self.ends = {1: 0, 2: 0, 3: 0}
        self.leader_end = 0
        self.high_watermark = 0
        self.now = 0.0
        # Which life of each follower is registered, and which the leader has heard of.
        self.lives = {1: 1, 2: 1, 3: 1}
        self.known = dict(self.lives)
        # What the leader asked for, the store's version and the lives that it was asked on, and
        # whether it happened.
        self.asked: tuple[tuple[int, ...], int, dict[int, int]] | None = None
        self.happened = False
        self.version = 0

    def advance(self) -> None:
        found = self.view.committed(self.leader_end, self.leader_end, self.now, LAG_S)
        self.high_watermark = max(self.high_watermark, found)

    @rule(count=st.integers(1, 3))
    def append(self, count: int) -> None:
        self.leader_end += count
        self.advance()

    @rule(follower=st.sampled_from([1, 2, 3]), count=st.integers(1, 5))
    def copy(self, follower: int, count: int) -> None:
        self.ends[follower] = min(self.ends[follower] + count, self.leader_end)

    @rule(follower=st.sampled_from([1, 2, 3]))
    def fetch(self, follower: int) -> None:
        progress = self.view.followers[follower]
        progress.fetched(self.ends[follower], 0, self.lives[follower], self.leader_end, self.now)
        self.advance()

    @rule(seconds=st.sampled_from([1.0, 6.0, 11.0]))
    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.advance()

    @rule()
    def ask(self) -> None:
        wanted = self.view.propose(
            self.leader_end, self.high_watermark, self.now, LAG_S, self.is_eligible
        )
        if wanted is not None:
            self.asked, self.happened = (wanted, self.version, dict(self.known)), False

    def is_eligible(self, follower: int) -> bool:
        return self.view.followers[follower].epoch in (-1, self.known[follower])

    @precondition(lambda self: self.asked is not None and not self.happened)
    @rule()
    def it_happens(self) -> None:
        """The store takes the leader's word, if nothing has changed in the meantime and whoever
        joins is in the life that the leader knows.
        """
        assert self.asked is not None
        wanted, version, known = self.asked
        joining = set(wanted) - set(self.stored)
        if version == self.version and all(known[each] == self.lives[each] for each in joining):
            self.stored, self.happened = wanted, True
            self.version += 1

    @precondition(lambda self: self.asked is not None)
    @rule()
    def the_leader_hears_of_its_own(self) -> None:
        if self.happened:
            self.hear()
        else:
            self.view.refused()
        self.asked, self.happened = None, False
        self.advance()

    @rule(follower=st.sampled_from([1, 2, 3]), lost=st.integers(0, 4))
    def a_follower_crashes(self, follower: int, lost: int) -> None:
        """It begins another life and is put out before it comes back, perhaps with less."""
        self.lives[follower] += 1
        if follower in self.stored:
            self.stored = tuple(each for each in self.stored if each != follower)
            self.version += 1
        self.ends[follower] = max(0, self.ends[follower] - lost)

    @rule()
    def hear_of_registrations(self) -> None:
        self.known = dict(self.lives)

    @rule()
    def hear(self) -> None:
        """The leader learns how things are; of its own question, if that was in time."""
        if self.stored != self.view.isr:
            self.view.agreed(self.replicas, self.stored)
            self.asked, self.happened = None, False
        self.advance()

    @invariant()
    def whoever_may_be_elected_has_what_is_committed(self) -> None:
        if not hasattr(self, "stored"):
            return
        for member in self.stored:
            if member:
                assert self.ends[member] >= self.high_watermark


TestCluster = Cluster.TestCase
TestCluster.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
