"""DescribeQuorum: the voters of a KRaft cluster, which this is not."""

from __future__ import annotations

from moldau.broker.api.cluster.parts import ClusterParts, handles
from moldau.broker.api.registry import Answer
from moldau.broker.api.rights import on_cluster
from moldau.broker.net.request import Request
from moldau.broker.security.authorizer import Operation
from moldau.wire.apis import Api
from moldau.wire.errors import Error


@handles(
    Api.DESCRIBE_QUORUM,
    (0, 2),
    on_cluster(Operation.DESCRIBE),
    refused=lambda request, error: {"error_code": error.error, "error_message": error.message},
)
def describe_quorum(parts: ClusterParts, request: Request) -> Answer:
    """Refuse as Kafka's clients expect of a cluster over ZooKeeper, and say what to ask instead."""
    where = (
        "in ZooKeeper" if parts.node.settings.zookeeper_connect else "in this broker's data folder"
    )
    return {
        "error_code": Error.UNSUPPORTED_VERSION,
        "error_message": f"This cluster keeps its metadata {where}: there is no KRaft quorum. "
        "DescribeCluster names its brokers and its controller.",
    }
