"""DescribeCluster: the brokers, and which of them is the controller."""

from __future__ import annotations

from typing import Any

from moldau.broker.api.cluster.parts import ClusterParts, handles
from moldau.broker.api.registry import Answer
from moldau.broker.api.rights import Right, cluster_operations
from moldau.broker.net.request import Request
from moldau.broker.security.authorizer import Operation, Resource
from moldau.wire.apis import Api
from moldau.wire.errors import Error

# The kind of endpoints that is asked about (KIP-919).
BROKERS = 1
CONTROLLERS = 2


@handles(Api.DESCRIBE_CLUSTER, (0, 2), Right(Operation.DESCRIBE, Resource.CLUSTER))
def describe_cluster(parts: ClusterParts, request: Request) -> Answer:
    """Return the brokers under the addresses that this client can reach them by."""
    body = request.body
    endpoint_type = getattr(body, "endpoint_type", BROKERS)
    if endpoint_type == CONTROLLERS:
        return {
            "error_code": Error.MISMATCHED_ENDPOINT_TYPE,
            "error_message": "This is a broker: it does not know the addresses of controllers.",
        }
    if endpoint_type != BROKERS:
        return {
            "error_code": Error.UNSUPPORTED_ENDPOINT_TYPE,
            "error_message": f"Unsupported endpoint type {endpoint_type}",
        }
    brokers = parts.brokers.describe(request.context)
    answer: dict[str, Any] = {
        "cluster_id": parts.node.state.cluster_id,
        "controller_id": parts.node.state.controller_id,
        "brokers": [
            {
                "broker_id": each["node_id"],
                "host": each["host"],
                "port": each["port"],
                "rack": each["rack"],
            }
            for each in brokers
        ],
    }
    if body.include_cluster_authorized_operations:
        answer["cluster_authorized_operations"] = cluster_operations(request)
    return answer
