"""The context of a connection: which listener it came in by, from where, and who it is."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec

from moldau.broker.security.authorizer import Grants
from moldau.broker.security.principal import ANONYMOUS, Principal

_MAPPED = "::ffff:"


def plain_host(host: str) -> str:
    """Return an address as rules name it: an IPv4 address that came mapped into IPv6 as itself."""
    if host[:7].lower() == _MAPPED and "." in host:
        return host[7:]
    return host


class Context(msgspec.Struct):
    """One per connection. Only the principal ever changes, when the client proves who it is, the
    host of a client for whom a broker asks, and whether it is a broker, when it asks for what only
    brokers may.

    The local address is the one that the client reached.
    """

    listener: str
    local_host: str
    local_port: int
    client_host: str
    client_port: int
    principal: Principal = ANONYMOUS
    # Whether other brokers connect here; their word about the original client is trusted.
    is_inter_broker: bool = False
    # Whether it is a broker for all that we know: no quota holds for what brokers do.
    is_broker: bool = False
    # What it was granted, and the rates it counts for, so that neither is looked for each time.
    grants: Grants | None = None
    meter: Any = None
    # The address at the other end of the connection, where a broker asks for a client elsewhere.
    peer_host: str = ""

    def become(self, principal: Principal) -> None:
        """Be somebody else from now on, with nothing of what the one before was granted."""
        self.principal = principal
        self.grants = self.meter = None
        self.is_broker = False

    def ask_for(self, host: str) -> None:
        """Act for a client at this address from now on, as a broker has vouched for."""
        self.peer_host = self.peer_host or self.client_host
        self.client_host = host
        self.grants = None

    def believe(self) -> None:
        """Take the client for a broker, which has just asked for something with the right to act
        for the cluster; it has to have come in where brokers do."""
        self.is_broker = self.is_inter_broker

    @property
    def client(self) -> str:
        """The client's address, for logs."""
        return f"{self.client_host}:{self.client_port}"


def context_of(transport: asyncio.BaseTransport, listener: str, is_inter_broker: bool) -> Context:
    """Return the context of a connection that has just come in by a listener."""
    host, port, *_ = transport.get_extra_info("sockname")
    peer, number, *_ = transport.get_extra_info("peername") or ("?", 0)
    return Context(listener, host, port, plain_host(peer), number, is_inter_broker=is_inter_broker)
