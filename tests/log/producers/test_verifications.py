"""The guard of a transaction's first write, and the fences of its end marker."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from moldau.log.errors import (
    CoordinatorFenced,
    InvalidProducerEpoch,
    InvalidTransactionState,
    OutOfOrderSequence,
)
from moldau.log.log import Log
from moldau.log.markers import TransactionEnd, append_marker
from moldau.log.producers.verifications import Verification
from tests.log.making import NOW, batch_of, guard_of, make_log, open_store, put


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    store = open_store(tmp_path)
    yield make_log(store)
    store.close()


def part(sequence: int = 0, epoch: int = 0, count: int = 1) -> memoryview:
    """A transactional batch of producer 1."""
    return batch_of(
        count, producer_id=1, producer_epoch=epoch, sequence=sequence, is_transactional=True
    )


def begin(log: Log, sequence: int = 0, epoch: int = 0, *, bumps: bool = False) -> Verification:
    return log.producers.verifications.begin(1, epoch, sequence, NOW, bumps)


def end(
    log: Log, epoch: int = 0, *, coordinator: int = 0, version: int = 0, commits: bool = True
) -> int:
    offset = append_marker(log, TransactionEnd(1, epoch, coordinator, commits, version), 0, NOW)
    log.commit()
    log.advance_high_watermark(log.log_end)
    return offset


def test_a_transaction_begins_only_with_a_guard(log: Log) -> None:
    with pytest.raises(InvalidTransactionState):
        log.append(part(), 0, NOW)
    guard = begin(log)
    log.append(part(), 0, NOW, guard=guard)
    # While it is open nobody asks any more.
    log.append(part(1), 0, NOW)
    assert not log.producers.verifications


def test_a_marker_ends_a_guard_that_was_given_before(log: Log) -> None:
    """The answer of a coordinator that was true before the marker lets nothing in after it."""
    stale = begin(log)
    end(log, commits=False)
    with pytest.raises(InvalidTransactionState):
        log.append(part(), 0, NOW, guard=stale)
    fresh = begin(log)
    with pytest.raises(InvalidTransactionState):
        log.append(part(), 0, NOW, guard=stale)
    log.append(part(), 0, NOW, guard=fresh)


def test_a_marker_of_version_2_leaves_the_guard_of_the_next_transaction(log: Log) -> None:
    """The producer writes on as soon as the end is decided, and so before the marker comes."""
    put(log, part(epoch=0))
    guard = begin(log, epoch=1, bumps=True)
    end(log, 1, version=2)
    # The answer was lost, and the marker is sent again.
    end(log, 1, version=2)
    log.append(part(epoch=1), 0, NOW, guard=guard)
    assert log.producers.is_open(1, 1)


def test_a_marker_of_version_2_ends_the_guard_of_its_own_transaction(log: Log) -> None:
    put(log, part(epoch=0))
    end(log, 1, version=2)
    guard = begin(log, epoch=1, bumps=True)
    end(log, 2, version=2)
    with pytest.raises(InvalidTransactionState):
        log.append(part(epoch=1), 0, NOW, guard=guard)
    # One of the last epoch has the epoch of its records.
    guard = begin(log, epoch=32767, bumps=True)
    end(log, 32767, version=2)
    with pytest.raises(InvalidTransactionState):
        log.append(part(epoch=32767), 0, NOW, guard=guard)


def test_a_late_batch_of_an_ended_transaction_needs_a_new_guard(log: Log) -> None:
    put(log, part())
    end(log)
    with pytest.raises(InvalidTransactionState):
        log.append(part(1), 0, NOW)
    assert log.last_stable == log.log_end


@pytest.mark.parametrize("is_verified", [False, True])
def test_a_sequence_of_a_transaction_that_has_ended_is_refused(log: Log, is_verified: bool) -> None:
    """Nobody waits for the first batch any more, and whoever sent the second would lose it."""
    assert put(log, part()) == [0]
    # While it is open, the producer may not have got the answer.
    assert log.append(part(), 0, NOW) == (0, -1)
    end(log, commits=False)
    guard = begin(log) if is_verified else None
    with pytest.raises(InvalidTransactionState, match="used sequence 0 again"):
        log.append(part(), 0, NOW, guard=guard)
    assert (log.log_end, log.last_stable) == (2, 2)
    # What follows is in order: told otherwise, librdkafka would not come to its abort.
    assert log.append(part(1), 0, NOW, guard=guard or begin(log, 1)) == (2, -1)


def test_a_write_behind_one_that_was_not_verified_is_out_of_order(log: Log) -> None:
    put(log, part())
    end(log)
    first, second = begin(log, 1), begin(log, 2)
    assert first is second
    with pytest.raises(OutOfOrderSequence):
        log.append(part(2), 0, NOW, guard=second)
    log.append(part(1), 0, NOW, guard=first)
    log.append(part(2), 0, NOW)


def test_the_lowest_sequence_counts_even_for_a_producer_that_is_not_known(log: Log) -> None:
    """A log takes any first sequence otherwise; the retry of the first would come too late."""
    guard = begin(log, 5)
    assert begin(log, 6) is guard
    with pytest.raises(OutOfOrderSequence):
        log.append(part(6), 0, NOW, guard=guard)
    log.append(part(5), 0, NOW, guard=guard)


def test_a_new_epoch_forgets_the_sequences_of_the_old_one(log: Log) -> None:
    guard = begin(log, 0, epoch=0)
    assert begin(log, 0, epoch=1) is guard
    assert begin(log, 7, epoch=0).lowest_sequence == 0
    log.append(part(0, epoch=1), 0, NOW, guard=guard)


def test_an_epoch_for_each_transaction_begins_with_sequence_0(log: Log) -> None:
    with pytest.raises(OutOfOrderSequence):
        log.append(part(3), 0, NOW, guard=begin(log, 3, bumps=True))
    log.append(part(0), 0, NOW, guard=begin(log, 0, bumps=True))


def test_guards_that_nobody_uses_are_forgotten(log: Log) -> None:
    guard = begin(log)
    log.producers.expire(NOW + 999, 1000)
    assert begin(log) is guard
    log.producers.expire(NOW + 1000, 1000)
    assert begin(log) is not guard


def test_a_coordinator_needs_a_guard_for_its_records_too(log: Log) -> None:
    """Offsets of a transaction are written by the group coordinator."""
    with pytest.raises(InvalidTransactionState):
        log.append(part(), 0, NOW, from_client=False)
    log.append(part(), 0, NOW, from_client=False, guard=begin(log))
    log.append(part(), 0, NOW, from_client=False)
    end(log, epoch=1)
    with pytest.raises(InvalidProducerEpoch):
        log.append(part(), 0, NOW, from_client=False, guard=begin(log))


@pytest.mark.parametrize("version", [0, 1])
def test_a_marker_of_version_1_may_have_the_records_epoch(log: Log, version: int) -> None:
    put(log, part(epoch=3))
    with pytest.raises(InvalidProducerEpoch):
        end(log, 2, version=version)
    assert end(log, 3, version=version) == 1
    assert end(log, 3, version=version) == 2


def test_a_late_marker_of_version_2_does_not_end_the_next_transaction(log: Log) -> None:
    """KAFKA-19446: its epoch is the one that the next transaction writes with."""
    put(log, part(epoch=0))
    end(log, 1, version=2)
    put(log, part(epoch=1))
    with pytest.raises(InvalidProducerEpoch):
        end(log, 1, version=2)
    assert log.last_stable == 2
    end(log, 2, version=2)
    assert log.last_stable == log.log_end


def test_a_repeated_marker_of_version_2_is_taken_while_nothing_is_open(log: Log) -> None:
    """KAFKA-19999: the answer was lost, and another coordinator sends the marker again."""
    put(log, part(epoch=0))
    end(log, 1, version=2, coordinator=4)
    end(log, 1, version=2, coordinator=5)
    assert log.last_stable == log.log_end == 3


def test_the_last_epoch_ends_transactions_of_its_own(log: Log) -> None:
    put(log, part(epoch=32767))
    end(log, 32767, version=2)
    assert log.last_stable == log.log_end


def test_the_marker_of_an_old_coordinator_is_refused(log: Log) -> None:
    put(log, part())
    end(log, coordinator=5)
    put(log, part(1))
    with pytest.raises(CoordinatorFenced):
        end(log, coordinator=4)
    assert log.last_stable == 2
    end(log, coordinator=5)
    assert log.last_stable == log.log_end


def test_a_plain_write_waits_for_the_end_of_the_transaction(log: Log) -> None:
    put(log, part())
    with pytest.raises(InvalidTransactionState):
        log.append(batch_of(producer_id=1, sequence=1), 0, NOW)
    end(log)
    put(log, batch_of(producer_id=1, sequence=1))


def test_an_open_transaction_is_never_forgotten(log: Log) -> None:
    put(log, part())
    put(log, batch_of(producer_id=2))
    assert log.producers.expire(NOW + 10**12, 1) == [2]
    assert log.last_stable == 0
    end(log)
    assert log.producers.expire(NOW + 10**12, 1) == [1]


def test_many_ended_transactions_take_no_room(log: Log) -> None:
    """Nobody may ask for the last stable offset for a long time."""
    for sequence in range(100):
        batch = part(sequence)
        log.append(batch, 0, NOW, guard=guard_of(log, batch))
        end(log)
    assert not log.producers.decided
    assert not log.producers.open
