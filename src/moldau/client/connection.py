"""A client's connection: its addresses, and its settings for librdkafka.

Imports no client library, so that a command line can read the default address for nothing.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from typing import Any

DEFAULT_BOOTSTRAP = "127.0.0.1:9092"
BOOTSTRAP_VARIABLE = "MOLDAU_BOOTSTRAP"
CLIENT_CONFIG_VARIABLE = "MOLDAU_CLIENT_CONFIG"

# These are Python objects to confluent-kafka, and their names have underscores of their own.
_NOT_DOTTED = frozenset(("error_cb", "stats_cb", "throttle_cb", "oauth_cb", "logger"))


def bootstrap_address(given: str | None = None) -> str:
    """Return the given address, or the one of `MOLDAU_BOOTSTRAP`, or a broker on this machine."""
    return given or os.environ.get(BOOTSTRAP_VARIABLE) or DEFAULT_BOOTSTRAP


def kafka_name(name: str) -> str:
    """`linger_ms` as Kafka writes it: `linger.ms`."""
    return name if name in _NOT_DOTTED else name.replace("_", ".")


def librdkafka_settings(
    bootstrap: str | None,
    given: Mapping[str, Any],
    *,
    defaults: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """librdkafka's configuration: defaults, overridden by what the caller gave.

    Settings have Kafka's names, with dots or with underscores for them. `settings={...}` among
    them stands for its items, so that a mapping can be handed on as it is. Those of security may
    come from the file that `MOLDAU_CLIENT_CONFIG` names, and have Java's names, too.
    """
    settings = {
        "bootstrap.servers": bootstrap_address(bootstrap),
        **(defaults or {}),
        **security_properties(),
    }
    settings |= by_kafka_name(given)
    # Connection trouble is retried and logged; if it persists, it is an error of the message or
    # call.
    settings.setdefault("error_cb", _unheard)
    settings.setdefault("logger", logging.getLogger("moldau.client.librdkafka"))
    return secured(settings)


def by_kafka_name(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a caller gave under Kafka's names, those within `settings` included."""
    inner = given.get("settings") or {}
    return {
        kafka_name(name): value
        for name, value in (*inner.items(), *given.items())
        if name != "settings"
    }


def security_properties() -> dict[str, str]:
    """Return what the file of `MOLDAU_CLIENT_CONFIG` says of security; nothing without one."""
    if not os.environ.get(CLIENT_CONFIG_VARIABLE):
        return {}
    from moldau.security.client import is_security
    from moldau.security.client_config import client_properties

    return {name: text for name, text in client_properties().items() if is_security(name)}


def secured(settings: dict[str, Any]) -> dict[str, Any]:
    """Return these settings with Java's names of security turned into librdkafka's."""
    if not any(name.startswith(("ssl.", "sasl.", "security.")) for name in settings):
        return settings
    from moldau.security.librdkafka import for_librdkafka

    return for_librdkafka(settings)


def _unheard(error: object) -> None:
    return None
