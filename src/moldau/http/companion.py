"""The HTTP side of a broker that has one, for those who put a broker together."""

from __future__ import annotations

from moldau.broker.server import CompanionOf
from moldau.broker.settings.broker import BrokerSettings


def companion_of(settings: BrokerSettings) -> CompanionOf | None:
    """Return what runs beside the broker. Without `http.listen` no HTTP library is imported."""
    if not settings.http_listen:
        return None
    from moldau.http.side import HttpSide

    return HttpSide
