"""DescribeProducers: what a partition remembers of its producers (KIP-664).

Any replica answers, since that of the leader may be the one in doubt.
"""

from __future__ import annotations

import asyncio
from typing import Any

from moldau.broker.api.records.parts import RecordParts, handles
from moldau.broker.api.registry import Answer
from moldau.broker.api.rights import on_topics
from moldau.broker.net.request import Request
from moldau.broker.partitions.refusals import absent
from moldau.broker.security.authorizer import Operation
from moldau.cluster.state.topics import InvalidTopicName, check_topic_name
from moldau.log.producers.states import ProducerStates
from moldau.wire.apis import Api
from moldau.wire.errors import Error
from moldau.wire.messages import encode_response

# An answer about more producers than this is encoded on a thread.
_MANY = 200


@handles(Api.DESCRIBE_PRODUCERS, (0, 0), on_topics(Operation.READ))
async def describe_producers(parts: RecordParts, request: Request) -> Answer:
    """Return, per partition, its producers and where their open transactions begin."""
    topics = []
    count = 0
    for topic in request.body.topics:
        refusal = _refusal(request, topic.name)
        partitions = []
        for index in topic.partition_indexes:
            answer = _partition(parts, topic.name, index) if refusal is None else refusal
            partitions.append({"partition_index": index} | answer)
            count += len(answer["active_producers"])
        topics.append({"name": topic.name, "partitions": partitions})
    found = {"topics": topics}
    if count <= _MANY:
        return found
    return await asyncio.to_thread(encode_response, request.api, request.version, found)


def _refusal(request: Request, topic: str) -> dict[str, Any] | None:
    try:
        check_topic_name(topic)
    except InvalidTopicName as error:
        return _error(Error.INVALID_TOPIC_EXCEPTION, error.reason)
    if not request.may_on_topic(Operation.READ, topic):
        return _error(Error.TOPIC_AUTHORIZATION_FAILED, "Topic authorization failed.")
    return None


def _partition(parts: RecordParts, topic: str, index: int) -> dict[str, Any]:
    partition = parts.partitions.get((topic, index))
    if partition is None:
        return _error(absent(parts.partitions, topic, index)[0], None)
    return {"active_producers": _described(partition.log.producers)}


def _error(code: Error, message: str | None) -> dict[str, Any]:
    return {"error_code": code, "error_message": message, "active_producers": []}


def _described(producers: ProducerStates) -> list[dict[str, int]]:
    return [
        {
            "producer_id": producer_id,
            "producer_epoch": each.epoch,
            "last_sequence": each.batches[-1].last_sequence if each.batches else -1,
            "last_timestamp": each.written_ms,
            "coordinator_epoch": each.coordinator_epoch,
            "current_txn_start_offset": each.transaction_start,
        }
        for producer_id, each in producers.producers.items()
    ]
