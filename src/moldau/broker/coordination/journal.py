"""Writing records to one partition of `__consumer_offsets`, and knowing when they are safe."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from moldau.broker.partitions.partition import Partition
from moldau.log.errors import LogError
from moldau.records.batch import HEADER_SIZE, BatchError, BatchTooLarge
from moldau.records.record import Record, build_batch
from moldau.wire.errors import Error

logger = logging.getLogger("moldau.groups")

# Key and value; no value is a tombstone.
KeyValue = tuple[bytes, bytes | None]
Done = Callable[[Error], None]

# What a record takes besides its key and value, at most.
_RECORD_OVERHEAD = 40


@dataclass(slots=True, eq=False)
class _Pending:
    """A write that waits for the high watermark to reach `needed`."""

    needed: int
    apply: Callable[[], None]
    done: Done | None
    timer: asyncio.TimerHandle | None = None


class Journal:
    """Appends to one partition as its leader. Event loop only.

    Writes take effect in their order, each once every in-sync replica has it: then `apply` is
    called, and `done` with no error. `done` gets the error when that takes longer than the timeout;
    the write may still come to pass then, and is applied if it does. On a broker alone all of this
    has happened when `write` returns.
    """

    __slots__ = ("_loop", "_pending", "_timeout_s", "partition")

    def __init__(
        self, partition: Partition, loop: asyncio.AbstractEventLoop, timeout_s: float
    ) -> None:
        self.partition = partition
        self._loop = loop
        self._timeout_s = timeout_s
        self._pending: deque[_Pending] = deque()

    def write(
        self, records: Sequence[KeyValue], now_ms: int, apply: Callable[[], None], done: Done
    ) -> None:
        """Appends the records and writes them out at once."""
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
        while pending and self.partition.log.high_watermark >= pending[0].needed:
            first = pending.popleft()
            first.apply()
            self._finish(first, Error.NONE)
        if pending and not self.partition.is_leader:
            self.close()
        if not pending:
            self.partition.unwait(self)

    def close(self) -> None:
        """Another broker leads, or this one stops: whoever waits must ask there."""
        while self._pending:
            self._finish(self._pending.popleft(), Error.NOT_COORDINATOR)
        self.partition.unwait(self)

    def _append(self, records: Sequence[KeyValue], now_ms: int) -> Error:
        partition = self.partition
        log = partition.log
        if not partition.is_leader:
            return Error.NOT_COORDINATOR
        if len(partition.isr) < partition.min_isr:
            return Error.COORDINATOR_NOT_AVAILABLE
        try:
            for batch in _batches(records, log.config.max_message_bytes, now_ms):
                log.append(memoryview(batch), partition.leader_epoch, now_ms, from_client=False)
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


def _batches(records: Sequence[KeyValue], max_bytes: int, now_ms: int) -> Iterator[bytearray]:
    """The records in as few batches as the topic's limit allows."""
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
