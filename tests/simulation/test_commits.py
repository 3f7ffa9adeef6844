"""The check of a group's offsets: what may be told of them, and what is a loss."""

from __future__ import annotations

from uuid import UUID

import pytest

from tests.simulation.checks.commits import Commits, Known
from tests.simulation.checks.history import Violation

KEY = (UUID(int=1), 0)


class Group:
    """A group whose members commit offsets of one partition, and whoever asks about it."""

    def __init__(self) -> None:
        self.commits = Commits()

    def known(self) -> Known:
        return self.commits.known(KEY)

    def commit(self, generation: int, offset: int, since: Known | None = None) -> None:
        self.commits.attempt(KEY, offset)
        self.commits.commit("member", "t-0", KEY, since or self.known(), generation, offset)

    def give_up(self, generation: int, offset: int) -> None:
        self.commits.attempt(KEY, offset)
        self.commits.give_up(KEY, generation, offset)

    def read(self, offset: int, generation: int = -1, since: Known | None = None) -> None:
        self.commits.read("reader", "t-0", KEY, since or self.known(), offset, generation)


@pytest.fixture
def group() -> Group:
    """A member of generation 4 has committed 129, given up 135, and committed 160."""
    group = Group()
    group.read(-1, 4)
    group.commit(4, 129)
    group.give_up(4, 135)
    group.commit(4, 160)
    return group


@pytest.mark.parametrize("offset", [-1, 129, 134, 159, 161])
def test_nobody_is_told_less_than_was_acknowledged_or_more_than_was_asked_for(
    group: Group, offset: int
) -> None:
    group.read(160)
    with pytest.raises(Violation, match="160 was acknowledged, 160 asked for"):
        group.read(offset)


def test_a_commit_that_was_given_up_may_come_after_the_next_of_its_generation(
    group: Group,
) -> None:
    before = group.known()
    group.read(135)
    group.read(135)
    with pytest.raises(Violation, match="135 was acknowledged"):
        group.read(134)
    # Whoever goes on from there may be seen by those who asked before.
    group.read(135, 5)
    group.commit(5, 140)
    group.read(140, since=before)
    with pytest.raises(Violation, match="140 was acknowledged"):
        group.read(135)


def test_no_commit_comes_after_a_member_of_the_next_generation_has_read(group: Group) -> None:
    group.read(160, 5)
    with pytest.raises(Violation, match="160 was acknowledged"):
        group.read(135)
    with pytest.raises(Violation, match="in generation 4 after 160 was committed in generation 5"):
        group.commit(4, 170)


def test_an_acknowledged_commit_is_not_forgotten_when_the_next_generation_reads(
    group: Group,
) -> None:
    before = group.known()
    group.commit(4, 170)
    group.read(160, 5, before)
    with pytest.raises(Violation, match="170 was acknowledged"):
        group.read(160)


def test_an_answer_that_is_late_says_nothing_of_what_came_after(group: Group) -> None:
    before = group.known()
    group.read(160, 5)
    group.commit(5, 180)
    group.read(135, since=before)
    with pytest.raises(Violation, match="180 was acknowledged"):
        group.read(135)


def test_a_commit_that_goes_back_by_itself_is_noticed(group: Group) -> None:
    with pytest.raises(Violation, match="could commit 150 of t-0 in generation 4 after 160"):
        group.commit(4, 150)


def test_a_late_answer_to_a_commit_says_nothing_once_the_next_generation_goes_on(
    group: Group,
) -> None:
    before = group.known()
    group.read(135, 5)
    group.commit(5, 140)
    group.commit(4, 170, before)
    group.read(140)
