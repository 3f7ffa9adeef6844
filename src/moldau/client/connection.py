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
    them stands for its items, so that a mapping can be handed on as it is.
    """
    settings = {"bootstrap.servers": bootstrap_address(bootstrap), **(defaults or {})}
    inner = given.get("settings") or {}
    for name, value in (*inner.items(), *given.items()):
        if name != "settings":
            settings[kafka_name(name)] = value
    # Connection trouble is retried and logged; if it persists, it is an error of the message or
    # call.
    settings.setdefault("error_cb", _unheard)
    settings.setdefault("logger", logging.getLogger("moldau.client.librdkafka"))
    return settings


def _unheard(error: object) -> None:
    return None
