"""DescribeLogDirs: how much of the disk each partition takes."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

from moldau.broker.api.cluster.parts import ClusterParts, handles
from moldau.broker.api.registry import Answer
from moldau.broker.api.rights import on_cluster
from moldau.broker.net.request import Request
from moldau.broker.partitions.partition import Partition
from moldau.broker.security.authorizer import Operation
from moldau.wire.apis import Api
from moldau.wire.errors import Error


@handles(
    Api.DESCRIBE_LOG_DIRS,
    (1, 4),
    on_cluster(Operation.DESCRIBE),
    refused=lambda request, error: {"error_code": error.error, "results": ()},
)
def describe_log_dirs(parts: ClusterParts, request: Request) -> Answer:
    """Return the one data folder, with the partitions that were asked for and are here."""
    folder = parts.node.settings.folder.absolute()
    try:
        disk = os.statvfs(folder)
    except OSError:
        return {"results": [{"error_code": Error.KAFKA_STORAGE_ERROR, "log_dir": str(folder)}]}
    topics: dict[str, list[dict[str, Any]]] = {}
    for partition in _wanted(parts, request.body.topics):
        topics.setdefault(partition.topic, []).append(_described(partition))
    return {
        "results": [
            {
                "log_dir": str(folder),
                "topics": [
                    {"name": name, "partitions": partitions} for name, partitions in topics.items()
                ],
                "total_bytes": disk.f_blocks * disk.f_frsize,
                "usable_bytes": disk.f_bavail * disk.f_frsize,
            }
        ]
    }


def _wanted(parts: ClusterParts, topics: Any) -> Iterable[Partition]:
    if topics is None:
        return parts.partitions.values()
    keys = {(topic.topic, index) for topic in topics for index in topic.partitions}
    return [parts.partitions[key] for key in sorted(keys) if key in parts.partitions]


def _described(partition: Partition) -> dict[str, Any]:
    log = partition.log
    return {
        "partition_index": partition.index,
        "partition_size": log.segments.size,
        # By how much this replica is behind what consumers may see.
        "offset_lag": max(log.high_watermark - log.log_end, 0),
        "is_future_key": False,
    }
