"""OffsetForLeaderEpoch: where a leader epoch ended, by which truncation is noticed (KIP-320)."""

from __future__ import annotations

from typing import Any

from moldau.broker.api.records.parts import RecordParts, handles
from moldau.broker.api.registry import Answer
from moldau.broker.api.rights import Right, on_topics
from moldau.broker.net.request import Request
from moldau.broker.partitions.refusals import absent
from moldau.broker.security.authorizer import Operation, Resource
from moldau.wire.apis import Api
from moldau.wire.errors import Error


@handles(
    Api.OFFSET_FOR_LEADER_EPOCH,
    (2, 4),
    Right(Operation.CLUSTER_ACTION, Resource.CLUSTER),
    on_topics(Operation.DESCRIBE),
)
def offset_for_leader_epoch(parts: RecordParts, request: Request) -> Answer:
    """Per partition, the largest epoch up to the one asked for, and the offset after its last."""
    may_know_all = request.may_on_cluster(Operation.CLUSTER_ACTION, quietly=True)
    known, hidden = [], []
    for topic in request.body.topics:
        if may_know_all or request.may_on_topic(Operation.DESCRIBE, topic.topic):
            answers = [_answer(parts, topic.topic, each) for each in topic.partitions]
            known.append({"topic": topic.topic, "partitions": answers})
        else:
            denied = Error.TOPIC_AUTHORIZATION_FAILED
            answers = [
                {"partition": each.partition, "error_code": denied} for each in topic.partitions
            ]
            hidden.append({"topic": topic.topic, "partitions": answers})
    return {"topics": known + hidden}


def _answer(parts: RecordParts, topic: str, wanted: Any) -> dict[str, Any]:
    answer: dict[str, Any] = {"partition": wanted.partition}
    partition = parts.partitions.get((topic, wanted.partition))
    if partition is None:
        return answer | {"error_code": absent(parts.partitions, topic, wanted.partition)[0]}
    fence = partition.check_epoch(wanted.current_leader_epoch)
    if fence:
        return answer | {"error_code": fence}
    if not partition.is_leader:
        return answer | {"error_code": Error.NOT_LEADER_OR_FOLLOWER}
    if partition.log.offline is not None:
        return answer | {"error_code": Error.KAFKA_STORAGE_ERROR}
    epoch, end = partition.log.epochs.end_of(wanted.leader_epoch, partition.log.log_end)
    return answer | {"leader_epoch": epoch, "end_offset": end}
