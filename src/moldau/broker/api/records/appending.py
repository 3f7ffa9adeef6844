"""Appends of a Produce request: each of its batches to its partition, or why it is not taken."""

from __future__ import annotations

from collections.abc import Mapping
from time import time_ns

from moldau.broker.api.records.parts import RecordParts
from moldau.broker.api.records.produce_response import ProduceResponse
from moldau.broker.errors import code_and_message
from moldau.broker.partitions.partition import Partition
from moldau.broker.partitions.partitions import Refusal
from moldau.broker.partitions.record_checks import Checks
from moldau.broker.partitions.refusals import absent, named
from moldau.broker.partitions.refused_writes import RefusedWrites
from moldau.broker.partitions.verification import Verified
from moldau.broker.security.authorizer import Operation
from moldau.cluster.state.internal_topics import INTERNAL_TOPICS
from moldau.log.errors import LogError, OutOfOrderSequence, StorageError
from moldau.log.fences import Fence, batch_of, fence_in
from moldau.log.producers.verifications import Verification
from moldau.log.record_check import RecordCheck
from moldau.records.batch import (
    CODEC_MASK,
    CONTROL_BIT,
    TRANSACTIONAL_BIT,
    BatchError,
    BatchTooLarge,
    CorruptBatch,
    InvalidRecord,
    InvalidRecords,
    NotOneBatch,
)
from moldau.records.compression import Codec
from moldau.topic_partition import TopicPartition
from moldau.wire.apis import Api
from moldau.wire.errors import Error
from moldau.wire.primitives import TopicKey
from moldau.wire.produce import PartitionResult, ProduceRequest

# KIP-110
_FIRST_WITH_ZSTD = 7
# The low byte of a batch's attributes: all flags defined so far.
_ATTRIBUTES = 22
# Found before the log is looked at, or because it cannot be: they say nothing about the log.
_NOT_OF_THE_LOG = (NotOneBatch, CorruptBatch, BatchTooLarge, StorageError)

Denied = Mapping[TopicKey, Error]


def append_all(
    parts: RecordParts,
    response: ProduceResponse,
    wanted: ProduceRequest,
    denied: Denied,
    checks: Checks | None,
    verified: Verified | None,
) -> None:
    """Stage what is wanted; the response gets a result for each partition."""
    version = response.request.version
    now_ms = time_ns() // 1_000_000
    refused = parts.partitions.refused_writes
    by_id = parts.node.state.topics_by_id
    acks, exit = wanted.acks, response.connection.exit
    for key, batches in wanted.topics:
        if isinstance(key, str):
            topic = key
        else:
            known = by_id.get(key)
            topic = "" if known is None else known.name
        results = []
        for index, batch in batches:
            result = PartitionResult(index)
            results.append(result)
            if key in denied:
                # Nothing of it is remembered: what exists is none of the sender's business.
                result.error = denied[key]
                continue
            partition = parts.partitions.get((topic, index))
            if partition is None or not partition.is_leader:
                _refuse(parts, response, result, key, partition)
            elif acks == -1 and len(partition.isr) < partition.min_isr:
                result.error = Error.NOT_ENOUGH_REPLICAS
            elif acks not in (-1, 0, 1):
                result.error = Error.INVALID_REQUIRED_ACKS
            elif topic in INTERNAL_TOPICS and (batch is None or fence_in(batch) is None):
                message = (
                    f"{topic} is internal: only the {INTERNAL_TOPICS[topic].owner} may write to it"
                )
                result.fail(Error.INVALID_TOPIC_EXCEPTION, message)
            elif not batch:
                result.fail(Error.INVALID_RECORD, "the request has no records for this partition")
            elif (
                version < _FIRST_WITH_ZSTD
                and len(batch) > _ATTRIBUTES
                and batch[_ATTRIBUTES] & CODEC_MASK == Codec.ZSTD
            ):
                message = f"zstd needs Produce v{_FIRST_WITH_ZSTD} or later, not v{version}"
                result.fail(Error.UNSUPPORTED_COMPRESSION_TYPE, message)
            elif (
                len(batch) > _ATTRIBUTES
                and batch[_ATTRIBUTES] & TRANSACTIONAL_BIT
                and (refusal := _refusal(wanted, verified, (topic, index))) is not None
            ):
                result.fail(*refusal)
            else:
                check = checks.get((key, index)) if checks else None
                guard = verified.guards.get((topic, index)) if verified is not None else None
                if verified is not None and (topic, index) in verified.unsequenced:
                    _append_unsequenced(partition, batch, now_ms, result, response, guard)
                else:
                    _append(partition, batch, now_ms, result, response, check, refused, guard)
            if result.error and exit.metrics is not None:
                exit.metrics.failed(Api.PRODUCE, topic or key, result.error)
            # A sequence is out of order because the broker already waits for a lower one.
            if result.error and result.error != Error.OUT_OF_ORDER_SEQUENCE_NUMBER:
                refused.remember(topic or key, index, batch, partition, Error(result.error))
        if results:
            response.results.append((key, results))


def _append(
    partition: Partition,
    batch: memoryview,
    now_ms: int,
    result: PartitionResult,
    response: ProduceResponse,
    check: RecordCheck | None,
    refused: RefusedWrites,
    guard: Verification | None,
) -> None:
    log = partition.log
    if refused.topics:
        waits = refused.check(partition, batch)
        if waits is not None:
            result.fail(*waits)
            return
    try:
        result.base_offset, result.append_time_ms = partition.append(batch, now_ms, check, guard)
    except (BatchError, LogError) as error:
        if isinstance(error, InvalidRecord) and (fence := fence_in(batch)) is not None:
            _append_fence(partition, fence, now_ms, result, response, error)
            return
        if isinstance(error, OutOfOrderSequence):
            waits = refused.check_gap(partition, error)
            if waits is not None:
                result.fail(*waits)
                return
        result.fail(*code_and_message(error))
        if isinstance(error, StorageError):
            log.report(error)
        if not isinstance(error, _NOT_OF_THE_LOG):
            result.log_start = log.log_start
        if isinstance(error, InvalidRecords):
            result.record_errors = error.errors
        return
    result.log_start = log.log_start
    response.appended.append((partition, result, log.log_end))


def _append_unsequenced(
    partition: Partition,
    batch: memoryview,
    now_ms: int,
    result: PartitionResult,
    response: ProduceResponse,
    guard: Verification | None,
) -> None:
    """Append what another broker has set aside of a transaction, for the producer."""
    may_act = response.request.may_on_cluster(Operation.CLUSTER_ACTION)
    if batch[_ATTRIBUTES] & CONTROL_BIT or not may_act:
        result.fail(Error.INVALID_RECORD, "a client's transactional batch has no sequence")
        return
    try:
        partition.append_unsequenced(batch, now_ms, guard)
    except (BatchError, LogError) as error:
        result.fail(*code_and_message(error))
        if isinstance(error, StorageError):
            partition.log.report(error)
        return
    response.appended.append((partition, result, partition.log.log_end))


def _append_fence(
    partition: Partition,
    fence: Fence,
    now_ms: int,
    result: PartitionResult,
    response: ProduceResponse,
    refusal: InvalidRecord,
) -> None:
    """Append what a coordinator has another broker write; from others it is an empty batch."""
    if not response.request.may_on_cluster(Operation.CLUSTER_ACTION):
        result.fail(*code_and_message(refusal))
        return
    try:
        batch = batch_of(partition.log, fence)
        if batch is not None:
            partition.append_unsequenced(batch, now_ms)
    except LogError as error:
        result.fail(*code_and_message(error))
        if isinstance(error, StorageError):
            partition.log.report(error)
        return
    response.appended.append((partition, result, partition.log.log_end))


def _refusal(
    request: ProduceRequest, verified: Verified | None, place: TopicPartition
) -> Refusal | None:
    """Return why a transactional batch is not taken: nobody would ever end its transaction."""
    if request.transactional_id is None:
        code = Error.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        return code, "a transactional batch has no transactional id"
    if verified is None:
        code = Error.INVALID_PRODUCER_ID_MAPPING
        return code, "this broker does not support transactions: leave out transactional.id"
    return verified.errors.get(place)


def _refuse(
    parts: RecordParts,
    response: ProduceResponse,
    result: PartitionResult,
    key: TopicKey,
    partition: Partition | None,
) -> None:
    if partition is not None:
        result.error = Error.NOT_LEADER_OR_FOLLOWER
        result.leader = named(partition.leader, partition.leader_epoch)
    else:
        result.error, result.leader = absent(parts.partitions, key, result.index)
    if result.leader is not None:
        response.endpoints = response.connection.endpoints()
