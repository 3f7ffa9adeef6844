"""The beginning of a queue: where a share group starts that has read nothing yet."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from moldau.client.brokers import addresses, security_of
from moldau.client.errors import ClientError
from moldau.peer.cluster import Cluster
from moldau.peer.errors import PeerError
from moldau.peer.retries import PeerSettings
from moldau.settings import InvalidSetting
from moldau.wire.apis import Api

_GROUP = 32
_SET = 0


def begin_at(
    bootstrap: str, group: str, start: str, given: Mapping[str, Any] | None = None
) -> None:
    """Set where a group begins; ClientError if the broker refuses. `given` are a client's settings:
    those of security hold here, too."""
    entry = {"name": "share.auto.offset.reset", "config_operation": _SET, "value": start}
    resource = {"resource_type": _GROUP, "resource_name": group, "configs": [entry]}
    try:
        settings = PeerSettings(security=security_of(given or {}))
        with Cluster(addresses(bootstrap), settings) as cluster:
            connection = cluster.some_broker()
            answer = connection.ask(
                Api.INCREMENTAL_ALTER_CONFIGS, {"resources": [resource], "validate_only": False}
            )
    except (PeerError, InvalidSetting) as problem:
        raise ClientError(f"could not set where group {group} begins: {problem}") from problem
    told = answer.responses[0]
    if told.error_code:
        raise ClientError(f"group {group} cannot begin at {start!r}: {told.error_message}")
