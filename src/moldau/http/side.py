"""The HTTP side of a broker: all that it serves over HTTP."""

from __future__ import annotations

from typing import TYPE_CHECKING

from moldau.broker.net.doors.door import SecureDoor
from moldau.broker.settings.http import HTTP
from moldau.broker.settings.listeners import ListenerAddress
from moldau.broker.settings.security import of_listener
from moldau.http import health
from moldau.http.console import side as console
from moldau.http.host import Host
from moldau.http.metrics import scrape
from moldau.http.registry import routes as registry
from moldau.http.server import HttpLimits, HttpServer

if TYPE_CHECKING:
    from moldau.broker.server import Broker

# Each gives `routes(host)`.
MODULES = (health, scrape, registry, console)


class HttpSide:
    """It answers from `start` on, before the broker is ready, and until the broker has stopped;
    `served`, `stopping` and `drained` are what lies between. Event loop only.
    """

    def __init__(self, broker: Broker) -> None:
        settings = broker.settings
        address = settings.http_address
        assert address is not None
        self._broker = broker
        self._host = Host(broker)
        self._door = _door(broker, *address)
        authenticator = None
        if self._door is not None and self._door.sasl is not None:
            from moldau.http.authentication import SaslAuthenticator

            authenticator = SaslAuthenticator(self._door.sasl, broker.guard.audit)
        self._server = HttpServer(
            *address,
            [route for module in MODULES for route in module.routes(self._host)],
            HttpLimits(
                settings.http_max_connections,
                settings.http_request_max_bytes,
                settings.http_request_timeout_ms / 1000,
                # It may be changed while the broker runs.
                lambda host: broker.settings.most_connections_of(host),
            ),
            broker.connections.hangups,
            authenticator,
            None if self._door is None else self._door.contexts,
            None if self._door is None else self._door.principal_of,
            lambda path: console.is_open_path(self._host, path),
            broker.origins.address_in,
            None if self._door is None else self._door.refused,
        )

    @property
    def address(self) -> str:
        return self._server.address

    @property
    def url(self) -> str:
        return self._server.url

    async def start(self) -> None:
        """Take the address and answer."""
        await self._server.start()
        server = self._server
        has_tls = server.url.startswith("https:")
        self._broker.membership.serves_http_at(server.host, server.port, has_tls=has_tls)
        for work in () if self._door is None else self._door.watches():
            self._broker.node.spawn(work)

    async def served(self) -> None:
        """Run the hooks of what needs a broker that serves."""
        if self._door is not None:
            # Now the cluster is known.
            await self._door.prepare()
        for hook in self._host.on_start:
            await hook()

    async def stopping(self) -> None:
        """Run the hooks of what has to end before the broker does."""
        for hook in reversed(self._host.on_stop):
            await hook()

    async def drained(self) -> None:
        """Run the hooks of what clients of the broker need until all of them are answered."""
        for hook in reversed(self._host.on_drained):
            await hook()

    async def stop(self) -> None:
        """Take no more requests, and end those that are under way."""
        await self._server.stop()


def _door(broker: Broker, host: str, port: int) -> SecureDoor | None:
    """Return how clients prove who they are, and the broker to them; None if they need not."""
    settings = broker.settings
    address = ListenerAddress(HTTP, host, port, protocol=settings.http_security_protocol)
    if not address.has_tls and not address.has_sasl:
        return None
    door = SecureDoor(address, settings.given, of_listener(settings.given, HTTP))
    door.credentials = broker.credentials
    door.secret = broker.salts
    door.audit = broker.guard.audit
    return door
