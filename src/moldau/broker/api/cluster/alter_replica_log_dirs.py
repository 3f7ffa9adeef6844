"""AlterReplicaLogDirs: a move between the log folders of a parts, which here has one."""

from __future__ import annotations

from typing import Any

from moldau.broker.api.cluster.parts import ClusterParts, handles
from moldau.broker.api.registry import Answer
from moldau.broker.api.rights import on_cluster
from moldau.broker.net.request import Request
from moldau.broker.partitions.refusals import absent
from moldau.broker.security.authorizer import Operation
from moldau.cluster.errors import ClusterError
from moldau.wire.apis import Api
from moldau.wire.errors import Error

# Kafka's folder of a copy under way is named after topic and partition, with so much behind them,
# and must be a legal file name.
_LONGEST_FOLDER = 255
_FUTURE_SUFFIX = len("." + "0" * 32 + "-future")


def _refused(request: Request, error: ClusterError) -> Answer:
    return {
        "results": [
            {
                "topic_name": topic.name,
                "partitions": [
                    {"partition_index": index, "error_code": error.error}
                    for index in topic.partitions
                ],
            }
            for folder in request.body.dirs
            for topic in folder.topics
        ]
    }


@handles(Api.ALTER_REPLICA_LOG_DIRS, (1, 2), on_cluster(Operation.ALTER), refused=_refused)
def alter_replica_log_dirs(parts: ClusterParts, request: Request) -> Answer:
    """Nothing to do for the folder where everything is; an error for any other."""
    wanted = {
        (topic.name, index): folder.path
        for folder in request.body.dirs
        for topic in folder.topics
        for index in topic.partitions
    }
    topics: dict[str, list[dict[str, Any]]] = {}
    for (name, index), path in wanted.items():
        error = _outcome(parts, name, index, path)
        topics.setdefault(name, []).append({"partition_index": index, "error_code": error})
    return {
        "results": [
            {"topic_name": name, "partitions": partitions} for name, partitions in topics.items()
        ]
    }


def _outcome(parts: ClusterParts, name: str, index: int, path: str) -> Error:
    if len(f"{name}-{index}") + _FUTURE_SUFFIX > _LONGEST_FOLDER:
        return Error.INVALID_TOPIC_EXCEPTION
    if path != str(parts.node.settings.folder.absolute()):
        return Error.LOG_DIR_NOT_FOUND
    if (name, index) in parts.partitions:
        return Error.NONE
    error, _ = absent(parts.partitions, name, index)
    # Kafka keeps the code of old for a partition that others have.
    return Error.REPLICA_NOT_AVAILABLE if error is Error.NOT_LEADER_OR_FOLLOWER else error
