"""Batches of idempotent producers: repeated, out of order, fenced."""

from __future__ import annotations

import pytest

from moldau.log.errors import (
    InvalidProducerEpoch,
    InvalidTransactionState,
    OutOfOrderSequence,
)
from moldau.log.log import Log
from moldau.records.record import (
    build_end_marker,
)
from tests.log.making import (
    NOW,
    batch_of,
    put,
)

# Idempotence


def test_a_repeated_batch_gets_its_first_offset_and_is_not_written_again(log: Log) -> None:
    for number in range(7):
        put(log, batch_of(2, producer_id=1, sequence=number * 2))
    size = log.segments.size
    for number in range(2, 7):
        again = batch_of(2, producer_id=1, sequence=number * 2)
        assert log.append(again, 0, NOW) == (number * 2, -1)
    log.commit()
    assert log.segments.size == size
    with pytest.raises(OutOfOrderSequence):
        log.append(batch_of(2, producer_id=1, sequence=2), 0, NOW)


def test_a_batch_that_does_not_follow_is_refused(log: Log) -> None:
    put(log, batch_of(3, producer_id=1, sequence=0))
    for sequence in (1, 2, 4, 100):
        with pytest.raises(OutOfOrderSequence) as caught:
            log.append(batch_of(1, producer_id=1, sequence=sequence), 0, NOW)
        assert caught.value.expected == 3


def test_an_old_epoch_is_fenced_and_a_new_one_begins_at_zero(log: Log) -> None:
    put(log, batch_of(producer_id=1, producer_epoch=2, sequence=0))
    with pytest.raises(InvalidProducerEpoch):
        log.append(batch_of(producer_id=1, producer_epoch=1, sequence=1), 0, NOW)
    with pytest.raises(OutOfOrderSequence):
        log.append(batch_of(producer_id=1, producer_epoch=3, sequence=1), 0, NOW)
    put(log, batch_of(producer_id=1, producer_epoch=3, sequence=0))


def test_sequences_wrap_around(log: Log) -> None:
    last = 2**31 - 1
    put(log, batch_of(producer_id=1, sequence=last - 1))
    put(log, batch_of(3, producer_id=1, sequence=last))
    put(log, batch_of(producer_id=1, sequence=2))
    assert log.append(batch_of(3, producer_id=1, sequence=last), 0, NOW) == (1, -1)


def test_an_open_transaction_holds_back_the_last_stable_offset(log: Log) -> None:
    put(log, batch_of(2))
    put(log, batch_of(2, producer_id=1, is_transactional=True))
    put(log, batch_of(2))
    assert (log.last_stable, log.high_watermark) == (2, 6)
    with pytest.raises(InvalidTransactionState):
        log.append(batch_of(producer_id=1, sequence=2), 0, NOW)
    marker = build_end_marker(
        commits=True, coordinator_epoch=0, producer_id=1, producer_epoch=0, timestamp=NOW
    )
    log.append(memoryview(marker), 0, NOW, from_client=False)
    log.commit()
    assert log.last_stable == 2
    log.advance_high_watermark(log.log_end)
    assert log.last_stable == 7
