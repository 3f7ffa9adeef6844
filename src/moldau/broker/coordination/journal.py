"""Journals: write records to one partition of an internal topic, and know when they are safe."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from moldau.broker.coordination.records import KeyValue
from moldau.broker.partitions.partition import Partition
from moldau.log.errors import LogError
from moldau.records.batch import HEADER_SIZE, BatchError, BatchTooLarge
from moldau.records.record import Record, build_batch
from moldau.wire.errors import Error

logger = logging.getLogger("moldau.coordination")

Done = Callable[[Error], None]

# The largest overhead of a record besides its key and value.
_RECORD_OVERHEAD = 40


@dataclass(slots=True, eq=False)
class _Pending:
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

    __slots__ = ("_loop", "_pending", "_timeout_s", "leader_epoch", "partition")

    def __init__(
        self, partition: Partition, loop: asyncio.AbstractEventLoop, timeout_s: float
    ) -> None:
        self.partition = partition
        self.leader_epoch = partition.leader_epoch
        self._loop = loop
        self._timeout_s = timeout_s
        self._pending: deque[_Pending] = deque()

    def write(
        self, records: Sequence[KeyValue], now_ms: int, apply: Callable[[], None], done: Done
    ) -> None:
        """Append the records and write them out at once."""
        partition = self.partition
        if not records:
            apply()
            done(Error.NONE)
            return
        error = self._append(records, now_ms)
        partition.announce()
        if error:
            done(error)
            return
        needed = partition.log.log_end
        if not self._pending and partition.log.high_watermark >= needed:
            apply()
            done(Error.NONE)
            return
        pending = _Pending(needed, apply, done)
        pending.timer = self._loop.call_later(self._timeout_s, self._time_out, pending)
        self._pending.append(pending)
        partition.wait(self)
        partition.ask_flush()
        self.notify()

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

    def _append(self, records: Sequence[KeyValue], now_ms: int) -> Error:
        partition = self.partition
        log = partition.log
        if not self._leads:
            return Error.NOT_COORDINATOR
        if len(partition.isr) < partition.min_isr:
            return Error.COORDINATOR_NOT_AVAILABLE
        try:
            for batch in _batches(records, log.config.max_message_bytes, now_ms):
                log.append(memoryview(batch), self.leader_epoch, now_ms, from_client=False)
        except BatchTooLarge as problem:
            logger.warning("a record is too large for %s: %s", partition.topic, problem)
            error = Error.UNKNOWN_SERVER_ERROR
        except (BatchError, LogError) as problem:
            logger.error("a write to %s failed: %s", partition.topic, problem)
            error = Error.NOT_COORDINATOR
        else:
            error = Error.NONE
        failure = partition.commit()
        if failure is not None:
            logger.error("a write to %s failed: %s", partition.topic, failure)
            return Error.NOT_COORDINATOR
        return error

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


def _batches(records: Sequence[KeyValue], max_bytes: int, now_ms: int) -> Iterator[bytearray]:
    """Pack the records into as few batches as the topic's limit allows."""
    chunk: list[Record] = []
    size = HEADER_SIZE
    for key, value in records:
        more = _RECORD_OVERHEAD + len(key) + len(value or b"")
        if chunk and size + more > max_bytes:
            yield build_batch(chunk)
            chunk, size = [], HEADER_SIZE
        chunk.append(Record(len(chunk), now_ms, key, value))
        size += more
    yield build_batch(chunk)
