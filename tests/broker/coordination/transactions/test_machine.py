"""The state machine of a transaction: a test for each rule that producers depend on."""

from __future__ import annotations

import pytest

from moldau.broker.coordination.transactions import machine
from moldau.broker.coordination.transactions.machine import (
    HIGHEST_EPOCH,
    LAST_CLIENT_EPOCH,
    TV2,
    Decision,
    End,
    Init,
    NeedsProducerId,
    Refused,
    Unchanged,
    Write,
)
from moldau.broker.coordination.transactions.transaction import (
    Identity,
    State,
    Transaction,
)
from moldau.wire.errors import Error

ME = Identity(7, 3)
ONE, OTHER = ("orders", 0), ("orders", 1)
TV1 = 0


def transaction(
    state: State = State.EMPTY, producer: Identity = ME, version: int = TV1
) -> Transaction:
    is_open = state in (State.ONGOING, State.PREPARE_COMMIT, State.PREPARE_ABORT)
    return Transaction(
        "t", producer, state, 1_000, 50, 50 if is_open else -1,
        frozenset({ONE}) if is_open else frozenset(), version, producer.producer_id,
    )  # fmt: skip


def error_of(decision: Decision) -> Error:
    assert isinstance(decision, Refused), decision
    return decision.error


def written(decision: Decision) -> Transaction:
    assert isinstance(decision, Write), decision
    return decision.transaction


def init(found: Transaction | None, request: Init, new_id: int | None = None) -> Decision:
    return machine.initialize(found, False, request, "t", 100, new_id)


def end(
    found: Transaction | None,
    producer: Identity,
    *,
    commits: bool,
    version: int,
    new_id: int | None = None,
) -> Decision:
    return machine.end(found, False, End(producer, commits, version), 100, new_id)


# A producer begins


def test_a_new_transactional_id_needs_a_producer_id_and_begins_with_epoch_0() -> None:
    assert init(None, Init(1_000)) == NeedsProducerId()
    new = written(init(None, Init(1_000), 7))
    assert (new.producer, new.state) == (Identity(7, 0), State.EMPTY)


def test_a_second_producer_fences_the_first_by_the_next_epoch() -> None:
    begun = written(init(transaction(), Init(1_000)))
    assert begun.producer == Identity(7, 4)
    assert error_of(end(begun, ME, commits=True, version=TV1)) is Error.PRODUCER_FENCED
    assert error_of(machine.add(begun, False, ME, [ONE], TV1, 100)) is Error.PRODUCER_FENCED


def test_a_second_producer_aborts_the_open_transaction_and_comes_again() -> None:
    decision = init(transaction(State.ONGOING), Init(1_000))
    assert isinstance(decision, Write)
    assert decision.error is Error.CONCURRENT_TRANSACTIONS
    aborting = decision.transaction
    assert (aborting.state, aborting.producer) == (State.PREPARE_ABORT, Identity(7, 4))
    assert error_of(init(aborting, Init(1_000))) is Error.CONCURRENT_TRANSACTIONS
    begun = written(init(machine.complete(aborting, 120), Init(1_000)))
    # KAFKA-19367: raised once by the abort and once for the new producer, not twice by the abort.
    assert begun.producer == Identity(7, 5)


def test_a_producer_that_says_who_it_was_goes_on_and_may_ask_again() -> None:
    begun = written(init(transaction(), Init(1_000, expected=ME)))
    assert (begun.producer, begun.last_epoch) == (Identity(7, 4), 3)
    again = written(init(begun, Init(1_000, expected=ME)))
    assert again.producer == Identity(7, 4)
    # Somebody else came in between.
    later = written(init(begun, Init(1_000)))
    assert error_of(init(later, Init(1_000, expected=ME))) is Error.PRODUCER_FENCED


def test_a_fenced_producer_cannot_abort_the_transaction_of_the_one_that_fenced_it() -> None:
    newer = transaction(State.ONGOING, Identity(7, 4))
    assert error_of(init(newer, Init(1_000, expected=ME))) is Error.PRODUCER_FENCED


def test_who_asks_while_a_write_is_pending_comes_again() -> None:
    for found in (None, transaction(), transaction(State.ONGOING)):
        decision = machine.initialize(found, True, Init(1_000), "t", 100, 9)
        assert error_of(decision) is Error.CONCURRENT_TRANSACTIONS
    open_ = transaction(State.ONGOING)
    asked = End(ME, True, TV2)
    assert error_of(machine.end(open_, True, asked, 100)) is Error.CONCURRENT_TRANSACTIONS
    decision = machine.add(open_, True, ME, [OTHER], TV1, 100)
    assert error_of(decision) is Error.CONCURRENT_TRANSACTIONS


# Partitions are added


def test_the_first_partition_begins_the_transaction_and_the_clock() -> None:
    begun = written(machine.add(transaction(), False, ME, [ONE], TV1, 100))
    assert (begun.state, begun.started_ms) == (State.ONGOING, 100)
    assert begun.partitions == {ONE}
    grown = written(machine.add(begun, False, ME, [OTHER], TV1, 200))
    assert (grown.started_ms, grown.updated_ms) == (100, 200)
    assert grown.partitions == {ONE, OTHER}
    assert machine.add(grown, False, ME, [ONE], TV1, 300) == Unchanged(ME)


@pytest.mark.parametrize("state", [State.PREPARE_COMMIT, State.PREPARE_ABORT])
def test_a_partition_for_the_next_transaction_waits_for_the_end_of_the_last(state: State) -> None:
    decision = machine.add(transaction(state), False, ME, [ONE], TV1, 100)
    assert error_of(decision) is Error.CONCURRENT_TRANSACTIONS


def test_an_unknown_producer_id_is_told_so() -> None:
    stranger = Identity(8, 3)
    for found in (None, transaction(State.ONGOING)):
        decision = machine.add(found, False, stranger, [ONE], TV1, 100)
        assert error_of(decision) is Error.INVALID_PRODUCER_ID_MAPPING
        for version in (TV1, TV2):
            decision = end(found, stranger, commits=True, version=version)
            assert error_of(decision) is Error.INVALID_PRODUCER_ID_MAPPING


def test_only_partitions_of_the_open_transaction_are_verified() -> None:
    open_ = transaction(State.ONGOING)
    assert machine.verify(open_, ME, ONE) is Error.NONE
    assert machine.verify(open_, ME, OTHER) is Error.TRANSACTION_ABORTABLE
    assert machine.verify(open_, Identity(7, 2), ONE) is Error.PRODUCER_FENCED
    assert machine.verify(open_, Identity(8, 3), ONE) is Error.INVALID_PRODUCER_ID_MAPPING
    assert machine.verify(None, ME, ONE) is Error.INVALID_PRODUCER_ID_MAPPING
    assert machine.verify(transaction(), ME, ONE) is Error.TRANSACTION_ABORTABLE
    decided = transaction(State.PREPARE_COMMIT)
    assert machine.verify(decided, ME, ONE) is Error.CONCURRENT_TRANSACTIONS


# It ends


def test_tv1_keeps_the_epoch_and_tv2_raises_it() -> None:
    old = end(transaction(State.ONGOING), ME, commits=True, version=TV1)
    assert isinstance(old, Write)
    assert (old.transaction.state, old.producer) == (State.PREPARE_COMMIT, ME)
    new = end(transaction(State.ONGOING), ME, commits=False, version=TV2)
    assert isinstance(new, Write)
    assert (new.transaction.state, new.producer) == (State.PREPARE_ABORT, Identity(7, 4))
    assert new.transaction.producer == Identity(7, 4), "its markers carry the raised epoch"


def test_tv1_knows_a_repeated_end_by_the_state() -> None:
    done = transaction(State.COMPLETE_COMMIT)
    assert end(done, ME, commits=True, version=TV1) == Unchanged(ME)
    assert error_of(end(done, ME, commits=False, version=TV1)) is Error.INVALID_TXN_STATE
    undone = transaction(State.COMPLETE_ABORT)
    assert end(undone, ME, commits=False, version=TV1) == Unchanged(ME)
    assert error_of(end(undone, ME, commits=True, version=TV1)) is Error.INVALID_TXN_STATE


def test_an_abort_that_has_nothing_to_abort_is_no_error() -> None:
    """librdkafka #4849: it aborts before its first partition was added."""
    assert end(transaction(), ME, commits=False, version=TV1) == Unchanged(ME)
    assert error_of(end(transaction(), ME, commits=True, version=TV1)) is Error.INVALID_TXN_STATE
    fenced = end(transaction(), Identity(7, 2), commits=False, version=TV1)
    assert error_of(fenced) is Error.PRODUCER_FENCED


RETRY, CURRENT = Identity(7, 2), ME
EB, NONE = "epoch bump", Error.NONE
PF, ITS = Error.PRODUCER_FENCED, Error.INVALID_TXN_STATE
CONCURRENT = Error.CONCURRENT_TRANSACTIONS


@pytest.mark.parametrize(
    ("state", "abort_again", "abort", "commit_again", "commit"),
    [
        (State.EMPTY, PF, EB, PF, ITS),
        # KAFKA-20785: whoever commits after the coordinator's own abort is fenced.
        (State.COMPLETE_ABORT, NONE, EB, PF, ITS),
        (State.COMPLETE_COMMIT, ITS, EB, NONE, ITS),
    ],
)
def test_tv2_knows_a_repeated_end_by_the_epoch(
    state: State, abort_again: object, abort: object, commit_again: object, commit: object
) -> None:
    def outcome(producer: Identity, *, commits: bool) -> object:
        decision = end(transaction(state, version=TV2), producer, commits=commits, version=TV2)
        if isinstance(decision, Write):
            assert decision.producer == Identity(7, 4)
            return EB
        return decision.error if isinstance(decision, Refused) else NONE

    assert outcome(RETRY, commits=False) == abort_again
    assert outcome(CURRENT, commits=False) == abort
    assert outcome(RETRY, commits=True) == commit_again
    assert outcome(CURRENT, commits=True) == commit


@pytest.mark.parametrize("state", [State.PREPARE_COMMIT, State.PREPARE_ABORT])
def test_while_a_transaction_is_ended_only_tv1_is_told_at_once_who_is_not_its_producer(
    state: State,
) -> None:
    ending = transaction(state)
    for commits in (True, False):
        for producer, told in (
            (ME, CONCURRENT),
            (Identity(7, 2), PF),
            (Identity(7, 9), PF),
            (Identity(8, 3), Error.INVALID_PRODUCER_ID_MAPPING),
        ):
            assert error_of(end(ending, producer, commits=commits, version=TV1)) is told
            assert error_of(end(ending, producer, commits=commits, version=TV2)) is CONCURRENT
    for expected in (None, ME, Identity(7, 9), Identity(8, 3)):
        assert error_of(init(ending, Init(1_000, expected))) is CONCURRENT


def test_a_repeated_end_is_told_the_epoch_that_the_first_was() -> None:
    first = end(transaction(State.ONGOING), ME, commits=True, version=TV2)
    assert isinstance(first, Write)
    meanwhile = end(first.transaction, ME, commits=True, version=TV2)
    assert error_of(meanwhile) is Error.CONCURRENT_TRANSACTIONS
    done = machine.complete(first.transaction, 120)
    assert end(done, ME, commits=True, version=TV2) == Unchanged(first.producer)


def test_a_late_end_of_tv2_does_not_touch_the_next_transaction() -> None:
    """KAFKA-17754: in TV1 it does, since the epoch is the same."""
    ended = machine.complete(
        written(end(transaction(State.ONGOING), ME, commits=True, version=TV2)), 120
    )
    later = written(machine.add(ended, False, Identity(7, 4), [ONE], TV2, 130))
    for commits in (True, False):
        decision = end(later, ME, commits=commits, version=TV2)
        assert error_of(decision) is Error.PRODUCER_FENCED


def test_a_commit_that_loses_against_the_time_out_is_fenced() -> None:
    """KAFKA-20785, in both dialects, whenever it comes."""
    aborting = written(machine.abort(transaction(State.ONGOING), 2_000))
    assert aborting.producer == Identity(7, 4)
    aborted = machine.complete(aborting, 2_010)
    for version in (TV1, TV2):
        while_ = error_of(end(aborting, ME, commits=True, version=version))
        assert while_ is (Error.PRODUCER_FENCED if version == TV1 else CONCURRENT)
        after = end(aborted, ME, commits=True, version=version)
        assert error_of(after) is Error.PRODUCER_FENCED


# Epochs run out


def test_an_end_with_the_last_epoch_brings_a_new_producer_id() -> None:
    last = Identity(7, LAST_CLIENT_EPOCH)
    open_ = transaction(State.ONGOING, last)
    assert end(open_, last, commits=True, version=TV2) == NeedsProducerId()
    decision = end(open_, last, commits=True, version=TV2, new_id=9)
    assert isinstance(decision, Write)
    assert decision.producer == Identity(9, 0)
    decided = decision.transaction
    assert (decided.producer, decided.next) == (Identity(7, HIGHEST_EPOCH), Identity(9, 0))
    # The producer has its new id and may use it at once.
    meanwhile = machine.add(decided, False, Identity(9, 0), [ONE], TV2, 110)
    assert error_of(meanwhile) is Error.CONCURRENT_TRANSACTIONS
    done = machine.complete(decided, 120)
    assert (done.producer, done.previous_id) == (Identity(9, 0), 7)
    assert end(done, last, commits=True, version=TV2) == Unchanged(Identity(9, 0))
    assert error_of(end(done, last, commits=False, version=TV2)) is Error.INVALID_TXN_STATE


@pytest.mark.parametrize("epoch", [LAST_CLIENT_EPOCH - 1, LAST_CLIENT_EPOCH])
def test_a_producer_can_be_fenced_whatever_its_epoch(epoch: int) -> None:
    """KAFKA-20090, KAFKA-18660: the epoch must not overflow."""
    open_ = transaction(State.ONGOING, Identity(7, epoch))
    aborting = written(init(open_, Init(1_000)))
    assert aborting.producer == Identity(7, epoch + 1)
    done = machine.complete(aborting, 120)
    assert init(done, Init(1_000)) == NeedsProducerId()
    assert written(init(done, Init(1_000), 9)).producer == Identity(9, 0)
    for again in (epoch, epoch + 1):
        expecting = Init(1_000, Identity(7, again))
        decision = init(done, expecting, 9)
        assert written(decision).producer in (Identity(9, 0), Identity(7, LAST_CLIENT_EPOCH))


def test_a_producer_that_got_another_id_may_ask_again_but_a_later_one_fences_it() -> None:
    last = Identity(7, LAST_CLIENT_EPOCH)
    moved = written(init(transaction(State.COMPLETE_COMMIT, last), Init(1_000, last), 9))
    assert moved.producer == Identity(9, 0)
    assert written(init(moved, Init(1_000, last), 10)).producer == Identity(9, 0)
    other = written(init(transaction(State.COMPLETE_COMMIT, last), Init(1_000), 9))
    assert error_of(init(other, Init(1_000, last), 10)) is Error.PRODUCER_FENCED


# Time passes


def test_only_an_id_at_rest_expires() -> None:
    for state in State:
        expected = state in (State.EMPTY, State.COMPLETE_COMMIT, State.COMPLETE_ABORT)
        assert machine.has_expired(transaction(state), 150, 100) == expected
        assert not machine.has_expired(transaction(state), 149, 100)
