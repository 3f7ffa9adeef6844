"""WriteTxnMarkers: ends transactions in the partitions that this broker leads.

Sent by the coordinators of transactions, and by tools that end a transaction which none knows of.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from moldau.broker.api.records.parts import RecordParts, handles
from moldau.broker.api.registry import Answer
from moldau.broker.api.rights import Right
from moldau.broker.net.request import Request
from moldau.broker.partitions.marker_writes import MarkerWrites
from moldau.broker.security.authorizer import Operation, Resource
from moldau.log.markers import TransactionEnd
from moldau.topic_partition import TopicPartition
from moldau.wire.apis import Api
from moldau.wire.errors import Error

# How long the replicas may take; the sender tries again.
_TIMEOUT_S = 30.0


@handles(
    Api.WRITE_TXN_MARKERS,
    (1, 2),
    Right(Operation.ALTER, Resource.CLUSTER),
    Right(Operation.CLUSTER_ACTION, Resource.CLUSTER),
)
async def write_txn_markers(parts: RecordParts, request: Request) -> Answer:
    """Return, per marker and partition, whether every in-sync replica has it."""
    may_write = request.may_on_cluster(Operation.ALTER, quietly=True)
    if not may_write and not request.may_on_cluster(Operation.CLUSTER_ACTION):
        return _answer(request, lambda *place: Error.CLUSTER_AUTHORIZATION_FAILED)
    ends = [(_end_of(marker), _places_of(marker)) for marker in request.body.markers]
    writes = MarkerWrites(parts.partitions)
    await writes.write(ends, _TIMEOUT_S)
    return _answer(request, lambda producer_id, *place: writes.errors[producer_id, place])


def _answer(request: Request, error_of: Callable[[int, str, int], Error]) -> Answer:
    return {
        "markers": [
            {
                "producer_id": marker.producer_id,
                "topics": [
                    {
                        "name": topic.name,
                        "partitions": [
                            {
                                "partition_index": index,
                                "error_code": error_of(marker.producer_id, topic.name, index),
                            }
                            for index in topic.partition_indexes
                        ],
                    }
                    for topic in marker.topics
                ],
            }
            for marker in request.body.markers
        ]
    }


def _end_of(marker: Any) -> TransactionEnd:
    return TransactionEnd(
        marker.producer_id,
        marker.producer_epoch,
        marker.coordinator_epoch,
        marker.transaction_result,
        getattr(marker, "transaction_version", 0),
    )


def _places_of(marker: Any) -> list[TopicPartition]:
    return [(topic.name, index) for topic in marker.topics for index in topic.partition_indexes]
