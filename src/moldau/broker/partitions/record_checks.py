"""Checks of records on the event loop: what is small is done at once, the rest aside.

Only a few large ones run at a time, since each may take 128 MB. A connection whose request waits
for one is not read from meanwhile, so its requests stay in order. Others may write to the same
partition before it, as if they had been faster.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import NamedTuple

from moldau.broker.partitions.large_writes import LARGE, Batches, LargeWrite
from moldau.broker.partitions.open_transaction import OpenTransaction
from moldau.broker.partitions.partitions import Partitions
from moldau.broker.partitions.verification import Verified, verify
from moldau.broker.slices import Slices
from moldau.log.record_check import RecordCheck
from moldau.records.batch import HEADER_SIZE, BatchError, InvalidRecord, read_header
from moldau.wire.primitives import TopicKey
from moldau.wire.produce import ProduceRequest, produce_codec

# How many steps of all checks of a request are done at once.
_STEPS_AT_ONCE = 3

Checks = dict[tuple[TopicKey, int], RecordCheck]


class CheckedProduce(NamedTuple):
    """A Produce request, and the checks of what it writes to topics that ask for one.

    A large one is also written as far as it can be before it is appended (`write`); a transactional
    one is `verified`. Nothing is done for topics that its sender is `denied`.
    """

    request: ProduceRequest
    checks: Checks
    write: LargeWrite | None = None
    verified: Verified | None = None
    denied: Collection[TopicKey] = ()

    def end(self) -> None:
        """The request has been handled."""
        if self.write is not None:
            self.write.end()

    def batches(self, partitions: Partitions) -> Batches:
        """Return what the request appends, as it is after the checks."""
        found: Batches = []
        for key, batches in self.request.without(self.denied).topics:
            topic = partitions.topic_name(key)
            for index, batch in batches:
                if batch:
                    check = self.checks.get((key, index))
                    found.append(((topic, index), batch if check is None else check.batch))
        return found

    def must_wait(self, partitions: Partitions) -> bool:
        """Return whether somebody holds a partition of the request."""
        writes = partitions.large_writes
        return bool(writes.held) and writes.release_of(self.batches(partitions)) is not None


def begin_checks(
    partitions: Partitions, version: int, start: int, frame: memoryview
) -> tuple[CheckedProduce, bool]:
    """Begin the checks of a Produce request; whether all of them are done."""
    checks: Checks = {}
    is_done = True
    steps = _STEPS_AT_ONCE
    request = produce_codec(version).decode(frame, start)
    for key, batches in request.topics:
        topic = partitions.topic_name(key)
        for index, batch in batches:
            partition = partitions.get((topic, index))
            if partition is None or not batch or len(batch) < HEADER_SIZE:
                continue
            config = partition.log.config
            if config.looks_into_records and len(batch) <= config.max_message_bytes:
                check = checks[key, index] = RecordCheck(batch, config)
                while True:
                    if steps == 0 or check.is_long:
                        is_done = False
                        break
                    steps -= 1
                    if not check.step():
                        break
                is_done = is_done and not check.needs_schemas
    return CheckedProduce(request, checks), is_done


async def prepare(
    partitions: Partitions,
    version: int,
    start: int,
    frame: memoryview,
    denied: Collection[TopicKey] = (),
) -> CheckedProduce:
    """Do what a Produce request that its connection has put aside has to wait for."""
    checked, _ = begin_checks(partitions, version, start, frame)
    if denied:
        allowed = {key: check for key, check in checked.checks.items() if key[0] not in denied}
        checked = checked._replace(checks=allowed, denied=denied)
    if partitions.verifier is not None and checked.request.transactional_id is not None:
        verified = await verify(partitions, checked.request.without(denied), version)
        checked = checked._replace(verified=verified)
    if checked.checks:
        await finish_checks(checked.checks, partitions.lookups)
        await _check_schemas(checked, partitions, version)
    batches = checked.batches(partitions)
    if len(frame) > LARGE:
        return checked._replace(write=await partitions.large_writes.write(batches))
    await partitions.large_writes.wait(batches)
    return checked


async def _check_schemas(checked: CheckedProduce, partitions: Partitions, version: int) -> None:
    """Have the records of topics that ask for it compared with the schemas that they name.

    What will be refused, or is in the log already, is left unchecked, so that nothing of it is
    written elsewhere: should it be appended after all, it is refused for that.
    """
    for (key, index), check in checked.checks.items():
        topic = partitions.topic_name(key)
        place = (topic, index)
        partition = partitions.get(place)
        if not check.needs_schemas or check.error is not None or partition is None:
            continue
        if partitions.door is None:
            check.error = InvalidRecord(
                f"{topic} accepts only records with registered schemas, but this broker has no "
                "registry; set http.listen on it"
            )
            continue
        log, verified = partition.log, checked.verified
        header = read_header(check.batch)
        producer = (header.producer_id, header.producer_epoch)
        if header.producer_id >= 0 and log.producers.is_written(
            *producer, header.base_sequence, header.last_offset_delta
        ):
            continue
        transaction: OpenTransaction | None = None
        if header.is_transactional:
            if verified is not None:
                named = checked.request.transactional_id
                transaction = verified.transaction(place, log.producers, named, version)
            if transaction is None:
                continue
        found = await partitions.door.check(place, check.batch, log.config, transaction)
        if isinstance(found, tuple):
            assert verified is not None
            verified.errors[place] = found
            continue
        check.needs_schemas = False
        if isinstance(found, BatchError):
            check.error = found
            continue
        check.batch = found


async def finish_checks(checks: Checks, slots: asyncio.Semaphore) -> None:
    """Do the remaining steps, long ones on a thread, and serve others in between."""
    loop = asyncio.get_running_loop()
    async with slots:
        slices = Slices()
        for check in checks.values():
            while True:
                if check.is_long:
                    is_more = await loop.run_in_executor(None, check.step)
                else:
                    is_more = check.step()
                    await slices.rest()
                if not is_more:
                    break
