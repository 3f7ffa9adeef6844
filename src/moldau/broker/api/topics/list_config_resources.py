"""ListConfigResources: what has settings."""

from __future__ import annotations

from moldau.broker.api.registry import Answer
from moldau.broker.api.rights import on_cluster
from moldau.broker.api.topics.configs import ResourceType
from moldau.broker.api.topics.parts import TopicParts, handles
from moldau.broker.net.request import Request
from moldau.broker.security.authorizer import Operation
from moldau.cluster.errors import ClusterError
from moldau.wire.apis import Api
from moldau.wire.errors import Error

# In v0 the request was ListClientMetricsResources and asked for nothing else.
_FIRST_WITH_TYPES = 1


def _refused(request: Request, error: ClusterError) -> Answer:
    return {"error_code": error.error, "config_resources": ()}


@handles(
    Api.LIST_CONFIG_RESOURCES, (0, 1), on_cluster(Operation.DESCRIBE_CONFIGS), refused=_refused
)
def list_config_resources(parts: TopicParts, request: Request) -> Answer:
    """Return the topics, the brokers and the groups that have settings of their own; loggers and
    client metrics have none here."""
    wanted = {int(ResourceType.CLIENT_METRICS)}
    if request.version >= _FIRST_WITH_TYPES:
        wanted = set(request.body.resource_types) or {int(kind) for kind in ResourceType}
    if not wanted.issubset(ResourceType):
        return {"error_code": Error.UNSUPPORTED_VERSION, "config_resources": ()}
    names = {
        ResourceType.TOPIC: sorted(parts.node.state.topics),
        ResourceType.BROKER: [str(each) for each in sorted(parts.node.state.brokers)],
        ResourceType.GROUP: sorted(parts.node.state.access.group_configs),
    }
    return {
        "config_resources": [
            {"resource_type": int(kind), "resource_name": name}
            for kind, found in names.items()
            if kind in wanted
            for name in found
        ]
    }
