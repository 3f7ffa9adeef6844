"""Fresh cuts: logs that were truncated so lately that the disk may not know.

Who is elected within moments of following another must not write yet. After a power failure, pages
of what was cut off could come back among what it writes in their place, and a recovery point beyond
the cut would hide where the new epoch began. Until the cut is on disk, the election is as if this
broker had not heard of it: clients and followers ask again.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable

from moldau.broker.node import Node
from moldau.broker.partitions.partition import Partition
from moldau.broker.slices import Slices
from moldau.log.errors import StorageError
from moldau.log.flushes.flushing import has_unforced_cut
from moldau.log.truncation import promises_more

logger = logging.getLogger("moldau.broker")

# After how long a disk is tried again that refused.
_AGAIN_S = 1.0
# After how long the loop serves others, where thousands are elected.
_SLICE_S = 0.005


def is_fresh(partition: Partition) -> bool:
    """Return whether a cut of the log, or the recovery point before it, is not on disk yet."""
    log = partition.log
    # One that is offline takes no records.
    return log.offline is None and (partition.is_cut or has_unforced_cut(log))


class FreshCuts:
    """Forces the cuts of partitions to disk that are to be led here. Event loop only.

    `forced` is called with each of them then, one in a turn of the loop: thousands may be elected
    at once. Each waits for its own log, and for a checkpoint if that promises too much, which all
    share. Whatever goes wrong is logged, and tried again.
    """

    def __init__(self, node: Node, forced: Callable[[Partition], None]) -> None:
        self._node = node
        self._forced = forced
        self._waiting: dict[Partition, None] = {}
        # Those that have a task, or are about to, which ends when they are led or left out.
        self._tended: set[Partition] = set()
        self._entered: deque[Partition] = deque()
        self._checkpoints = asyncio.Lock()
        self._turns = asyncio.Lock()

    def force(self, partition: Partition) -> None:
        """Call `forced` once the disk has it, unless the partition is left out before."""
        self._waiting[partition] = None
        if partition not in self._tended:
            self._tended.add(partition)
            self._entered.append(partition)
            if len(self._entered) == 1:
                self._node.spawn(self._begin())

    def leave_out(self, partition: Partition) -> None:
        """Wait for it no more: it has another role, or has gone."""
        self._waiting.pop(partition, None)

    async def _begin(self) -> None:
        slices = Slices()
        while self._entered:
            self._node.spawn(self._tend(self._entered.popleft()))
            if slices.took_s > _SLICE_S:
                await slices.rest()

    async def _tend(self, partition: Partition) -> None:
        try:
            while partition in self._waiting:
                try:
                    if has_unforced_cut(partition.log):
                        await partition.force()
                    if self._wants_checkpoint(partition):
                        await self._save_checkpoint(partition)
                    await self._take_turn(partition)
                except Exception:
                    logger.exception(
                        "cannot lead %s-%d yet, trying again", partition.topic, partition.index
                    )
                if partition in self._waiting:
                    await asyncio.sleep(_AGAIN_S)
        finally:
            self._tended.discard(partition)

    async def _take_turn(self, partition: Partition) -> None:
        async with self._turns:
            if partition not in self._waiting or is_fresh(partition):
                return
            del self._waiting[partition]
            try:
                self._forced(partition)
            except Exception:
                self._waiting[partition] = None
                raise
            await asyncio.sleep(0)

    def _wants_checkpoint(self, partition: Partition) -> bool:
        is_waiting = partition in self._waiting
        return is_waiting and partition.is_cut and partition.log.offline is None

    async def _save_checkpoint(self, partition: Partition) -> None:
        async with self._checkpoints:
            # Another one's may have been for this one, too.
            while self._wants_checkpoint(partition):
                cut = [each for each in self._waiting if each.is_cut]
                try:
                    await asyncio.to_thread(self._node.logs.prepare_checkpoint())
                except Exception as error:
                    self._complain(cut, error)
                    await asyncio.sleep(_AGAIN_S)
                    continue
                for each in cut:
                    each.is_cut = promises_more(each.log, each.log.log_end)

    def _complain(self, cut: list[Partition], error: Exception) -> None:
        is_refusal = isinstance(error, StorageError)
        logger.error(
            "cannot lead %d partitions yet: could not save a checkpoint after a truncation, "
            "trying again: %s", len(cut), error, exc_info=not is_refusal,
        )  # fmt: skip
        if isinstance(error, StorageError):
            for each in cut:
                # A broken disk stays broken: another replica that is in sync is to lead.
                each.log.report(error)
