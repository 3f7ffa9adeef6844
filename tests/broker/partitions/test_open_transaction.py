"""Open transactions of writes that wait: whether one still stands, each check by itself."""

from __future__ import annotations

from moldau.broker.partitions.open_transaction import OpenTransaction
from moldau.log.producers.states import ProducerStates
from moldau.log.producers.verifications import Verification
from moldau.records.record import EndMarker

NOW = 1_000


def opened(states: ProducerStates, guard: Verification | None) -> OpenTransaction:
    return OpenTransaction("t", 1, 0, 12, states, guard)


def write(states: ProducerStates, sequence: int, offset: int) -> None:
    states.note(1, 0, sequence, offset, 0, NOW, 1, NOW)


def mark(states: ProducerStates, offset: int) -> None:
    states.note_marker(1, 0, offset, NOW, EndMarker(True, 0))


def begin(states: ProducerStates) -> Verification:
    return states.verifications.begin(1, 0, 0, NOW, False)


def test_one_that_has_begun_stands_until_its_marker() -> None:
    states = ProducerStates()
    write(states, 0, 5)
    transaction = opened(states, None)
    assert transaction.stands()
    write(states, 1, 6)
    assert transaction.stands()
    mark(states, 7)
    assert not transaction.stands()
    # The next one of the same producer is another.
    write(states, 2, 8)
    assert not transaction.stands()


def test_one_without_a_guard_that_never_began_does_not_stand() -> None:
    states = ProducerStates()
    transaction = opened(states, None)
    assert not transaction.stands()
    write(states, 0, 5)
    assert not transaction.stands()


def test_one_that_is_about_to_begin_stands_while_its_guard_does() -> None:
    states = ProducerStates()
    guard = begin(states)
    transaction = opened(states, guard)
    assert transaction.stands()
    mark(states, 5)
    assert not transaction.stands()
    assert begin(states) is not guard
    assert not transaction.stands()


def test_one_whose_guard_has_begun_stands_until_its_marker() -> None:
    states = ProducerStates()
    transaction = opened(states, begin(states))
    write(states, 0, 5)
    assert transaction.stands()
    mark(states, 6)
    assert not transaction.stands()
    write(states, 1, 7)
    assert not transaction.stands()


def test_a_guard_that_another_transaction_came_before_does_not_stand() -> None:
    """Nothing of the one that is open belongs to it."""
    states = ProducerStates()
    write(states, 0, 5)
    guard = Verification(0, 0, NOW, False)
    assert not opened(states, guard).stands()
