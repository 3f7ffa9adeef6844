"""Two-phase commit in the state machine (KIP-939): who ends a transaction, and who is fenced."""

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
    Unchanged,
    Write,
)
from moldau.broker.coordination.transactions.transaction import (
    NO_TIMEOUT_MS,
    NOBODY,
    Identity,
    State,
    Transaction,
)
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


def two_phase(state: State = State.ONGOING, producer: Identity = ME) -> Transaction:
    return replace(transaction(state, producer), timeout_ms=NO_TIMEOUT_MS)


KEEP = Init(NO_TIMEOUT_MS, keeps=True)


def test_no_time_out_ends_a_two_phase_transaction() -> None:
    assert machine.has_timed_out(transaction(State.ONGOING), 1_051)
    assert not machine.has_timed_out(transaction(State.ONGOING), 1_050)
    assert not machine.has_timed_out(two_phase(), NO_TIMEOUT_MS * 4)


@pytest.mark.parametrize("commits", [True, False])
def test_another_process_takes_the_open_transaction_over_and_ends_it(commits: bool) -> None:
    decision = init(two_phase(), KEEP)
    assert isinstance(decision, Write)
    heir = Identity(7, 5)
    assert (decision.producer, decision.ongoing, decision.error) == (heir, ME, Error.NONE)
    # Neither of them has the epoch that partitions are told.
    assert decision.fence == Identity(7, 4)
    kept = decision.transaction
    assert (kept.state, kept.producer) == (State.ONGOING, ME)
    assert kept.partitions == {ONE}
    # The one that wrote the data is fenced, and the heir can only end it.
    assert error_of(end(kept, ME, commits=True, version=TV2)) is Error.PRODUCER_FENCED
    assert machine.verify(kept, ME, ONE) is Error.PRODUCER_FENCED
    assert error_of(machine.add(kept, False, heir, [OTHER], TV2, 110)) is Error.INVALID_TXN_STATE
    ended = end(kept, heir, commits=commits, version=TV2)
    assert isinstance(ended, Write)
    assert ended.producer == ended.transaction.producer == Identity(7, 6)
    done = machine.complete(ended.transaction, 130)
    assert end(done, heir, commits=commits, version=TV2) == Unchanged(Identity(7, 6))


def test_the_last_to_take_it_over_is_the_one_that_ends_it() -> None:
    first = written(init(two_phase(), KEEP))
    second = init(first, KEEP)
    assert isinstance(second, Write)
    assert (second.producer, second.ongoing, second.fence) == (Identity(7, 7), ME, Identity(7, 6))
    decision = end(second.transaction, Identity(7, 5), commits=True, version=TV2)
    assert error_of(decision) is Error.PRODUCER_FENCED
    committed = written(end(second.transaction, Identity(7, 7), commits=True, version=TV2))
    assert committed.state is State.PREPARE_COMMIT


@pytest.mark.parametrize("epoch", [LAST_CLIENT_EPOCH, LAST_CLIENT_EPOCH - 1])
def test_it_is_taken_over_by_another_producer_id_where_epochs_run_out(epoch: int) -> None:
    last = Identity(7, epoch)
    assert init(two_phase(producer=last), KEEP) == NeedsProducerId()
    decision = init(two_phase(producer=last), KEEP, 9)
    assert isinstance(decision, Write)
    assert decision.fence == Identity(7, HIGHEST_EPOCH)
    kept = decision.transaction
    assert kept.next == Identity(9, 0)
    ended = end(kept, Identity(9, 0), commits=True, version=TV2)
    assert isinstance(ended, Write)
    assert ended.transaction.producer == Identity(7, HIGHEST_EPOCH)
    assert machine.complete(ended.transaction, 130).producer == Identity(9, 1) == ended.producer


def test_a_producer_that_does_not_keep_aborts_it_and_fences_all_before() -> None:
    kept = written(init(two_phase(), KEEP))
    aborting = written(init(kept, Init(1_000)))
    assert (aborting.state, aborting.producer) == (State.PREPARE_ABORT, Identity(7, 6))
    begun = written(init(machine.complete(aborting, 120), Init(1_000)))
    assert (begun.producer, begun.next) == (Identity(7, 7), NOBODY)


@pytest.mark.parametrize("version", [TV1, TV2])
@pytest.mark.parametrize("times", [1, 2, 3])
@pytest.mark.parametrize("epoch", [3, *range(LAST_CLIENT_EPOCH - 7, LAST_CLIENT_EPOCH + 1)])
def test_markers_are_later_than_every_fence_and_no_fence_is_anybodys_epoch(
    epoch: int, times: int, version: int
) -> None:
    """A log refuses a marker that is not, and the transaction would stay open there for ever."""
    found, fences, owners = two_phase(producer=Identity(7, epoch)), [], [Identity(7, epoch)]
    for number in range(times):
        decision = init(found, KEEP, 9 + number)
        assert isinstance(decision, Write)
        found = decision.transaction
        fences.append(decision.fence)
        owners.append(decision.producer)
    ended = written(end(found, found.owner, commits=True, version=version, new_id=20))
    assert {each.producer_id for each in (*fences, ended.producer)} == {7}
    assert set(owners).isdisjoint(fences)
    for owner, fence in zip(owners, fences, strict=False):
        assert owner.producer_id != 7 or owner.epoch < fence.epoch
        assert fence.epoch < ended.producer.epoch or ended.producer.epoch == HIGHEST_EPOCH


def test_there_is_nothing_to_keep_where_none_is_open() -> None:
    for state in (State.EMPTY, State.COMPLETE_COMMIT, State.COMPLETE_ABORT):
        decision = init(two_phase(state), KEEP)
        assert isinstance(decision, Write)
        assert (decision.ongoing, decision.producer) == (NOBODY, Identity(7, 4))
    decided = init(two_phase(State.PREPARE_COMMIT), KEEP)
    assert error_of(decided) is Error.CONCURRENT_TRANSACTIONS
