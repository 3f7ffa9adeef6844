"""ElectLeaders: leadership to the preferred replicas, or to any that is left (KIP-460)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from moldau.broker.api.cluster.parts import ClusterParts, handles
from moldau.broker.api.registry import Answer
from moldau.broker.api.rights import on_cluster
from moldau.broker.net.request import Request
from moldau.broker.security.authorizer import Operation
from moldau.cluster.decisions.partitions import ElectionType
from moldau.cluster.errors import ClusterError
from moldau.topic_partition import TopicPartition
from moldau.wire.apis import Api
from moldau.wire.errors import Error

Results = dict[str, list[dict[str, Any]]]


def _refuse(request: Request, error: ClusterError) -> Answer:
    topics = request.body.topic_partitions or ()
    results = [(each.topic, [_result(n, error) for n in each.partitions]) for each in topics]
    return _answer(results, error.error)


@handles(Api.ELECT_LEADERS, (0, 2), on_cluster(Operation.ALTER), at_controller=_refuse)
async def elect_leaders(parts: ClusterParts, request: Request) -> Answer:
    """Return one result per partition asked for; where all are, every topic, with those that needed
    it."""
    number = getattr(request.body, "election_type", ElectionType.PREFERRED)
    try:
        kind = ElectionType(number)
    except ValueError:
        error = ClusterError(Error.INVALID_REQUEST, f"Unknown election type {number}")
        return _refuse(request, error)
    wanted = _wanted(request)
    try:
        outcomes = await parts.controller.elect_leaders(kind, wanted)
    except ClusterError as error:
        return _refuse(request, error)
    if wanted is None:
        found: Results = {name: [] for name in parts.node.state.topics}
        for (topic, index), outcome in outcomes.items():
            found.setdefault(topic, []).append(_result(index, outcome))
        return _answer(found.items(), Error.NONE)
    results = [
        (each.topic, [_result(index, outcomes[each.topic, index]) for index in each.partitions])
        for each in request.body.topic_partitions
    ]
    return _answer(results, Error.NONE)


def _wanted(request: Request) -> list[TopicPartition] | None:
    topics = request.body.topic_partitions
    if topics is None:
        return None
    return [(str(topic.topic), int(index)) for topic in topics for index in topic.partitions]


def _result(index: int, error: ClusterError | None) -> dict[str, Any]:
    return {
        "partition_id": index,
        "error_code": Error.NONE if error is None else error.error,
        "error_message": None if error is None else error.message,
    }


def _answer(results: Iterable[tuple[str, list[dict[str, Any]]]], error: Error) -> Answer:
    return {
        "error_code": error,
        "replica_election_results": [
            {"topic": topic, "partition_result": partitions} for topic, partitions in results
        ],
    }
