"""Transactions: what a producer sends in one is read by all, or by nobody.

    none --begin--> open --commit--> committed
                     |  \\--a failed message, a time-out, an exception--> aborted
                     \\--another producer took the transactional id--> fenced

Only consumers that read committed messages (the default of librdkafka, and so of `Consumer`) keep
that promise; others see what is open or aborted too.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol, Self

import confluent_kafka

from moldau.client.errors import (
    ClientError,
    DeliveryFailed,
    ProducerFenced,
    TransactionAborted,
    words_of,
)

if TYPE_CHECKING:
    from moldau.client.consumer.consumer import Consumer

TRANSACTION_TIMEOUT_S = 60.0
_RETRY_S = 0.05


class TransactionalProducer(Protocol):
    """What a transaction needs of its producer."""

    is_registered: bool

    @property
    def handle(self) -> Any: ...

    def flush(self, timeout: float | None = None) -> None: ...

    def forget_failures(self) -> None: ...


class Transaction:
    """A `with` block whose messages and offsets take effect together when it ends.

    An exception in the block aborts it, and so does a message that could not be written. With a
    consumer, its offsets become part of the transaction at the end; if it is aborted, the consumer
    goes back to what its group has committed. One thread at a time; not to be entered twice.
    """

    def __init__(
        self, producer: TransactionalProducer, consumer: Consumer | None, timeout_s: float
    ) -> None:
        self._producer = producer
        self._consumers = [] if consumer is None else [consumer]
        self._timeout_s = timeout_s
        self._sent: list[Consumer] = []
        if consumer is not None:
            _require_manual_commits(consumer)

    def __enter__(self) -> Self:
        handle = self._producer.handle
        if not self._producer.is_registered:
            self._until_done(handle.init_transactions, "could not register the transactional id")
            self._producer.is_registered = True
        try:
            handle.begin_transaction()
        except confluent_kafka.KafkaException as problem:
            raise failure("could not begin a transaction", problem.args[0]) from None
        return self

    def __exit__(self, kind: object, *problem: object) -> None:
        if kind is not None:
            # What went wrong in the block is what its reader wants to see.
            with suppress(ClientError, TimeoutError):
                self._abort()
            return
        try:
            self._producer.flush(self._timeout_s)
            for consumer in self._consumers:
                if consumer not in self._sent:
                    self.send_offsets(consumer)
        except BaseException:
            with suppress(ClientError, TimeoutError):
                self._abort()
            raise
        self._commit()

    def send_offsets(self, consumer: Consumer) -> None:
        """Commit what a consumer has given out, if and when the transaction is committed."""
        _require_manual_commits(consumer)
        if consumer not in self._consumers:
            self._consumers.append(consumer)
        self._sent.append(consumer)
        offsets, group = consumer.progress()
        if not offsets:
            return
        send = self._producer.handle.send_offsets_to_transaction
        self._until_done(
            lambda left: send(offsets, group, left), "could not send offsets to the transaction"
        )

    def _commit(self) -> None:
        commit = self._producer.handle.commit_transaction
        try:
            self._until_done(commit, "could not commit the transaction")
        except TransactionAborted:
            with suppress(ClientError, TimeoutError):
                self._abort()
            raise

    def _abort(self) -> None:
        try:
            self._until_done(
                self._producer.handle.abort_transaction, "could not abort the transaction"
            )
        finally:
            # Messages that an abort throws away are no failures to tell of later.
            with suppress(DeliveryFailed):
                self._producer.forget_failures()
            for consumer in self._consumers:
                consumer.rewind()

    def _until_done(self, attempt: Callable[[float], Any], what: str) -> None:
        """Try until it is done, time is up, or an error says that it never will be."""
        deadline = time.monotonic() + self._timeout_s
        while True:
            try:
                attempt(max(deadline - time.monotonic(), 0.001))
                return
            except confluent_kafka.KafkaException as problem:
                error = problem.args[0]
                if not error.retriable():
                    raise failure(what, error) from None
                if time.monotonic() >= deadline:
                    raise TimeoutError(
                        f"{what} within {self._timeout_s:g} s, but it may still happen: "
                        f"{words_of(error)}"
                    ) from None
            time.sleep(_RETRY_S)


def failure(what: str, error: confluent_kafka.KafkaError) -> ClientError:
    """Return what to raise for an error of librdkafka: whether a new attempt makes sense."""
    text = f"{what}: {words_of(error)}"
    if error.fatal():
        return ProducerFenced(text, error)
    return (TransactionAborted if error.txn_requires_abort() else ClientError)(text, error)


def _require_manual_commits(consumer: Consumer) -> None:
    if consumer.group is None:
        raise ClientError("a consumer without a group has no offsets to commit")
    if consumer.commits_by_itself:
        raise ClientError(
            "this consumer commits automatically, outside the transaction; create it with "
            "enable_auto_commit=False"
        )
