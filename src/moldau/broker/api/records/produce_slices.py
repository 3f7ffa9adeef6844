"""Produce requests for very many partitions, appended and committed a few at a time.

Each partition costs a call to the system, so that thousands would hold up everybody else. The
request has been put aside: its connection is not read from meanwhile. Whoever leads a partition may
change between two slices, so each slice looks anew, and so does the answer with acks=all, which
promises that a leader of one epoch has replicated what it wrote.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import NamedTuple

from moldau.broker.api.records.appending import Denied, append_all
from moldau.broker.api.records.parts import RecordParts
from moldau.broker.api.records.produce_response import ProduceResponse
from moldau.broker.net.connection import Connection
from moldau.broker.net.request import Request
from moldau.broker.partitions.partition import Partition
from moldau.broker.partitions.record_checks import CheckedProduce
from moldau.broker.partitions.refused_writes import RefusedWrites
from moldau.broker.slices import Slices
from moldau.cluster.clock import now
from moldau.log.errors import StorageError
from moldau.wire.produce import ProduceRequest, produce_codec

# How many partitions are appended to at once.
AT_ONCE = 200
# A smaller request cannot be for more.
_SMALLEST_FOR_MANY = AT_ONCE * 64
_IN_A_SLICE = 64


class SlicedProduce(NamedTuple):
    """A request whose batches have been appended; only its answer is left."""

    checked: CheckedProduce
    response: ProduceResponse

    def end(self) -> None:
        """The request has been handled."""
        self.checked.end()


class _Slice(ProduceResponse):
    """A part of a request: committed, but answered with the whole."""

    __slots__ = ()

    def settle(
        self,
        loop: asyncio.AbstractEventLoop,
        failed: dict[Partition, StorageError],
        refused: RefusedWrites,
    ) -> None:
        if failed and self.wanted is not None:
            self.fail(self.wanted, failed, refused)


def is_for_many(size: int, wanted: ProduceRequest) -> bool:
    """Return whether a request of this size is for more partitions than are served at once."""
    return size > _SMALLEST_FOR_MANY and sum(len(each) for _, each in wanted.topics) > AT_ONCE


async def append_in_slices(
    parts: RecordParts,
    connection: Connection,
    request: Request,
    checked: CheckedProduce,
    denied: Denied,
) -> SlicedProduce:
    """Append and commit what is wanted, and serve others in between."""
    codec = produce_codec(request.version)
    whole = ProduceResponse(connection, request, codec, checked.request)
    lease = parts.node.store.lease
    epochs: list[int] = []
    slices = Slices()
    for wanted in _pieces(checked.request):
        if lease is not None and now() >= lease.ends_at:
            lease.expire()
        piece = _Slice(connection, request, codec, wanted)
        append_all(parts, piece, wanted, denied, checked.checks, checked.verified)
        parts.partitions.commit([piece])
        whole.take(piece)
        epochs += [partition.leader_epoch for partition, _, _ in piece.appended]
        await slices.rest()
    if checked.request.acks == -1:
        for (partition, result, _), epoch in zip(whole.appended, epochs, strict=True):
            if partition.leader_epoch != epoch and not result.error:
                whole.refuse_as_not_leader(partition, result)
    return SlicedProduce(checked, whole)


def _pieces(request: ProduceRequest) -> Iterator[ProduceRequest]:
    """Cut a request into some for few partitions, in its order."""
    piece = request._replace(topics=[])
    room = _IN_A_SLICE
    for key, batches in request.topics:
        start = 0
        while start < len(batches):
            some = batches[start : start + room]
            piece.topics.append((key, some))
            start += len(some)
            room -= len(some)
            if room == 0:
                yield piece
                piece, room = request._replace(topics=[]), _IN_A_SLICE
    if piece.topics:
        yield piece
