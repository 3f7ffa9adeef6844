"""Every check of what a log remembers of producers by itself: each goes red without its check."""

from __future__ import annotations

import pytest

from moldau.log.errors import (
    InvalidProducerEpoch,
    InvalidTransactionState,
    OutOfOrderSequence,
)
from moldau.log.producers.states import KEPT_BATCHES, ProducerStates
from moldau.log.producers.verifications import Verification, Verifications
from moldau.records.record import EndMarker

NOW = 1_000
PLAIN, IN_TRANSACTION = 0, 1


class Writer:
    """A producer's batches in states of its own, each at the next offsets."""

    def __init__(self) -> None:
        self.states = ProducerStates()
        self.end = 0

    def write(
        self, sequence: int = 0, epoch: int = 3, count: int = 1, kind: int = PLAIN, id: int = 1
    ) -> int:
        offset = self.end
        self.states.note(id, epoch, sequence, offset, count - 1, NOW, kind, NOW)
        self.end += count
        return offset

    def mark(self, epoch: int = 3, *, commits: bool = True, id: int = 1) -> None:
        self.states.note_marker(id, epoch, self.end, NOW, EndMarker(commits, 0))
        self.end += 1

    def check(self, sequence: int, epoch: int = 3, count: int = 1, kind: int = PLAIN) -> int | None:
        """The offset of the batch that it repeats."""
        found = self.states.check(1, epoch, sequence, count - 1, kind)
        return None if found is None else found.first_offset

    def begin(self, sequence: int, epoch: int, count: int = 1) -> None:
        guard = self.states.verifications.begin(1, epoch, sequence, NOW, False)
        self.states.check_begin(1, epoch, sequence, count - 1, guard)


@pytest.fixture
def writer() -> Writer:
    return Writer()


# Batches of a producer that is known


def test_the_next_sequence_is_taken_and_any_other_is_out_of_order(writer: Writer) -> None:
    writer.write(0, count=3)
    assert writer.check(3) is None
    for wrong in (4, 1):
        with pytest.raises(OutOfOrderSequence):
            writer.check(wrong)


def test_a_batch_is_repeated_if_it_has_the_same_sequences(writer: Writer) -> None:
    first, second = writer.write(0, count=3), writer.write(3, count=2)
    assert writer.check(0, count=3) == first
    assert writer.check(3, count=2) == second
    # The same length, or the same beginning, is not enough.
    for sequence, count in ((1, 3), (0, 2), (1, 2)):
        with pytest.raises(OutOfOrderSequence):
            writer.check(sequence, count=count)


def test_an_earlier_epoch_is_fenced_and_a_later_one_begins_with_0(writer: Writer) -> None:
    writer.write(0)
    with pytest.raises(InvalidProducerEpoch):
        writer.check(1, epoch=2)
    with pytest.raises(OutOfOrderSequence):
        writer.check(1, epoch=4)
    assert writer.check(0, epoch=4) is None


def test_a_new_epoch_forgets_the_batches_of_the_old_one(writer: Writer) -> None:
    writer.write(0, count=2)
    writer.write(0, epoch=4)
    assert writer.check(1, epoch=4) is None
    # It was written in the old epoch, and is another batch.
    with pytest.raises(OutOfOrderSequence):
        writer.check(0, epoch=4, count=2)


def test_sequences_begin_again_after_the_last(writer: Writer) -> None:
    writer.write(0x7FFF_FFFF)
    assert writer.check(0) is None
    writer.write(0)
    assert writer.check(1) is None


def test_the_last_batches_of_an_epoch_are_remembered(writer: Writer) -> None:
    offsets = [writer.write(sequence) for sequence in range(KEPT_BATCHES + 1)]
    assert writer.check(1) == offsets[1]
    with pytest.raises(OutOfOrderSequence):
        writer.check(0)


def test_what_a_broker_writes_for_a_producer_leaves_its_sequences(writer: Writer) -> None:
    first = writer.write(0)
    writer.write(-1, kind=IN_TRANSACTION)
    assert writer.check(1, kind=IN_TRANSACTION) is None
    assert writer.check(0, kind=IN_TRANSACTION) == first


def test_after_batches_of_a_broker_a_producer_begins_with_0(writer: Writer) -> None:
    writer.write(-1, kind=IN_TRANSACTION)
    last = writer.write(-1, kind=IN_TRANSACTION)
    producer = writer.states.get(1)
    assert producer is not None
    assert [each.last_sequence for each in producer.batches] == [-1, -1]
    assert producer.batches[-1].last_offset == last
    assert writer.check(0, kind=IN_TRANSACTION) is None
    # A sequence of 0 is the producer's own, which a broker's batch does not replace.
    own = writer.write(0, kind=IN_TRANSACTION)
    writer.write(-1, kind=IN_TRANSACTION)
    assert writer.check(0, kind=IN_TRANSACTION) == own
    assert writer.check(1, kind=IN_TRANSACTION) is None


def test_a_broker_s_batch_counts_after_a_marker_that_left_none(writer: Writer) -> None:
    writer.mark(epoch=3)
    offset = writer.write(-1, kind=IN_TRANSACTION)
    producer = writer.states.get(1)
    assert producer is not None
    assert [each.last_offset for each in producer.batches] == [offset]


# Transactions


def test_a_transaction_is_open_in_the_epoch_of_its_producer(writer: Writer) -> None:
    assert not writer.states.is_open(1, 3)
    writer.write(0, kind=IN_TRANSACTION)
    assert writer.states.is_open(1, 3)
    assert not writer.states.is_open(1, 2)
    assert not writer.states.is_open(1, 4)
    writer.mark()
    assert not writer.states.is_open(1, 3)


def test_only_the_same_batch_was_written_before(writer: Writer) -> None:
    assert not writer.states.is_written(1, 3, 0, 0)
    writer.write(0, count=2)
    assert writer.states.is_written(1, 3, 0, 1)
    assert not writer.states.is_written(1, 4, 0, 1)
    assert not writer.states.is_written(1, 3, 0, 0)
    assert not writer.states.is_written(1, 3, 1, 1)


def test_a_guard_lets_no_earlier_epoch_begin(writer: Writer) -> None:
    writer.write(0)
    with pytest.raises(InvalidProducerEpoch):
        writer.begin(0, epoch=2)


def test_a_batch_of_another_epoch_needs_a_guard_though_one_is_open(writer: Writer) -> None:
    writer.write(0, kind=IN_TRANSACTION)
    writer.states.check_begin(1, 3, 1, 0, None)
    with pytest.raises(InvalidTransactionState):
        writer.states.check_begin(1, 4, 0, 0, None)


def test_a_producer_without_batches_begins_its_epoch_with_0(writer: Writer) -> None:
    """A marker is all that the log has of it."""
    writer.mark(epoch=4)
    guard = writer.states.verifications.begin(1, 4, 2, NOW, True)
    with pytest.raises(OutOfOrderSequence):
        writer.states.check_begin(1, 4, 2, 0, guard)


def test_a_coordinator_writes_plain_records_without_a_guard(writer: Writer) -> None:
    writer.states.check_coordinator(1, 3, PLAIN, None)
    with pytest.raises(InvalidTransactionState):
        writer.states.check_coordinator(1, 3, IN_TRANSACTION, None)


def test_a_guard_is_told_where_its_transaction_begins(writer: Writer) -> None:
    writer.write(id=2)
    guard = writer.states.verifications.begin(1, 3, 0, NOW, False)
    start = writer.write(0, kind=IN_TRANSACTION)
    assert guard.start == start
    assert not writer.states.verifications
    # Nobody asked for this one: it was copied from a leader.
    writer.write(0, kind=IN_TRANSACTION, id=5)
    assert writer.states.open == {1: 1, 5: 2}


def test_what_was_not_written_after_all_is_undone(writer: Writer) -> None:
    writer.write(0, kind=IN_TRANSACTION)
    writer.states.settle()
    before = writer.states.producers
    writer.write(1, kind=IN_TRANSACTION)
    writer.states.rollback(1)
    assert writer.states.producers == before
    writer.mark()
    writer.states.rollback(1)
    assert (writer.states.producers, writer.states.open) == (before, {1: 0})
    assert not writer.states.decided


def test_the_first_unstable_offset_is_the_lowest_of_open_and_decided_ones(writer: Writer) -> None:
    writer.write(0, kind=IN_TRANSACTION)
    writer.write(0, kind=IN_TRANSACTION, id=2)
    assert writer.states.first_unstable() == 0
    writer.mark(id=1)
    # Its marker is at 2, and not replicated yet.
    assert writer.states.first_unstable() == 0
    writer.states.replicated_to(2)
    assert writer.states.first_unstable() == 0
    writer.states.replicated_to(3)
    assert writer.states.first_unstable() == 1
    writer.mark(id=2)
    writer.states.replicated_to(4)
    assert writer.states.first_unstable() is None


def test_a_decided_one_after_an_open_one_does_not_move_it(writer: Writer) -> None:
    writer.write(0, kind=IN_TRANSACTION)
    writer.write(0, kind=IN_TRANSACTION, id=2)
    writer.mark(id=2)
    assert writer.states.first_unstable() == 0


# Guards


def lowest(guard: Verification) -> tuple[int, int]:
    return guard.epoch, guard.lowest_sequence


def test_the_lowest_sequence_of_the_newest_epoch_is_kept() -> None:
    guards = Verifications()
    guard = guards.begin(1, 0, 5, NOW, False)
    assert guards.begin(1, 0, 3, NOW, False) is guard
    assert lowest(guard) == (0, 3)
    guards.begin(1, 0, 4, NOW, False)
    assert lowest(guard) == (0, 3)
    guards.begin(1, 1, 7, NOW, False)
    assert lowest(guard) == (1, 7)
    # It comes late, and says nothing about this epoch.
    guards.begin(1, 0, 1, NOW, False)
    assert lowest(guard) == (1, 7)


def test_a_batch_without_a_sequence_does_not_count_for_the_lowest() -> None:
    guards = Verifications()
    guard = guards.begin(1, 0, -1, NOW, False)
    guards.check_sequence(1, 0, 0, False)
    assert guards.begin(1, 0, 4, NOW, False) is guard
    assert lowest(guard) == (0, 4)


def test_an_epoch_that_the_log_knows_goes_on_with_its_sequences() -> None:
    guards = Verifications()
    guards.check_sequence(1, 0, 8, False)
    guards.begin(1, 0, 3, NOW, True)
    guards.check_sequence(1, 0, 3, True)
    with pytest.raises(OutOfOrderSequence):
        guards.check_sequence(1, 0, 3, False)
    with pytest.raises(OutOfOrderSequence):
        guards.check_sequence(1, 0, 4, True)
