"""Brokers, asked by a client over a connection of its own for what librdkafka has no call for."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from moldau.client.connection import by_kafka_name, security_properties
from moldau.peer.connection import Connection
from moldau.peer.errors import PeerError
from moldau.settings import InvalidSetting
from moldau.wire.apis import Api

if TYPE_CHECKING:
    from moldau.security.client import ClientSecurity

logger = logging.getLogger("moldau.client")

_CLIENT_ID = "moldau-client"
# A broker that takes longer is asked nothing: whoever waits can do without.
_WITHIN_S = 2.0
# Since this version members choose their ids themselves (KIP-1082).
_HEARTBEAT = 1
# The name of librdkafka for what is a truststore to Java.
_AUTHORITY = "ssl.ca.location"


def addresses(bootstrap: str) -> list[tuple[str, int]]:
    """Return host and port of each broker that a client is given."""
    return [_address(each) for each in bootstrap.split(",")]


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.strip().rpartition("://")[2].rpartition(":")
    return host.strip("[]"), int(port)


def security_of(given: Mapping[str, Any]) -> ClientSecurity | None:
    """Return the security that a client's settings ask for; InvalidSetting where only librdkafka
    knows what they mean."""
    from moldau.security.client import ClientSecurity, is_security

    texts = security_properties()
    texts |= {name: str(v) for name, v in by_kafka_name(given).items() if is_security(name)}
    if _AUTHORITY in texts:
        texts |= {
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": texts.pop(_AUTHORITY),
        }
    return ClientSecurity.parse(texts)


def assign_to_groups(bootstrap: str, given: Mapping[str, Any]) -> bool:
    """Return whether brokers assign partitions themselves (KIP-848); False if none can be asked."""
    deadline = time.monotonic() + _WITHIN_S
    try:
        security = security_of(given)
        for host, port in addresses(bootstrap):
            if time.monotonic() > deadline:
                break
            try:
                with Connection(
                    host,
                    port,
                    _CLIENT_ID,
                    timeout_s=_WITHIN_S,
                    connect_timeout_s=_WITHIN_S,
                    security=security,
                ) as connection:
                    version = connection.version_of(Api.CONSUMER_GROUP_HEARTBEAT)
                    return version >= _HEARTBEAT and connection.level_of("group.version") > 0
            except PeerError as problem:
                logger.debug("could not ask %s:%d for its features: %s", host, port, problem)
    except (InvalidSetting, ValueError) as problem:
        logger.debug("could not ask brokers for their features: %s", problem)
    return False
