"""Journals: write records to one partition of an internal topic, and know when they are safe."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple, ParamSpec

import msgspec

from moldau.broker.coordination.records import KeyValue
from moldau.broker.errors import code_and_message
from moldau.broker.partitions.partition import Partition
from moldau.log.errors import (
    CoordinatorFenced,
    InvalidProducerEpoch,
    InvalidTransactionState,
    LogError,
)
from moldau.log.markers import TransactionEnd, append_marker
from moldau.log.producers.verifications import Verification
from moldau.records.batch import HEADER_SIZE, BatchError, BatchTooLarge
from moldau.records.record import build_plain_batch
from moldau.wire.errors import Error

logger = logging.getLogger("moldau.coordination")

Done = Callable[[Error], None]
P = ParamSpec("P")

# The largest overhead of a record besides its key and value.
_RECORD_OVERHEAD = 40


class Transactional(NamedTuple):
    """The transaction that records are written in. The guard proves that it is known to be open,
    where they are its first in the partition."""

    producer_id: int
    producer_epoch: int
    guard: Verification | None = None


class _Pending(msgspec.Struct, eq=False):
    """A write that waits for the high watermark to reach `needed`."""

    needed: int
    apply: Callable[[], None]
    done: Done | None
    timer: asyncio.TimerHandle | None = None


class Journal:
    """Appends to one partition as its leader, in one leader epoch. Event loop only.

    Writes take effect in their order, each once every in-sync replica has it: then `apply` is
    called, and `done` with no error. `done` gets the error when that takes longer than the timeout;
    the write may still come to pass then, and is applied if it does. On a broker alone all of this
    has happened when `write` returns.

    Once another broker leads, or this one in another epoch, every write fails with NOT_COORDINATOR,
    those that wait included: what they wrote may be cut off, and others read the log by now.
    """

    __slots__ = ("_pending", "_timeout_s", "leader_epoch", "loop", "partition")

    def __init__(
        self, partition: Partition, loop: asyncio.AbstractEventLoop, timeout_s: float
    ) -> None:
        self.partition = partition
        self.leader_epoch = partition.leader_epoch
        self.loop = loop
        self._timeout_s = timeout_s
        self._pending: deque[_Pending] = deque()

    def write(
        self,
        records: Sequence[KeyValue],
        now_ms: int,
        apply: Callable[[], None],
        done: Done,
        transaction: Transactional | None = None,
    ) -> None:
        """Append the records and write them out at once; in a transaction, if one is given."""
        if not records:
            apply()
            done(Error.NONE)
            return
        self._go_on(self.append(records, now_ms, transaction), apply, done)

    def append(
        self, records: Sequence[KeyValue], now_ms: int, transaction: Transactional | None = None
    ) -> Error:
        """Append the records and write them out at once, or say why that cannot be.

        Whoever does this without `write` looks whether it `is_safe`, and waits by `when_safe` else.
        """
        return self._append(self._stage, records, now_ms, transaction)

    def _stage(
        self, records: Sequence[KeyValue], now_ms: int, transaction: Transactional | None
    ) -> None:
        log, epoch = self.partition.log, self.leader_epoch
        guard = None if transaction is None else transaction.guard
        limit = log.config.max_message_bytes
        batches = _batches(records, limit, now_ms, transaction)
        for batch in batches:
            # Before the first of them is there: all of it is written, or nothing.
            if len(batch) > limit:
                raise BatchTooLarge(len(batch), limit)
        for batch in batches:
            log.append(
                memoryview(batch), epoch, now_ms, from_client=False, has_keys=True, guard=guard
            )

    def settle(self, done: Done) -> None:
        """Call `done` once all that was written so far is safe, or the error if it cannot be."""
        if not self._leads:
            done(Error.NOT_COORDINATOR)
        elif not self._pending:
            done(Error.NONE)
        else:
            self._wait(self._pending[-1].needed, nothing, done)

    @property
    def is_settled(self) -> bool:
        """Whether all that was written so far is safe, and this broker still leads."""
        return not self._pending and self._leads

    def write_marker(
        self, end: TransactionEnd, now_ms: int, apply: Callable[[], None], done: Done
    ) -> None:
        """Append the end of a transaction and write it out at once."""
        error = self._append(append_marker, self.partition.log, end, self.leader_epoch, now_ms)
        self._go_on(error, apply, done)

    def _go_on(self, error: Error, apply: Callable[[], None], done: Done) -> None:
        if error:
            done(error)
        elif self.is_safe:
            apply()
            done(Error.NONE)
        else:
            self.when_safe(apply, done)

    @property
    def is_safe(self) -> bool:
        """Whether every in-sync replica has all that the log holds, and all of it was applied."""
        log = self.partition.log
        return not self._pending and log.high_watermark >= log.log_end

    def when_safe(self, apply: Callable[[], None], done: Done) -> None:
        """Call `apply` and `done` once what was appended last is safe; `done` with the error if
        that takes too long, or another broker leads."""
        partition = self.partition
        self._wait(partition.log.log_end, apply, done)
        partition.wait(self)
        partition.ask_flush()
        self.notify()

    def when_replicated(self, apply: Callable[[], None]) -> None:
        """Call `apply` once every in-sync replica has what the log holds by now; at once if they
        have it, and never if this broker does not lead for so long."""
        if self.is_safe:
            apply()
            return
        self._pending.append(_Pending(self.partition.log.log_end, apply, None))
        self.partition.wait(self)
        self.partition.ask_flush()
        self.notify()

    def _wait(self, needed: int, apply: Callable[[], None], done: Done) -> None:
        pending = _Pending(needed, apply, done)
        pending.timer = self.loop.call_later(self._timeout_s, self._time_out, pending)
        self._pending.append(pending)

    def notify(self) -> None:
        """The high watermark moved, or the partition changed hands."""
        pending = self._pending
        if not self._leads:
            self.close()
        while pending and self.partition.log.high_watermark >= pending[0].needed:
            first = pending.popleft()
            first.apply()
            self._finish(first, Error.NONE)
        if not pending:
            self.partition.unwait(self)

    def close(self) -> None:
        """Fail what waits: another broker leads, or this one stops."""
        while self._pending:
            self._finish(self._pending.popleft(), Error.NOT_COORDINATOR)
        self.partition.unwait(self)

    @property
    def _leads(self) -> bool:
        partition = self.partition
        return partition.is_leader and partition.leader_epoch == self.leader_epoch

    def _append(self, append: Callable[P, object], *args: P.args, **kwargs: P.kwargs) -> Error:
        partition = self.partition
        error = Error.NONE
        if not self._leads:
            error = Error.NOT_COORDINATOR
        elif len(partition.isr) < partition.min_isr:
            error = Error.COORDINATOR_NOT_AVAILABLE
        else:
            try:
                append(*args, **kwargs)
            except (BatchError, LogError) as problem:
                error = self._code_of(problem)
            failure = partition.commit()
            if failure is not None:
                logger.error("a write to %s failed: %s", partition.topic, failure)
                error = Error.NOT_COORDINATOR
        partition.announce()
        return error

    def _code_of(self, problem: BatchError | LogError) -> Error:
        topic = self.partition.topic
        if isinstance(problem, BatchTooLarge):
            logger.warning("a record is too large for %s: %s", topic, problem)
            return Error.UNKNOWN_SERVER_ERROR
        if isinstance(problem, (InvalidProducerEpoch, InvalidTransactionState, CoordinatorFenced)):
            return code_and_message(problem)[0]
        logger.error("a write to %s failed: %s", topic, problem)
        return Error.NOT_COORDINATOR

    def _time_out(self, pending: _Pending) -> None:
        done, pending.done = pending.done, None
        if done is not None:
            done(Error.COORDINATOR_NOT_AVAILABLE)

    def _finish(self, pending: _Pending, error: Error) -> None:
        if pending.timer is not None:
            pending.timer.cancel()
        done, pending.done = pending.done, None
        if done is not None:
            done(error)


def settler(answer: asyncio.Future[Error]) -> Done:
    """Make a `done` that settles a future, unless whoever waited for it is gone."""

    def settle(error: Error) -> None:
        if not answer.done():
            answer.set_result(error)

    return settle


def nothing() -> None:
    """Apply nothing: the record is all there is to it."""


def _batches(
    records: Sequence[KeyValue], max_bytes: int, now_ms: int, transaction: Transactional | None
) -> list[bytearray]:
    """Pack the records into as few batches as the topic's limit allows."""
    size = HEADER_SIZE
    for key, value in records:
        size += _RECORD_OVERHEAD + len(key) + (0 if value is None else len(value))
    if size <= max_bytes:
        # As nearly always.
        return [_batch(records, now_ms, transaction)]
    batches: list[bytearray] = []
    chunk: list[KeyValue] = []
    size = HEADER_SIZE
    for key, value in records:
        more = _RECORD_OVERHEAD + len(key) + (0 if value is None else len(value))
        if chunk and size + more > max_bytes:
            batches.append(_batch(chunk, now_ms, transaction))
            chunk, size = [], HEADER_SIZE
        chunk.append((key, value))
        size += more
    batches.append(_batch(chunk, now_ms, transaction))
    return batches


def _batch(
    records: Sequence[KeyValue], now_ms: int, transaction: Transactional | None
) -> bytearray:
    if transaction is None:
        return build_plain_batch(records, now_ms)
    return build_plain_batch(
        records,
        now_ms,
        producer_id=transaction.producer_id,
        producer_epoch=transaction.producer_epoch,
        is_transactional=True,
    )
