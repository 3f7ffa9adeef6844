"""AlterPartitionReassignments and ListPartitionReassignments: partitions on the move (KIP-455)."""

from __future__ import annotations

from typing import Any

from moldau.broker.api.cluster.parts import ClusterParts, handles
from moldau.broker.api.registry import Answer
from moldau.broker.api.rights import on_cluster
from moldau.broker.net.request import Request
from moldau.broker.security.authorizer import Operation
from moldau.cluster.decisions.partitions import Move
from moldau.cluster.errors import ClusterError
from moldau.cluster.state.topics import PartitionState
from moldau.wire.apis import Api
from moldau.wire.errors import Error


def _refuse(request: Request, error: ClusterError) -> dict[str, Any]:
    return {"error_code": error.error, "error_message": error.message}


def _refuse_moves(request: Request, error: ClusterError) -> Answer:
    return {
        **_refuse(request, error),
        "responses": [
            {
                "name": topic.name,
                "partitions": [_result(each.partition_index, error) for each in topic.partitions],
            }
            for topic in request.body.topics
        ],
    }


def _refuse_list(request: Request, error: ClusterError) -> Answer:
    return {
        **_refuse(request, error),
        "topics": [
            {
                "name": topic.name,
                "partitions": [{"partition_index": index} for index in topic.partition_indexes],
            }
            for topic in request.body.topics or ()
        ],
    }


@handles(
    Api.ALTER_PARTITION_REASSIGNMENTS,
    (0, 1),
    on_cluster(Operation.ALTER),
    refused=_refuse_moves,
    at_controller=_refuse,
)
async def alter_partition_reassignments(parts: ClusterParts, request: Request) -> Answer:
    """Start or cancel the move of each partition; answers before the move is done."""
    body = request.body
    if not body.topics:
        # Null otherwise; Kafka's controller is not even asked here.
        return {"error_message": "", "responses": ()}
    may_resize = getattr(body, "allow_replication_factor_change", True)
    moves = [
        Move(topic.name, each.partition_index, None if each.replicas is None else (*each.replicas,))
        for topic in body.topics
        for each in topic.partitions
    ]
    try:
        outcomes = await parts.controller.reassign(moves, may_resize=may_resize)
    except ClusterError as error:
        return _refuse(request, error)
    return {
        "allow_replication_factor_change": may_resize,
        "responses": [
            {
                "name": topic.name,
                "partitions": [
                    _result(each.partition_index, outcomes[topic.name, each.partition_index])
                    for each in topic.partitions
                ],
            }
            for topic in body.topics
        ],
    }


def _result(index: int, error: ClusterError | None) -> dict[str, Any]:
    return {
        "partition_index": index,
        "error_code": Error.NONE if error is None else error.error,
        "error_message": None if error is None else error.message,
    }


@handles(
    Api.LIST_PARTITION_REASSIGNMENTS,
    (0, 0),
    on_cluster(Operation.DESCRIBE),
    refused=_refuse_list,
    at_controller=_refuse,
)
def list_partition_reassignments(parts: ClusterParts, request: Request) -> Answer:
    """Return the partitions that are moving; topics that are not, or are not known, are left
    out."""
    topics = request.body.topics
    wanted = None if topics is None else {topic.name: topic.partition_indexes for topic in topics}
    return {
        "topics": [
            {"name": name, "partitions": [_moving(*each) for each in partitions.items()]}
            for name, partitions in parts.controller.reassignments(wanted).items()
        ]
    }


def _moving(index: int, partition: PartitionState) -> dict[str, Any]:
    return {
        "partition_index": index,
        "replicas": partition.replicas,
        "adding_replicas": partition.adding,
        "removing_replicas": partition.removing,
    }
