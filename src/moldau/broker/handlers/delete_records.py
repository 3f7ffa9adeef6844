"""DeleteRecords: moves the beginning of a partition forward."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from moldau.broker.errors import code_and_message
from moldau.broker.handlers import Answer, Request, handles
from moldau.cluster.topics import INTERNAL_TOPICS
from moldau.log.errors import LogError
from moldau.wire.apis import Api
from moldau.wire.errors import Error

if TYPE_CHECKING:
    from moldau.broker.server import Broker

# The offset that stands for "everything that consumers can see".
HIGH_WATERMARK = -1


@handles(Api.DELETE_RECORDS)
def delete_records(broker: Broker, request: Request) -> Answer:
    """Per partition, the offset that it now begins at."""
    return {
        "topics": [
            {
                "name": topic.name,
                "partitions": [_delete(broker, topic.name, each) for each in topic.partitions],
            }
            for topic in request.body.topics
        ]
    }


def _delete(broker: Broker, topic: str, wanted: Any) -> dict[str, Any]:
    index = wanted.partition_index

    def refuse(error: Error) -> dict[str, Any]:
        return {"partition_index": index, "low_watermark": -1, "error_code": error}

    if broker.state.partition(topic, index) is None:
        return refuse(Error.UNKNOWN_TOPIC_OR_PARTITION)
    if topic in INTERNAL_TOPICS:
        return refuse(Error.INVALID_TOPIC_EXCEPTION)
    partition = broker.partitions.get((topic, index))
    if partition is None or not partition.is_leader:
        return refuse(Error.NOT_LEADER_OR_FOLLOWER)
    log = partition.log
    if not log.config.deletes:
        return refuse(Error.POLICY_VIOLATION)
    offset = log.high_watermark if wanted.offset == HIGH_WATERMARK else wanted.offset
    if not 0 <= offset <= log.high_watermark:
        return refuse(Error.OFFSET_OUT_OF_RANGE)
    try:
        if offset > log.log_start:
            log.delete_records_before(offset)
    except LogError as error:
        return refuse(code_and_message(error)[0])
    return {"partition_index": index, "low_watermark": log.log_start}
