"""The settings of listeners: under which names, and at which addresses, a broker is reached.

Kafka's syntax, `NAME://HOST:PORT,...`; HOST:PORT alone is short for a listener called PLAINTEXT.
"""

from __future__ import annotations

import msgspec

from moldau.broker.settings.security import SecuritySettings
from moldau.settings import InvalidSetting, setting

PLAINTEXT = "PLAINTEXT"
PROTOCOLS = (PLAINTEXT, "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_WILDCARDS = ("", "0.0.0.0", "::")

Address = tuple[str, int]


class ListenerAddress(msgspec.Struct, frozen=True):
    """One listener: its name, where it listens, and the address that clients are told, if any."""

    name: str
    host: str
    port: int
    advertised: Address | None = None
    protocol: str = PLAINTEXT

    @property
    def has_tls(self) -> bool:
        return self.protocol.endswith("SSL")

    @property
    def has_sasl(self) -> bool:
        return self.protocol.startswith("SASL")


class ListenerSettings(SecuritySettings):
    """The settings of a broker that say how it is reached."""

    listeners: str = setting(
        "listeners",
        "127.0.0.1:9092",
        "The addresses to listen on, NAME://HOST:PORT,..., or a single HOST:PORT; "
        "port 0 takes a free one.",
    )
    advertised_listeners: str = setting(
        "advertised.listeners",
        "",
        "The addresses that clients should use, in the same form; port 0 is the port that the "
        "listener took. For a listener without an address here, each client is told the address "
        "that it connected to.",
    )
    listener_security_protocol_map: str = setting(
        "listener.security.protocol.map",
        "PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL",
        "The protocol of each listener, NAME:PROTOCOL,...: PLAINTEXT, SSL, SASL_PLAINTEXT or "
        "SASL_SSL.",
    )
    inter_broker_listener_name: str = setting(
        "inter.broker.listener.name",
        "",
        "The listener that other brokers use. If empty, the one called PLAINTEXT, or "
        "else the first.",
    )
    socket_sendfile_enable: bool = setting(
        "socket.sendfile.enable",
        True,
        "Whether the kernel sends records straight from their files. If false, the "
        "broker copies them.",
    )

    @property
    def all_listeners(self) -> tuple[ListenerAddress, ...]:
        return parse_listeners(
            self.listeners, self.advertised_listeners, self.listener_security_protocol_map
        )

    @property
    def inter_broker_listener(self) -> str:
        return parse_inter_broker_name(self.inter_broker_listener_name, self.all_listeners)


def parse_listeners(
    listeners: str, advertised_listeners: str, protocol_map: str
) -> tuple[ListenerAddress, ...]:
    """Return the listeners that these texts mean, in their order; InvalidSetting for what cannot
    be."""
    addresses = _parse("listeners", listeners)
    advertised = _parse("advertised.listeners", advertised_listeners)
    protocols = _parse_protocols(protocol_map)
    if not addresses:
        raise InvalidSetting("listeners", listeners, "a broker needs at least one")
    for name in addresses:
        protocol = protocols.get(name)
        if protocol is None:
            reason = f"add {name}:PLAINTEXT to listener.security.protocol.map, which lacks {name}"
            raise InvalidSetting("listeners", listeners, reason)
    for name, (host, _) in advertised.items():
        if name not in addresses:
            reason = f"there is no listener {name}, only {', '.join(addresses)}"
            raise InvalidSetting("advertised.listeners", advertised_listeners, reason)
        if host in _WILDCARDS:
            reason = f"clients cannot connect to '{host}'; give an address of this machine"
            raise InvalidSetting("advertised.listeners", advertised_listeners, reason)
    return tuple(
        ListenerAddress(name, host, port, advertised.get(name), protocols[name])
        for name, (host, port) in addresses.items()
    )


def parse_inter_broker_name(name: str, listeners: tuple[ListenerAddress, ...]) -> str:
    """Return the listener for other brokers: the one named, else PLAINTEXT, else the first."""
    names = [each.name for each in listeners]
    if not name:
        return PLAINTEXT if PLAINTEXT in names else names[0]
    if name.upper() not in names:
        reason = f"there is no such listener, only {', '.join(names)}"
        raise InvalidSetting("inter.broker.listener.name", name, reason)
    return name.upper()


def _parse(key: str, text: str) -> dict[str, Address]:
    found: dict[str, Address] = {}
    for item in filter(None, map(str.strip, text.split(","))):
        scheme, separator, rest = item.rpartition("://")
        name = scheme.upper() if separator else PLAINTEXT
        if not name:
            raise InvalidSetting(key, text, "expected NAME://HOST:PORT, but the name is empty")
        if name in found:
            raise InvalidSetting(key, text, f"two listeners are called {name}")
        found[name] = parse_address(key, rest)
    return found


def parse_address(key: str, text: str) -> Address:
    """HOST:PORT, with an IPv6 host in brackets."""
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdecimal() or not port.isascii() or int(port) > 65535:
        raise InvalidSetting(key, text, "expected HOST:PORT, for example 127.0.0.1:9092")
    return host.strip("[]"), int(port)


def _parse_protocols(text: str) -> dict[str, str]:
    key = "listener.security.protocol.map"
    found: dict[str, str] = {}
    for item in filter(None, map(str.strip, text.split(","))):
        name, colon, protocol = (part.strip().upper() for part in item.partition(":"))
        if not colon or not name:
            raise InvalidSetting(key, text, "expected NAME:PROTOCOL,...")
        if protocol not in PROTOCOLS:
            raise InvalidSetting(key, text, f"{protocol} is not one of {', '.join(PROTOCOLS)}")
        if name in found:
            raise InvalidSetting(key, text, f"{name} is named twice")
        found[name] = protocol
    return found
