"""Settings of a broker, as the brokers tell them."""

from __future__ import annotations

from moldau.peer.cluster import Cluster
from moldau.wire.apis import Api

_BROKER_RESOURCE = 4


def broker_settings(cluster: Cluster, keys: list[str]) -> dict[str, str | None]:
    """Return some settings of a broker; none if we may not see them."""
    nodes = cluster.metadata(()).nodes
    if not nodes:
        return {}
    # Only the broker itself knows them.
    id = min(nodes)
    wanted = {
        "resource_type": _BROKER_RESOURCE,
        "resource_name": str(id),
        "configuration_keys": keys,
    }
    answer = cluster.insist(
        lambda: cluster.to(nodes[id]).ask(Api.DESCRIBE_CONFIGS, {"resources": [wanted]})
    )
    return {str(each.name): each.value for told in answer.results for each in told.configs}
