"""Every check of the state machine by itself: a test for each that goes red without it."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from moldau.broker.coordination.transactions import machine
from moldau.broker.coordination.transactions.machine import (
    HIGHEST_EPOCH,
    LAST_CLIENT_EPOCH,
    TV2,
    Init,
    NeedsProducerId,
    Write,
)
from moldau.broker.coordination.transactions.transaction import NO_EPOCH, NOBODY, Identity, State
from moldau.wire.errors import Error
from tests.broker.coordination.transactions.test_machine import (
    ME,
    ONE,
    OTHER,
    TV1,
    end,
    error_of,
    init,
    transaction,
    written,
)
from tests.broker.coordination.transactions.test_two_phase import KEEP, two_phase

LAST = Identity(7, LAST_CLIENT_EPOCH)


@pytest.mark.parametrize(
    ("producer", "expected"),
    [
        pytest.param(ME, Identity(8, 3), id="another id"),
        pytest.param(LAST, Identity(8, LAST_CLIENT_EPOCH), id="another id, with the last epoch"),
        pytest.param(ME, Identity(6, 3), id="the id before, whose epochs had not run out"),
    ],
)
def test_a_producer_that_was_somebody_else_gets_no_epoch(
    producer: Identity, expected: Identity
) -> None:
    found = replace(transaction(State.COMPLETE_COMMIT, producer), previous_id=6)
    assert error_of(init(found, Init(1_000, expected), 9)) is Error.PRODUCER_FENCED


def test_a_producer_that_was_fenced_by_one_without_a_past_gets_no_epoch() -> None:
    begun = written(init(transaction(), Init(1_000)))
    assert begun.last_epoch == NO_EPOCH
    assert error_of(init(begun, Init(1_000, ME))) is Error.PRODUCER_FENCED


def test_a_producer_begins_at_rest_with_its_own_time_out() -> None:
    found = replace(transaction(State.COMPLETE_COMMIT), started_ms=50, previous_id=6)
    begun = written(init(found, Init(2_000)))
    assert (begun.state, begun.timeout_ms, begun.previous_id) == (State.EMPTY, 2_000, 7)
    assert (begun.started_ms, begun.updated_ms) == (-1, 100)


def test_a_producer_whose_epochs_ran_out_is_known_by_its_old_id() -> None:
    found = replace(transaction(State.COMPLETE_COMMIT, LAST), previous_id=6)
    moved = written(init(found, Init(1_000, LAST), 9))
    assert (moved.producer, moved.previous_id) == (Identity(9, 0), 7)
    assert written(init(moved, Init(1_000, LAST), 10)).producer == Identity(9, 0)


def test_whoever_takes_a_transaction_over_writes_nothing() -> None:
    kept = written(init(replace(two_phase(), timeout_ms=5), KEEP))
    assert machine.verify(kept, Identity(7, 5), ONE) is Error.TRANSACTION_ABORTABLE
    assert kept.is_two_phase
    assert kept.updated_ms == 100


def test_a_partition_begins_a_transaction_of_the_client_s_dialect() -> None:
    begun = written(machine.add(replace(transaction(), previous_id=6), False, ME, [ONE], TV2, 100))
    assert (begun.version, begun.previous_id) == (TV2, 7)
    # As Kafka has it: the producer has asked, though for nothing.
    assert written(machine.add(transaction(), False, ME, [], TV1, 100)).state is State.ONGOING


@pytest.mark.parametrize("commits", [True, False])
def test_tv1_knows_no_end_by_the_epoch_before(*, commits: bool) -> None:
    done = transaction(State.COMPLETE_COMMIT if commits else State.COMPLETE_ABORT)
    decision = end(done, Identity(7, 2), commits=commits, version=TV1)
    assert error_of(decision) is Error.PRODUCER_FENCED


def test_only_the_last_epoch_of_an_old_id_ended_the_last_transaction() -> None:
    moved = replace(transaction(State.COMPLETE_COMMIT, Identity(9, 0), TV2), previous_id=7)
    early = end(moved, Identity(7, LAST_CLIENT_EPOCH - 1), commits=True, version=TV2)
    assert error_of(early) is Error.INVALID_PRODUCER_ID_MAPPING
    later = replace(moved, producer=Identity(9, 1))
    decision = end(later, LAST, commits=True, version=TV2)
    assert error_of(decision) is Error.INVALID_PRODUCER_ID_MAPPING


def test_tv1_ends_with_the_last_epoch_and_keeps_it() -> None:
    found = replace(transaction(State.ONGOING, LAST), last_epoch=5)
    decision = end(found, LAST, commits=True, version=TV1)
    assert isinstance(decision, Write)
    assert decision.producer == decision.transaction.producer == LAST
    # It is the epoch of the last InitProducerId that may be repeated.
    assert decision.transaction.last_epoch == 5


def test_an_abort_of_who_took_over_by_another_id_needs_one_where_that_runs_out() -> None:
    kept = replace(two_phase(producer=LAST), next=Identity(9, LAST_CLIENT_EPOCH))
    assert machine.abort(kept, 100) == NeedsProducerId()
    aborting = machine.abort(kept, 100, 10)
    assert isinstance(aborting, Write)
    assert aborting.error is Error.CONCURRENT_TRANSACTIONS
    assert (aborting.transaction.producer, aborting.producer) == (
        Identity(7, HIGHEST_EPOCH),
        Identity(10, 0),
    )


def test_the_epoch_of_a_marker_does_not_overflow() -> None:
    highest = Identity(7, HIGHEST_EPOCH)
    aborting = written(machine.abort(transaction(State.ONGOING, highest), 100))
    assert (aborting.producer, aborting.owner) == (highest, highest)
    kept = replace(two_phase(producer=highest), next=Identity(9, 0))
    aborting = written(machine.abort(kept, 100))
    assert (aborting.producer, aborting.owner) == (highest, Identity(9, 1))


def test_what_is_decided_says_all_that_the_next_coordinator_needs() -> None:
    found = replace(transaction(State.ONGOING), previous_id=6, started_ms=40)
    decided = written(end(found, ME, commits=True, version=TV2))
    assert (decided.previous_id, decided.version, decided.next) == (7, TV2, NOBODY)
    assert (decided.started_ms, decided.updated_ms) == (40, 100)
    assert decided.partitions == {ONE}
    # An abort of nothing begins now.
    idle = written(end(transaction(), ME, commits=False, version=TV2))
    assert (idle.state, idle.started_ms) == (State.PREPARE_ABORT, 100)
    assert idle.partitions == frozenset()


def test_what_is_complete_has_neither_partitions_nor_an_heir() -> None:
    decided = written(
        end(transaction(State.ONGOING, LAST), LAST, commits=True, version=TV2, new_id=9)
    )
    assert decided.next == Identity(9, 0)
    done = machine.complete(decided, 120)
    assert (done.next, done.partitions, done.updated_ms) == (NOBODY, frozenset(), 120)
    # So what belonged to it does not belong to the next one.
    begun = written(machine.add(done, False, Identity(9, 0), [OTHER], TV2, 130))
    assert begun.partitions == {OTHER}


@pytest.mark.parametrize("state", sorted(set(State) - {State.ONGOING}))
def test_only_an_open_transaction_times_out(state: State) -> None:
    assert not machine.has_timed_out(transaction(state), 1_000_000)
