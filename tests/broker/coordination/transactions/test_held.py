"""Held transactions, and when they expire, over a journal that does what a test says."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from typing import cast

import pytest

from moldau.broker.coordination.journal import Done, Journal
from moldau.broker.coordination.records import InvalidRecord
from moldau.broker.coordination.transactions.expiry import abort_timed_out, forget_expired
from moldau.broker.coordination.transactions.held import HeldTransaction, HeldTransactions
from moldau.broker.coordination.transactions.records import key_of, value_of
from moldau.broker.coordination.transactions.transaction import State, Transaction
from moldau.wire.errors import Error
from tests.broker.coordination.transactions.test_machine import transaction

KeyValue = tuple[bytes, bytes | None]


class Paper:
    """A journal whose writes are safe, late or refused when the test says so."""

    leader_epoch = 5

    def __init__(self) -> None:
        self.written: list[KeyValue] = []
        self.waiting: list[tuple[Callable[[], None], Done]] = []
        self.refuses: Error | None = None

    def write(
        self, entries: Sequence[KeyValue], now_ms: int, apply: Callable[[], None], done: Done
    ) -> None:
        if self.refuses is not None:
            done(self.refuses)
            return
        self.written += entries
        self.waiting.append((apply, done))

    def make_safe(self) -> None:
        waiting, self.waiting = self.waiting, []
        for apply, done in waiting:
            apply()
            done(Error.NONE)

    def time_out(self) -> None:
        for _, done in self.waiting:
            done(Error.REQUEST_TIMED_OUT)


@pytest.fixture
def paper() -> Paper:
    return Paper()


@pytest.fixture
def decided() -> list[HeldTransaction]:
    """The transactions that were to be carried out."""
    return []


@pytest.fixture
def shard(paper: Paper, decided: list[HeldTransaction]) -> HeldTransactions:
    return HeldTransactions(cast(Journal, paper), lambda _, held: decided.append(held))


@pytest.fixture
def answers() -> list[Error]:
    return []


def hold(shard: HeldTransactions, state: State, id: str = "t") -> HeldTransaction:
    held = shard.get_or_create(id)
    held.value = transaction(state)
    return held


def write(shard: HeldTransactions, held: HeldTransaction, state: State, done: Done) -> Transaction:
    new = transaction(state)
    shard.write(held, new, 100, done)
    return new


def test_what_is_written_counts_when_it_is_safe(
    shard: HeldTransactions, paper: Paper, answers: list[Error]
) -> None:
    held = hold(shard, State.EMPTY)
    before = held.value
    new = write(shard, held, State.ONGOING, answers.append)
    assert (held.value, held.is_pending, held.is_settled) == (before, True, False)
    assert paper.written == [(key_of("t"), value_of(new))]
    paper.make_safe()
    assert (held.value, held.is_pending, held.is_settled) == (new, False, True)
    assert answers == [Error.NONE]


def test_nothing_else_is_written_while_a_write_is_pending(shard: HeldTransactions) -> None:
    held = hold(shard, State.ONGOING)
    write(shard, held, State.PREPARE_COMMIT, lambda _: None)
    with pytest.raises(AssertionError):
        write(shard, held, State.PREPARE_ABORT, lambda _: None)
    with pytest.raises(AssertionError):
        shard.forget(held, 100, lambda _: None)


def test_no_state_follows_one_that_it_may_not(shard: HeldTransactions) -> None:
    held = hold(shard, State.PREPARE_COMMIT)
    with pytest.raises(AssertionError):
        write(shard, held, State.COMPLETE_ABORT, lambda _: None)


def test_a_write_that_takes_too_long_stays_pending_until_its_fate_is_known(
    shard: HeldTransactions, paper: Paper, answers: list[Error]
) -> None:
    held = hold(shard, State.ONGOING)
    new = write(shard, held, State.PREPARE_COMMIT, answers.append)
    paper.time_out()
    assert answers == [Error.REQUEST_TIMED_OUT]
    assert held.is_pending
    paper.make_safe()
    assert (held.is_pending, held.value) == (False, new)


def test_a_write_that_was_refused_changes_nothing(
    shard: HeldTransactions, paper: Paper, answers: list[Error]
) -> None:
    paper.refuses = Error.NOT_ENOUGH_REPLICAS
    held = hold(shard, State.ONGOING)
    before = held.value
    write(shard, held, State.PREPARE_COMMIT, answers.append)
    assert (held.is_pending, held.value) == (False, before)
    assert shard.by_id == {"t": held}
    # One that had never been written is not known afterwards either.
    new = shard.get_or_create("new")
    write(shard, new, State.EMPTY, answers.append)
    assert shard.by_id == {"t": held}
    assert answers == [Error.NOT_ENOUGH_REPLICAS] * 2


def test_what_is_decided_is_carried_out_once_it_is_safe(
    shard: HeldTransactions, paper: Paper, decided: list[HeldTransaction]
) -> None:
    held = hold(shard, State.ONGOING)
    write(shard, held, State.PREPARE_ABORT, lambda _: None)
    assert decided == []
    paper.make_safe()
    assert decided == [held]
    assert not held.is_settled, "its markers are being written"
    write(shard, held, State.COMPLETE_ABORT, lambda _: None)
    paper.make_safe()
    assert decided == [held]
    assert held.is_settled


def test_an_id_is_forgotten_once_its_tombstone_is_safe(
    shard: HeldTransactions, paper: Paper
) -> None:
    held = hold(shard, State.COMPLETE_COMMIT)
    shard.forget(held, 100, lambda _: None)
    assert paper.written == [(key_of("t"), None)]
    assert shard.by_id == {"t": held}
    paper.make_safe()
    assert shard.by_id == {}
    assert (held.value, held.is_pending) == (None, False)


def test_a_tombstone_does_not_forget_another_of_the_same_id(
    shard: HeldTransactions, paper: Paper
) -> None:
    shard.forget(hold(shard, State.COMPLETE_COMMIT), 100, lambda _: None)
    other = shard.by_id["t"] = HeldTransaction("t", transaction())
    paper.make_safe()
    assert shard.by_id == {"t": other}


def test_whoever_waits_decides_again_when_it_is_settled_and_when_the_shard_ends(
    shard: HeldTransactions, paper: Paper
) -> None:
    loop = asyncio.new_event_loop()
    held = hold(shard, State.ONGOING)
    first = held.when_settled(loop)
    write(shard, held, State.PREPARE_COMMIT, lambda _: None)
    paper.make_safe()
    assert not first.done()
    write(shard, held, State.COMPLETE_COMMIT, lambda _: None)
    paper.make_safe()
    assert first.done()
    second, gone = held.when_settled(loop), held.when_settled(loop)
    gone.cancel()
    shard.end()
    assert second.done()
    assert shard.has_ended
    paper.refuses = Error.NOT_ENOUGH_REPLICAS
    third = held.when_settled(loop)
    write(shard, held, State.EMPTY, lambda _: None)
    assert third.done()
    paper.refuses = None
    fourth = held.when_settled(loop)
    shard.forget(held, 100, lambda _: None)
    paper.make_safe()
    assert fourth.done()
    loop.close()


def test_a_new_coordinator_carries_out_what_was_decided_and_no_more(
    shard: HeldTransactions, decided: list[HeldTransaction]
) -> None:
    for state in (State.EMPTY, State.ONGOING, State.PREPARE_COMMIT, State.PREPARE_ABORT):
        shard.read_back(key_of(state.name), value_of(transaction(state)))
    shard.get_or_create("never written")
    shard.begin()
    assert [held.id for held in decided] == ["PREPARE_COMMIT", "PREPARE_ABORT"]
    assert shard.epoch == 5


def test_an_id_is_held_once_and_keys_of_other_kinds_are_passed_over(
    shard: HeldTransactions,
) -> None:
    held = hold(shard, State.EMPTY)
    assert shard.get_or_create("t") is held
    shard.read_back(b"\x00\x09", b"of a later version")
    assert shard.by_id == {"t": held}


def test_records_of_producers_are_not_transactions(shard: HeldTransactions) -> None:
    with pytest.raises(InvalidRecord):
        shard.read_back_open(7, key_of("t"), None)


# Time passes


def all_of(*shards: HeldTransactions) -> list[tuple[HeldTransactions, HeldTransaction]]:
    return [(shard, held) for shard in shards for held in shard.by_id.values()]


@pytest.fixture
def ended(paper: Paper) -> Iterator[HeldTransactions]:
    """The shard of a coordinator that is one no more."""
    shard = HeldTransactions(cast(Journal, paper), lambda *_: None)
    hold(shard, State.ONGOING, "elsewhere")
    hold(shard, State.EMPTY, "elsewhere at rest")
    yield shard
    assert shard.by_id.keys() == {"elsewhere", "elsewhere at rest"}


def test_only_settled_open_transactions_are_aborted_by_time(
    shard: HeldTransactions, ended: HeldTransactions
) -> None:
    ended.end()
    for state in (State.EMPTY, State.ONGOING, State.PREPARE_COMMIT):
        hold(shard, state, state.name)
    hold(shard, State.ONGOING, "pending").is_pending = True
    shard.get_or_create("never written")
    aborted: list[str] = []

    async def abort(held: HeldTransaction) -> None:
        aborted.append(held.id)

    # They began at 50, and may take 1,000 ms.
    asyncio.run(abort_timed_out(all_of(shard, ended), 1_050, abort))
    assert aborted == []
    asyncio.run(abort_timed_out(all_of(shard, ended), 1_051, abort))
    assert aborted == ["ONGOING"]


def test_only_settled_ids_at_rest_are_forgotten(
    shard: HeldTransactions, ended: HeldTransactions, paper: Paper
) -> None:
    ended.end()
    for state in (State.EMPTY, State.ONGOING, State.PREPARE_COMMIT):
        hold(shard, state, state.name)
    hold(shard, State.EMPTY, "pending").is_pending = True
    asyncio.run(forget_expired(all_of(shard, ended), 1_049, 1_000))
    assert paper.written == []
    asyncio.run(forget_expired(all_of(shard, ended), 1_050, 1_000))
    assert paper.written == [(key_of("EMPTY"), None)]
