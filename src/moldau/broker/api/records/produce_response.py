"""The answer to a Produce request: it waits for the commit, and with acks=all for replicas."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

from moldau.broker.errors import code_and_message
from moldau.broker.metrics import Metrics
from moldau.broker.net.connection import Connection
from moldau.broker.net.request import Request
from moldau.broker.net.responses import Response
from moldau.broker.partitions.partition import Partition
from moldau.broker.partitions.partitions import Refusal
from moldau.broker.partitions.refusals import named
from moldau.broker.partitions.refused_writes import RefusedWrites
from moldau.log.errors import StorageError
from moldau.wire.apis import Api
from moldau.wire.errors import Error
from moldau.wire.primitives import Endpoint, TopicKey
from moldau.wire.produce import PartitionResult, ProduceCodec, ProduceRequest

Results = list[tuple[TopicKey, list[PartitionResult]]]


class ProduceResponse(Response):
    """The answer to one Produce request.

    `appended` has, per batch that was taken, the partition, its result, and the offset that the
    high watermark must reach before the write counts as replicated. What is `wanted` lies in the
    connection's buffer, so it is kept only until its batches are written.
    """

    __slots__ = (
        "_replicated", "_timer", "appended", "codec", "connection", "endpoints", "results",
        "wanted",
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
        # How many of `appended`, from the first on, are known to be replicated or refused.
        self._replicated = 0
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
            self.fail(wanted, failed, refused)
        acks = wanted.acks
        if acks == 0:
            self._close_on_error()
            self.parts = connection.exit.leave_unanswered(self)
        elif acks == 1 or self._is_replicated():
            self.parts = connection.exit.leave_written(self)
        else:
            metrics = connection.exit.metrics
            if metrics is not None:
                # Counted when it leaves.
                metrics.writes -= 1
            self._timer = loop.call_later(max(wanted.timeout_ms, 0) / 1000, self._time_out)
            connection.hold(self, self.request.size)
            for partition, _, _ in self.appended:
                partition.wait(self)
                partition.ask_flush()

    def fail(
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
                reason = code_and_message(failed[partition])
                self.refuse(partition, result, reason)
                refused.remember(partition.topic, partition.index, batch, partition, reason[0])

    def take(self, piece: ProduceResponse) -> None:
        """Add what became of a part of the request."""
        for key, results in piece.results:
            if self.results and self.results[-1][0] == key:
                self.results[-1][1].extend(results)
            else:
                self.results.append((key, results))
        self.appended += piece.appended
        self.endpoints = self.endpoints or piece.endpoints

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
        appended = self.appended
        while self._replicated < len(appended):
            partition, result, needed = appended[self._replicated]
            if not result.error:
                if partition.in_sync is not None and len(partition.isr) < partition.min_isr:
                    # It was enough of them when the write was taken.
                    self.refuse(partition, result, (Error.NOT_ENOUGH_REPLICAS_AFTER_APPEND, None))
                elif partition.log.high_watermark < needed:
                    offline = partition.log.offline
                    if offline is not None:
                        self.refuse(partition, result, code_and_message(offline))
                    elif partition.is_leader:
                        return False
                    else:
                        self.refuse_as_not_leader(partition, result)
            self._replicated += 1
        return True

    def refuse_as_not_leader(self, partition: Partition, result: PartitionResult) -> None:
        """Answer that another leads, and who: it came to that after the batch was staged."""
        self.refuse(partition, result, (Error.NOT_LEADER_OR_FOLLOWER, None))
        result.leader = named(partition.leader, partition.leader_epoch)
        if result.leader is not None:
            self.endpoints = self.connection.endpoints()

    def _time_out(self) -> None:
        for partition, result, needed in self.appended:
            if partition.log.high_watermark < needed and not result.error:
                self.refuse(partition, result, (Error.REQUEST_TIMED_OUT, None))
        self._answer()

    def _answer(self) -> None:
        self.abandon()
        self.connection.respond(self, self.connection.exit.leave(self))

    def refuse(self, partition: Partition, result: PartitionResult, error: Refusal) -> None:
        """Answer with an error instead: it turned up after the batch was staged."""
        result.fail(*error)
        metrics = self.connection.exit.metrics
        if metrics is not None:
            metrics.failed(Api.PRODUCE, partition.topic, result.error)

    def tally(self, metrics: Metrics) -> None:
        """Count nothing: its errors are counted where they are found, which is quicker."""

    def waited_for(self) -> str | None:
        for partition, _, _ in self.appended:
            name = f"{partition.topic}-{partition.index}"
            if partition.in_sync is not None:
                others = [each for each in partition.isr if each != partition.leader]
                return f"waited for the replicas {others} of {name}"
            if partition.log.config.flushes:
                return f"waited for {name} to be flushed to disk"
        return super().waited_for()

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
