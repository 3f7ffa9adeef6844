"""The cleaner: compacts logs in the background, one at a time, each in a worker process. Event loop
only.
"""

from __future__ import annotations

import asyncio
import logging
import os
import subprocess
import sys
import uuid

import msgspec

from moldau.broker.partitions.partition import Partition
from moldau.broker.partitions.partitions import Partitions
from moldau.log.compaction.candidates import Candidate, candidate, job_of
from moldau.log.compaction.job import Job, Outcome
from moldau.log.compaction.swap import Swap, is_unchanged, remove_leftovers
from moldau.log.errors import LogError, StorageError
from moldau.log.files.checkpoint import read_offsets, write_offsets
from moldau.topic_partition import TopicPartition

logger = logging.getLogger("moldau.cleaner")

CHECKPOINT = "cleaner-offset-checkpoint"
# How many logs are looked at before the loop serves others again.
_LOGS_AT_A_TIME = 1000


class WorkerFailed(Exception):
    """The worker process ended without an outcome."""


class Cleaner:
    """Chooses the dirtiest log that is due, has a worker write it anew, and swaps the result in.

    How far each log is clean is kept in Kafka's `cleaner-offset-checkpoint`. If that is lost,
    logs are compacted once more from their beginning, which changes nothing else.
    """

    def __init__(self, partitions: Partitions) -> None:
        self._partitions = partitions
        self._node = partitions.node
        self._path = str(self._node.settings.folder / CHECKPOINT)
        self._worker: subprocess.Popen[bytes] | None = None
        self._stopped = False
        self._saved: dict[TopicPartition, int] = {}

    def open(self) -> None:
        """Load how far each log was clean when the broker stopped."""
        try:
            self._saved = read_offsets(self._path) or {}
        except LogError as error:
            logger.warning("%s; compacting logs from their beginning", error)
        for key, log in self._node.logs.logs.items():
            log.clean_end = self._saved.get(key, 0)

    def stop(self) -> None:
        """End the worker; the next start discards what it wrote."""
        self._stopped = True
        if self._worker is not None:
            self._worker.terminate()

    async def clean(self) -> None:
        """Compact whatever is due, until nothing is. A log that fails waits for the next time."""
        failed: set[Partition] = set()
        while not self._stopped and self._node.settings.log_cleaner_enable:
            chosen = await self._choose(failed)
            if chosen is None:
                return
            partition, what = chosen
            try:
                if not await self._compact(what):
                    failed.add(partition)
            except (WorkerFailed, StorageError) as error:
                failed.add(partition)
                if not self._stopped:
                    logger.error("compaction of %s failed: %s", _name(partition), error)
            if what.log.offline is not None:
                partition.wake()

    async def checkpoint(self) -> None:
        """Save how far logs are clean, if that has changed."""
        logs = self._node.logs.logs
        now = {key: log.clean_end for key, log in logs.items() if log.clean_end}
        if now != self._saved:
            self._saved = now
            await asyncio.to_thread(write_offsets, self._path, now)

    async def _choose(self, failed: set[Partition]) -> tuple[Partition, Candidate] | None:
        best: tuple[Partition, Candidate] | None = None
        for count, partition in enumerate(list(self._partitions.values()), 1):
            if count % _LOGS_AT_A_TIME == 0:
                await asyncio.sleep(0)
            log = partition.log
            if not log.config.compacts or log.offline is not None or partition in failed:
                continue
            try:
                if len(log.segments) > 1 and log.flushed < log.segments[-1].base:
                    await partition.force()
                found = candidate(log, self._node.now_ms())
            except StorageError as error:
                failed.add(partition)
                logger.error("%s cannot be compacted: %s", _name(partition), error)
                continue
            if found is None or not found.is_due:
                continue
            if best is None or found.dirty_ratio > best[1].dirty_ratio:
                best = partition, found
        return best

    async def _compact(self, chosen: Candidate) -> bool:
        """Do one round; False if nothing came of it and it is better to wait."""
        settings, log = self._node.settings, chosen.log
        job = job_of(
            chosen,
            uuid.uuid4().hex[:8],
            self._node.now_ms(),
            settings.log_cleaner_dedupe_buffer_size,
            settings.log_cleaner_io_max_bytes_per_second,
            os.getpid(),
        )
        try:
            outcome = await asyncio.to_thread(self._run, job)
        except WorkerFailed:
            remove_leftovers(log.folder)
            raise
        if outcome.error:
            remove_leftovers(log.folder)
            self._refuse(chosen, job, outcome)
            return False
        if not await self._swap(chosen, job, outcome):
            logger.info("%s changed during its compaction; trying again", log.folder)
            return False
        await self.checkpoint()
        logger.info(
            "compacted %s-%d up to offset %d: %d of %d records kept, %.1f of %.1f MB, %d keys",
            log.topic, log.partition, outcome.end, outcome.kept_records, outcome.read_records,
            outcome.kept_bytes / 1e6, outcome.read_bytes / 1e6, outcome.keys,
        )  # fmt: skip
        return True

    async def _swap(self, chosen: Candidate, job: Job, outcome: Outcome) -> bool:
        swap = Swap(chosen, job, outcome)
        if not swap.begin():
            return False
        try:
            # After a crash, recovery must know that the gaps it finds are no loss.
            await asyncio.to_thread(self._node.logs.prepare_checkpoint())
            await asyncio.to_thread(swap.sync)
        except StorageError:
            swap.cancel()
            raise
        try:
            if not swap.finish():
                return False
            await asyncio.to_thread(swap.sync)
        except StorageError as error:
            # Half of the names are changed, which the next start completes.
            chosen.log.fail(error)
            raise
        swap.sweep()
        return True

    def _refuse(self, chosen: Candidate, job: Job, outcome: Outcome) -> None:
        """Log why a worker failed; damage takes the log out of service."""
        log = chosen.log
        sizes = [size for _, size in job.segments]
        if outcome.is_corrupt and is_unchanged(log, chosen.segments, sizes):
            logger.critical(
                "%s-%d is offline because its data is damaged: %s",
                log.topic,
                log.partition,
                outcome.error,
            )
            log.fail(StorageError(log.folder, outcome.error))
        elif log.offline is None:
            logger.error("compaction of %s-%d failed: %s", log.topic, log.partition, outcome.error)

    def _run(self, job: Job) -> Outcome:
        """Run a worker for the job, on a thread."""
        command = [sys.executable, "-m", "moldau.log.compaction.worker"]
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        ) as worker:
            self._worker = worker
            if self._stopped:
                worker.terminate()
            output, complaint = worker.communicate(msgspec.json.encode(job))
            self._worker = None
        if worker.returncode:
            last = complaint.decode(errors="replace").strip().rpartition("\n")[2]
            raise WorkerFailed(last or f"the worker ended with status {worker.returncode}")
        return msgspec.json.decode(output, type=Outcome)


def _name(partition: Partition) -> str:
    return f"{partition.topic}-{partition.index}"
