"""The listeners of a broker, made from its settings."""

from __future__ import annotations

from moldau.broker.net.listener import Door, Listener
from moldau.broker.net.outputs.socket_output import SocketOutput
from moldau.broker.net.outputs.transport_output import TransportOutput
from moldau.broker.settings.broker import BrokerSettings
from moldau.broker.settings.listeners import PLAINTEXT, ListenerAddress
from moldau.broker.settings.security import of_listener


def new_listeners(settings: BrokerSettings) -> list[Listener]:
    """Return the listeners, none of them bound; InvalidSetting for what TLS or SASL cannot use."""
    plain = SocketOutput if settings.socket_sendfile_enable else TransportOutput
    return [
        Listener(
            each.name,
            each.host,
            each.port,
            each.advertised,
            TransportOutput if each.has_tls else plain,
            protocol=each.protocol,
            is_inter_broker=each.name == settings.inter_broker_listener,
            door=_door(settings, each),
        )
        for each in settings.all_listeners
    ]


def _door(settings: BrokerSettings, address: ListenerAddress) -> Door | None:
    if address.protocol == PLAINTEXT:
        return None
    # Only here, since a broker without security needs none of it.
    from moldau.broker.net.doors.door import SecureDoor

    return SecureDoor(address, settings.given, of_listener(settings.given, address.name))
