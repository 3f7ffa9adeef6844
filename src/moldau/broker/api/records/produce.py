"""Produce: appends record batches to partitions.

Appends are staged while the frames of one receive are handled; `settle` runs after the broker has
written them all. A write with acks=all is answered when the high watermark has passed it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from functools import partial
from time import time_ns
from typing import Any

from moldau.broker.api.records.parts import RecordParts, reads
from moldau.broker.api.rights import on_topics, on_transactional_ids
from moldau.broker.errors import code_and_message
from moldau.broker.net.connection import Connection
from moldau.broker.net.request import Request
from moldau.broker.net.responses import Response
from moldau.broker.partitions.large_writes import LARGE
from moldau.broker.partitions.partition import Partition
from moldau.broker.partitions.record_checks import (
    CheckedProduce,
    Checks,
    begin_checks,
    prepare,
)
from moldau.broker.partitions.refusals import absent
from moldau.broker.partitions.refused_writes import RefusedWrites
from moldau.broker.security.authorizer import Operation
from moldau.cluster.state.internal_topics import INTERNAL_TOPICS
from moldau.log.errors import LogError, StorageError
from moldau.log.record_check import RecordCheck
from moldau.records.batch import (
    CODEC_MASK,
    TRANSACTIONAL_BIT,
    BatchError,
    BatchTooLarge,
    CorruptBatch,
    InvalidRecords,
    NotOneBatch,
)
from moldau.records.compression import Codec
from moldau.wire.apis import Api
from moldau.wire.errors import Error
from moldau.wire.primitives import Endpoint, TopicKey
from moldau.wire.produce import PartitionResult, ProduceCodec, ProduceRequest, produce_codec

# KIP-110
_FIRST_WITH_ZSTD = 7
# The low byte of a batch's attributes: all flags defined so far.
_ATTRIBUTES = 22
# Found before the log is looked at, or because it cannot be: they say nothing about the log.
_NOT_OF_THE_LOG = (NotOneBatch, CorruptBatch, BatchTooLarge, StorageError)

Results = list[tuple[TopicKey, list[PartitionResult]]]


class ProduceResponse(Response):
    """The answer to one Produce request.

    `appended` has, per batch that was taken, the partition, its result, and the offset that the
    high watermark must reach before the write counts as replicated. What is `wanted` lies in the
    connection's buffer, so it is kept only until its batches are written.
    """

    __slots__ = (
        "_timer", "appended", "codec", "connection", "endpoints", "results", "wanted",
    )  # fmt: skip

    def __init__(
        self, connection: Connection, request: Request, codec: ProduceCodec, wanted: ProduceRequest
    ) -> None:
        self.connection = connection
        self.request = request
        self.parts = None
        self.codec = codec
        self.wanted: ProduceRequest | None = wanted
        self.results: Results = []
        self.appended: list[tuple[Partition, PartitionResult, int]] = []
        self.endpoints: list[Endpoint] | None = None
        self._timer: asyncio.TimerHandle | None = None

    def settle(
        self,
        loop: asyncio.AbstractEventLoop,
        failed: dict[Partition, StorageError],
        refused: RefusedWrites,
    ) -> None:
        """Answer after the commit, or begin to wait where acks=all must."""
        wanted, connection = self.wanted, self.connection
        assert wanted is not None
        self.wanted = None
        if failed:
            self._fail(wanted, failed, refused)
        acks = wanted.acks
        if acks == 0:
            self._close_on_error()
            self.parts = []
            if connection.exit.count is not None:
                connection.exit.count(self, [])
        elif acks == 1 or self._is_replicated():
            self.parts = connection.exit.leave(self)
        else:
            self._timer = loop.call_later(max(wanted.timeout_ms, 0) / 1000, self._time_out)
            connection.hold(self, self.request.size)
            for partition, _, _ in self.appended:
                partition.wait(self)
                partition.ask_flush()

    def _fail(
        self,
        wanted: ProduceRequest,
        failed: dict[Partition, StorageError],
        refused: RefusedWrites,
    ) -> None:
        """Turn staged batches that could not be written into errors."""
        batches = [batch for _, each in wanted.topics for _, batch in each]
        results = [result for _, each in self.results for result in each]
        staged = [batch for batch, each in zip(batches, results, strict=True) if not each.error]
        for (partition, result, _), batch in zip(self.appended, staged, strict=True):
            if partition in failed:
                result.fail(*code_and_message(failed[partition]))
                refused.remember(partition.topic, partition.index, batch, partition)

    def notify(self) -> None:
        """A high watermark moved, or a partition changed hands."""
        if self._is_replicated():
            self._answer()

    def abandon(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            for partition, _, _ in self.appended:
                partition.unwait(self)

    def _is_replicated(self) -> bool:
        for partition, result, needed in self.appended:
            if result.error:
                continue
            if partition.in_sync is not None and len(partition.isr) < partition.min_isr:
                # It was enough of them when the write was taken.
                result.fail(Error.NOT_ENOUGH_REPLICAS_AFTER_APPEND, None)
            elif partition.log.high_watermark < needed:
                offline = partition.log.offline
                if offline is not None:
                    result.fail(*code_and_message(offline))
                elif partition.is_leader:
                    return False
                else:
                    result.fail(Error.NOT_LEADER_OR_FOLLOWER, None)
                    result.leader = (partition.leader, partition.leader_epoch)
                    self.endpoints = self.connection.endpoints()
        return True

    def _time_out(self) -> None:
        for partition, result, needed in self.appended:
            if partition.log.high_watermark < needed and not result.error:
                result.fail(Error.REQUEST_TIMED_OUT, None)
        self._answer()

    def _answer(self) -> None:
        self.abandon()
        self.connection.respond(self, self.connection.exit.leave(self))

    def encode(self, throttle_ms: int) -> list[Any]:
        correlation_id = self.request.correlation_id
        return [self.codec.encode(correlation_id, self.results, self.endpoints, throttle_ms)]

    def errors(self) -> Iterator[int]:
        return (each.error for _, results in self.results for each in results if each.error)

    def _close_on_error(self) -> None:
        """With acks=0 there is no answer; an error is told by closing, as Kafka does."""
        for _, results in self.results:
            for result in results:
                if result.error:
                    code = Error(result.error).name
                    self.connection.close(f"a write with acks=0 failed: {code}")
                    return


def _decode(version: int, frame: memoryview, start: int) -> ProduceRequest:
    return produce_codec(version).decode(frame, start)


def _transactional_ids(request: Request) -> Iterable[str]:
    named = request.body.transactional_id
    return () if named is None else (named,)


def _topics(request: Request) -> Iterable[TopicKey]:
    return [key for key, _ in request.body.topics]


@reads(
    Api.PRODUCE,
    (3, 13),
    on_transactional_ids(Operation.WRITE, _transactional_ids),
    on_topics(Operation.WRITE, _topics),
    decode=_decode,
    stages=True,
)
def produce(
    parts: RecordParts, connection: Connection, request: Request, frame: memoryview
) -> None:
    """Stage what the request appends and take its place among the connection's answers."""
    version = request.version
    checked: CheckedProduce | None = None
    if request.size > parts.partitions.prepares_above:
        checked = connection.prepared
        if checked is None:
            checked, is_done = begin_checks(parts.partitions, version, request.start, frame)
            if not is_done or request.size > LARGE or checked.must_wait(parts.partitions):
                connection.put_aside(partial(prepare, parts.partitions, version, request.start))
                return
    codec = produce_codec(version)
    checks: Checks | None = None
    if checked is None:
        wanted = codec.decode(frame, request.start)
    else:
        wanted, checks, _ = checked
    acks = wanted.acks
    response = ProduceResponse(connection, request, codec, wanted)
    now_ms = time_ns() // 1_000_000
    refused = parts.partitions.refused_writes
    by_id = parts.node.state.topics_by_id
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
            partition = parts.partitions.get((topic, index))
            if partition is None or not partition.is_leader:
                _refuse(parts, response, result, key, partition)
            elif acks == -1 and len(partition.isr) < partition.min_isr:
                result.error = Error.NOT_ENOUGH_REPLICAS
            elif acks not in (-1, 0, 1):
                result.error = Error.INVALID_REQUIRED_ACKS
            elif topic in INTERNAL_TOPICS:
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
            elif len(batch) > _ATTRIBUTES and batch[_ATTRIBUTES] & TRANSACTIONAL_BIT:
                result.fail(*_no_transactions(wanted))
            else:
                check = checks.get((key, index)) if checks else None
                _append(partition, batch, now_ms, result, response, check, refused)
            # A sequence is out of order because the broker already waits for a lower one.
            if result.error and result.error != Error.OUT_OF_ORDER_SEQUENCE_NUMBER:
                refused.remember(topic or key, index, batch, partition)
        if results:
            response.results.append((key, results))
    connection.reserve(response)
    connection.staged.append(response)


def _append(
    partition: Partition,
    batch: memoryview,
    now_ms: int,
    result: PartitionResult,
    response: ProduceResponse,
    check: RecordCheck | None,
    refused: RefusedWrites,
) -> None:
    log = partition.log
    try:
        if refused.topics:
            refused.check(partition, batch)
        result.base_offset, result.append_time_ms = partition.append(batch, now_ms, check)
    except (BatchError, LogError) as error:
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


def _no_transactions(request: ProduceRequest) -> tuple[Error, str]:
    """Return why a transactional batch is refused: nobody would ever end its transaction."""
    if request.transactional_id is None:
        code = Error.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        return code, "a transactional batch has no transactional id"
    code = Error.INVALID_PRODUCER_ID_MAPPING
    return code, "this broker does not support transactions: leave out transactional.id"


def _refuse(
    parts: RecordParts,
    response: ProduceResponse,
    result: PartitionResult,
    key: TopicKey,
    partition: Partition | None,
) -> None:
    if partition is not None:
        result.error = Error.NOT_LEADER_OR_FOLLOWER
        result.leader = (partition.leader, partition.leader_epoch)
        response.endpoints = response.connection.endpoints()
        return
    result.error, result.leader = absent(parts.partitions, key, result.index)
    if result.leader is not None:
        response.endpoints = response.connection.endpoints()
