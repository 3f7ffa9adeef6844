"""Held transactions: the transactional ids of one shard, and what is being written of each."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from moldau.broker.coordination.journal import Done, Journal
from moldau.broker.coordination.records import InvalidRecord
from moldau.broker.coordination.transactions.machine import DECIDED, FOLLOWS
from moldau.broker.coordination.transactions.records import key_of, read_key, read_value, value_of
from moldau.broker.coordination.transactions.transaction import Transaction
from moldau.wire.errors import Error


class HeldTransaction:
    """One transactional id: what the log says of it, and whether something is being written.

    `value` is None until the first record is safe. While `is_pending` nothing else is written of
    it: a write whose fate is not known may still come to pass.
    """

    __slots__ = ("_waiting", "id", "is_pending", "value")

    def __init__(self, id: str, value: Transaction | None = None) -> None:
        self.id = id
        self.value = value
        self.is_pending = False
        self._waiting: list[asyncio.Future[None]] = []

    @property
    def is_settled(self) -> bool:
        """Whether it could change: nothing is being written, and no markers are."""
        return not self.is_pending and (self.value is None or self.value.state not in DECIDED)

    def when_settled(self, loop: asyncio.AbstractEventLoop) -> asyncio.Future[None]:
        """Return a future that is done when it is worth deciding again."""
        waiting: asyncio.Future[None] = loop.create_future()
        self._waiting.append(waiting)
        return waiting

    def settled(self) -> None:
        """Have everybody who waits decide again."""
        waiting, self._waiting = self._waiting, []
        for each in waiting:
            if not each.done():
                each.set_result(None)


class HeldTransactions:
    """The transactions of one shard, by transactional id: the state that a shard of
    `__transaction_state` holds.

    `decided` is called with one that is to be carried out: its markers are to be written.
    """

    __slots__ = ("_decided", "by_id", "has_ended", "journal")

    def __init__(
        self, journal: Journal, decided: Callable[[HeldTransactions, HeldTransaction], None]
    ) -> None:
        self.by_id: dict[str, HeldTransaction] = {}
        self.journal = journal
        self.has_ended = False
        self._decided = decided

    def __str__(self) -> str:
        return f"{len(self.by_id)} transactional ids"

    @property
    def epoch(self) -> int:
        """The coordinator's epoch, which its markers carry."""
        return self.journal.leader_epoch

    def get_or_create(self, id: str) -> HeldTransaction:
        held = self.by_id.get(id)
        if held is None:
            held = self.by_id[id] = HeldTransaction(id)
        return held

    def write(
        self, held: HeldTransaction, transaction: Transaction, now_ms: int, done: Done
    ) -> None:
        """Write what a transaction is to be; it is so, and `done` is called, once it is safe.

        After a write that takes too long the fate of the transaction is not known, and it stays
        pending until it is. `done` gets the error then.
        """
        assert not held.is_pending, held.id
        assert held.value is None or held.value.state in FOLLOWS[transaction.state], held.value

        def apply() -> None:
            held.value = transaction
            self._go_on(held)

        self._write(held, value_of(transaction), now_ms, apply, done)

    def forget(self, held: HeldTransaction, now_ms: int, done: Done) -> None:
        """Write that a transactional id is gone; it is, once that is safe."""
        assert not held.is_pending, held.id

        def apply() -> None:
            held.value = None
            if self.by_id.get(held.id) is held:
                del self.by_id[held.id]
            held.is_pending = False
            held.settled()

        self._write(held, None, now_ms, apply, done)

    def _write(
        self,
        held: HeldTransaction,
        value: bytes | None,
        now_ms: int,
        apply: Callable[[], None],
        done: Done,
    ) -> None:
        is_appending = True

        def finish(error: Error) -> None:
            if error and is_appending:
                # Nothing was appended.
                held.is_pending = False
                if held.value is None:
                    self.by_id.pop(held.id, None)
                held.settled()
            done(error)

        held.is_pending = True
        self.journal.write([(key_of(held.id), value)], now_ms, apply, finish)
        is_appending = False

    def _go_on(self, held: HeldTransaction) -> None:
        held.is_pending = False
        assert held.value is not None
        if held.value.state in DECIDED:
            self._decided(self, held)
        if held.is_settled:
            held.settled()

    def read_back(self, key: bytes, value: bytes) -> None:
        id = read_key(key)
        if id is not None:
            self.by_id[id] = HeldTransaction(id, read_value(id, value))

    def read_back_open(self, producer_id: int, key: bytes, value: bytes | None) -> None:
        raise InvalidRecord(f"producer {producer_id} wrote it in a transaction")

    def begin(self) -> None:
        for held in list(self.by_id.values()):
            if held.value is not None and held.value.state in DECIDED:
                self._decided(self, held)

    def end(self) -> None:
        self.has_ended = True
        for held in self.by_id.values():
            held.settled()
