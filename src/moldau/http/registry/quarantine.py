"""The quarantine: topics for records that failed the check against their schemas.

A record that is set aside is written here, and on every in-sync replica, before the rest of its
batch is appended. A batch that is not appended after all, or not known to be, is sent again, and
may leave its records here twice.

In a transaction, both are part of it:

    add         the coordinator has the quarantine's partition among those that it ends
    (look)      no marker has ended the transaction in the batch's own log, or nothing is written:
                a late batch of TV1 may have been added to the producer's next transaction
    write       the quarantine's leader asks the coordinator once more before the first record of a
                transaction, as for any write: a marker may have overtaken this one
    append      the batch; the next transaction has the same sequence for another, so it cannot be
                appended to that one

So whoever reads committed records sees both or neither. Such records have the producer's id and
epoch, but no sequence: several brokers may write them at the same time.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from moldau.broker.errors import code_and_message
from moldau.broker.partitions.open_transaction import OpenTransaction
from moldau.broker.partitions.partition import Partition
from moldau.broker.partitions.partitions import Refusal
from moldau.broker.partitions.verification import ENDED, refusal_of
from moldau.cluster.decisions.assignment import NewTopic
from moldau.cluster.errors import ClusterError
from moldau.cluster.state.internal_topics import INTERNAL_TOPICS
from moldau.log.errors import (
    InvalidProducerEpoch,
    InvalidTransactionState,
    LogError,
    StorageError,
)
from moldau.log.producers.verifications import Verification
from moldau.peer.errors import RETRIABLE, PeerError, name_of
from moldau.peer.peers import Purpose
from moldau.records.batch import BatchError, InvalidRecord, NotChecked
from moldau.records.record import Record, build_batch
from moldau.schemas.door.messages import Letter
from moldau.topic_partition import TopicPartition
from moldau.wire.apis import Api
from moldau.wire.errors import Error

if TYPE_CHECKING:
    from moldau.broker.server import Broker

ORIGIN_TOPIC = "moldau.origin.topic"
ORIGIN_PARTITION = "moldau.origin.partition"
REASON = "moldau.reason"
_PURPOSE = Purpose("moldau-quarantine")
_PATIENCE_S = 15.0
_WITHIN_S = 20.0
_PAUSE_S = 0.1
# Topics go by their names, and the leader adds nothing to the transaction by itself.
_VERSION = 11
_TOO_FEW = (Error.NOT_ENOUGH_REPLICAS, Error.NOT_ENOUGH_REPLICAS_AFTER_APPEND)
# Why a topic cannot be created now, and may be later: brokers are away, for one.
_PASSING = RETRIABLE | {Error.NOT_CONTROLLER, Error.INVALID_REPLICATION_FACTOR}
_OF_TRANSACTIONS = (
    Error.INVALID_PRODUCER_EPOCH,
    Error.INVALID_TXN_STATE,
    Error.INVALID_PRODUCER_ID_MAPPING,
    Error.TRANSACTION_ABORTABLE,
)
_LONGEST_REASON = 1_000


class Quarantine:
    """Writes to partition 0 of such a topic, wherever that is led. Event loop only."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    async def write(
        self,
        topic: str,
        origin: TopicPartition,
        letters: list[Letter],
        transaction: OpenTransaction | None,
    ) -> BatchError | Refusal | None:
        """Write records that were set aside; None when every in-sync replica has them."""
        if topic in INTERNAL_TOPICS:
            return InvalidRecord(f"{topic} is an internal topic and cannot be a quarantine")
        (outcome,) = await self._broker.controller.ensure_topics([NewTopic(topic)])
        if isinstance(outcome, ClusterError):
            kind = NotChecked if outcome.error in _PASSING else InvalidRecord
            return kind(f"the quarantine {topic} cannot be created: {outcome.message}")
        batch = _batch([_record(n, each, origin) for n, each in enumerate(letters)], transaction)
        problem = "it has no leader"
        try:
            async with asyncio.timeout(_WITHIN_S):
                while True:
                    try:
                        return await self._try(topic, batch, transaction)
                    except _NotNow as reason:
                        problem = str(reason)
                        await asyncio.sleep(_PAUSE_S)
        except _Never as reason:
            return InvalidRecord(f"the quarantine {topic} does not accept the record: {reason}")
        except TimeoutError:
            return NotChecked(
                f"the quarantine {topic} does not accept the record: {problem}; send again"
            )

    async def _try(
        self, topic: str, batch: bytes, transaction: OpenTransaction | None
    ) -> Refusal | None:
        """Write once. Returns why not if the transaction does not allow it; _NotNow or _Never."""
        partition = self._broker.partitions.get((topic, 0))
        if partition is not None and not partition.is_leader:
            partition = None
        guard = None
        if transaction is not None:
            if partition is not None:
                # Before the coordinator is asked: a marker since then makes the answer worthless.
                guard = _guard(partition, transaction, self._broker.node.now_ms())
            refusal = await self._join(topic, transaction)
            if refusal is not None:
                return refusal
        if partition is None:
            return await self._send(topic, batch, transaction)
        try:
            await _append(partition, batch, self._broker.node.now_ms(), transaction, guard)
        except (InvalidTransactionState, InvalidProducerEpoch) as problem:
            return code_and_message(problem)
        return None

    async def _join(self, topic: str, transaction: OpenTransaction) -> Refusal | None:
        """Have the coordinator add the quarantine to the transaction."""
        verifier = self._broker.partitions.verifier
        if verifier is None or not transaction.stands():
            return ENDED
        who = (transaction.id, transaction.producer_id, transaction.epoch)
        error = (await verifier.verify(*who, [(topic, 0)], adds=True))[topic, 0]
        if error is Error.CONCURRENT_TRANSACTIONS or error in RETRIABLE:
            raise _NotNow(name_of(error))
        if error:
            return refusal_of(error, transaction.version)
        return None if transaction.stands() else ENDED

    async def _send(
        self, topic: str, batch: bytes, transaction: OpenTransaction | None
    ) -> Refusal | None:
        """Have another broker write."""
        known = self._broker.state.topics.get(topic)
        leader = -1 if known is None else known.partitions[0].leader
        if leader < 0 or leader == self._broker.id:
            raise _NotNow("it has no leader")
        lane = self._broker.peers.lane(leader, _PURPOSE, patience_s=lambda: _PATIENCE_S)
        values = {
            "transactional_id": None if transaction is None else transaction.id,
            "acks": -1,
            "timeout": int(_PATIENCE_S * 1000),
            "topic_data": [{"name": topic, "partition_data": [{"index": 0, "records": batch}]}],
        }
        try:
            connection = await lane.connection()
            answer = await connection.ask(Api.PRODUCE, values, _VERSION)
        except PeerError as reason:
            raise _NotNow(str(reason)) from None
        result = answer.responses[0].partition_responses[0]
        code = int(result.error_code)
        if not code:
            return None
        if code in RETRIABLE or code in _TOO_FEW:
            raise _NotNow(name_of(code))
        if code in _OF_TRANSACTIONS:
            return Error(code), result.error_message
        raise _Never(result.error_message or name_of(code))


class _NotNow(Exception):
    """An attempt that failed for a reason that passes."""


class _Never(Exception):
    """An attempt that failed, as the next one would."""


def _guard(partition: Partition, transaction: OpenTransaction, now_ms: int) -> Verification | None:
    """Return what the first record of a transaction in the quarantine is appended with."""
    producers, who = partition.log.producers, (transaction.producer_id, transaction.epoch)
    if producers.is_open(*who):
        return None
    return producers.verifications.begin(*who, -1, now_ms, False)


async def _append(
    partition: Partition,
    batch: bytes,
    now_ms: int,
    transaction: OpenTransaction | None,
    guard: Verification | None,
) -> None:
    """Append as the leader, and wait until every in-sync replica has it."""
    if not partition.is_leader:
        raise _NotNow("its leader has changed")
    if len(partition.isr) < partition.min_isr:
        raise _NotNow("too few replicas are in sync")
    # The offset is written into it.
    writable = memoryview(bytearray(batch))
    try:
        if transaction is None:
            partition.append(writable, now_ms)
        else:
            partition.append_unsequenced(writable, now_ms, guard)
    except StorageError as problem:
        raise _NotNow(str(problem)) from None
    except (InvalidTransactionState, InvalidProducerEpoch):
        raise
    except (BatchError, LogError) as problem:
        raise _Never(str(problem)) from None
    failure = partition.commit()
    partition.announce()
    if failure is not None:
        raise _NotNow(str(failure))
    reached = _Reached(partition, partition.log.log_end)
    partition.wait(reached)
    partition.ask_flush()
    reached.notify()
    try:
        lost = await reached.answer
    finally:
        partition.unwait(reached)
    if lost is not None:
        raise _NotNow(lost)


class _Reached:
    """Waits for the high watermark to reach an offset, or for the partition to change hands."""

    def __init__(self, partition: Partition, needed: int) -> None:
        self._partition = partition
        self._needed = needed
        self._epoch = partition.leader_epoch
        self.answer: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()

    def notify(self) -> None:
        partition = self._partition
        if self.answer.done():
            return
        if partition.log.high_watermark >= self._needed:
            self.answer.set_result(None)
        elif not partition.is_leader or partition.leader_epoch != self._epoch:
            self.answer.set_result("its leader has changed")


def _batch(records: list[Record], transaction: OpenTransaction | None) -> bytes:
    if transaction is None:
        return bytes(build_batch(records))
    return bytes(
        build_batch(
            records,
            producer_id=transaction.producer_id,
            producer_epoch=transaction.epoch,
            is_transactional=True,
        )
    )


def _record(number: int, letter: Letter, origin: TopicPartition) -> Record:
    topic, index = origin
    own = {
        ORIGIN_TOPIC: topic.encode(),
        ORIGIN_PARTITION: str(index).encode(),
        REASON: letter.reason[:_LONGEST_REASON].encode("utf-8", "replace"),
    }
    headers = (*letter.headers, *own.items())
    return Record(number, letter.timestamp, letter.key, letter.value, headers)
