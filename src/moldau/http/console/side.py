"""The console on a broker's HTTP side, at /console/. Made when somebody first opens it.

It connects to one of the broker's own listeners like any other client, in threads of its own, and
tells brokers the address of whoever asks, since rules may be about it. If that listener asks for
passwords, or an issuer is set, people sign in to the console, and so its paths are open to those
who have not signed in to the HTTP side.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
from typing import TYPE_CHECKING

from starlette.routing import BaseRoute, Mount
from starlette.types import ASGIApp, Receive, Scope, Send

from moldau.broker.net.context import plain_host
from moldau.broker.settings.listeners import ListenerAddress
from moldau.broker.settings.security import of_listener
from moldau.http.answers import error
from moldau.http.host import Host

if TYPE_CHECKING:
    from moldau.console.console import Console
    from moldau.console.settings import ConsoleSettings

PATH = "/console"
logger = logging.getLogger("moldau.http")
_PASSWORD_MECHANISMS = ("SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN")
_BY_TOKEN = ("OAUTHBEARER",)
_WILDCARDS = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}


def routes(host: Host) -> list[BaseRoute]:
    """Return the console's route; none if a setting says so."""
    if host.broker.settings.http_console == "off":
        return []
    return [Mount(PATH, BrokerConsole(host))]


def is_open_path(host: Host, path: str) -> bool:
    """Return whether a path is one of a console to which people sign in."""
    if path != PATH and not path.startswith(f"{PATH}/"):
        return False
    listener = chosen_listener(host)
    if listener is None:
        return False
    return listener.has_sasl or bool(host.broker.settings.console_issuer)


class BrokerConsole:
    """ASGI application that makes the console with the first request. Event loop only."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._app: ASGIApp | None = None
        self._console: Console | None = None
        self._making = asyncio.Lock()
        host.on_stop.append(self._stop)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        problem = self._problem()
        if problem is not None:
            await error(503, problem)(scope, receive, send)
            return
        async with self._making:
            if self._app is None:
                # Importing takes longer than the loop may be held.
                loop = asyncio.get_running_loop()
                self._app = await asyncio.to_thread(self._make, loop)
                assert self._console is not None
                self._console.start()
        await self._app(scope, receive, send)

    def _problem(self) -> str | None:
        broker = self._host.broker
        if broker.phase != "serving":
            return f"the broker is {broker.phase}"
        listener = chosen_listener(self._host)
        if listener is None and broker.settings.console_issuer:
            return (
                "no listener accepts the tokens of people who sign in with "
                "http.console.oidc.issuer: give the broker a listener with OAUTHBEARER"
            )
        if listener is None:
            return "no listener accepts what a console can offer: no login, or a password"
        if broker.settings.http_console == "auto" and not self._is_safe(listener):
            return (
                "the console is off: this address is not loopback, and all its users would be "
                "User:ANONYMOUS to the broker; give the broker a listener with SCRAM or PLAIN, or "
                "set http.console to on or read-only if you want that"
            )
        return None

    def _is_safe(self, listener: ListenerAddress) -> bool:
        settings = self._host.broker.settings
        asks = settings.http_security_protocol.startswith("SASL")
        address = settings.http_address
        assert address is not None
        if listener.has_sasl or settings.console_issuer or _is_loopback(address[0]):
            return True
        # Who has signed in to the HTTP side may have fewer rights than nobody has at home.
        return asks and self._host.broker.entrance.authorizer is None

    def _make(self, loop: asyncio.AbstractEventLoop) -> ASGIApp:
        from moldau.console.app import application
        from moldau.console.console import Console

        self._console = Console(_settings(self._host), loop)
        return application(self._console)

    async def _stop(self) -> None:
        if self._console is not None:
            await self._console.stop()


def chosen_listener(host: Host) -> ListenerAddress | None:
    """Return the listener that the console uses: one by which people sign in, or one without
    anything. With access control, who comes with a token needs one that takes it."""
    listeners = host.broker.settings.all_listeners
    for each in listeners:
        if each.has_sasl and _mechanism(host, each):
            return each
    if host.broker.settings.console_issuer and host.broker.entrance.authorizer is not None:
        return None
    return next((each for each in listeners if not each.has_sasl and not each.has_tls), None)


def _mechanism(host: Host, listener: ListenerAddress) -> str:
    """Return the mechanism by which people connect to a listener; empty if there is none."""
    settings = host.broker.settings
    enabled = of_listener(dict(settings.given), listener.name).sasl_enabled_mechanisms
    wanted = _BY_TOKEN if settings.console_issuer else _PASSWORD_MECHANISMS
    return next((each for each in wanted if each in enabled), "")


def _settings(host: Host) -> ConsoleSettings:
    from moldau.broker.security.sasl.doors import jaas_setting
    from moldau.console.settings import ConsoleSettings, OidcSettings
    from moldau.console.values.masks import Mask
    from moldau.security.client import ClientSecurity
    from moldau.security.tls_settings import TlsSettings
    from moldau.settings import InvalidSetting, definitions

    broker = host.broker
    settings = broker.settings
    given = dict(settings.given)
    listener = chosen_listener(host)
    assert listener is not None
    bound = broker.listener(listener.name)
    address, port = bound.advertised or (_WILDCARDS.get(bound.host, bound.host), bound.port)
    sign_in: dict[str, str] | None = None
    security: ClientSecurity | None = None
    if listener.has_sasl:
        mechanism = _mechanism(host, listener)
        sign_in = {"security.protocol": listener.protocol, "sasl.mechanism": mechanism}
        own = of_listener(given, listener.name)
        for key, definition in definitions(TlsSettings).items():
            # The broker's own certificate is not one of the people who sign in.
            if "keystore" not in key and key != "ssl.key.password":
                sign_in[key] = definition.format(getattr(own, definition.attribute))
        jaas = given.get(jaas_setting(mechanism, listener.name), "")
        try:
            # The broker's own name, with which it takes samples.
            security = ClientSecurity.parse({**sign_in, "sasl.jaas.config": jaas})
        except InvalidSetting:
            logger.info("the console shows no charts: the broker has no login to take samples with")
    companion = broker.companion
    assert companion is not None
    scheme, _, place = companion.url.partition("://")
    name, _, http_port = place.rpartition(":")
    shown = _WILDCARDS.get(name.strip("[]"), name.strip("[]"))
    in_url = f"[{shown}]" if ":" in shown else shown
    oidc = None
    if settings.console_issuer:
        oidc = OidcSettings(
            settings.console_issuer,
            settings.http_console_oidc_client_id,
            settings.http_console_oidc_client_secret,
            redirect_url=settings.http_console_public_url,
        )
    return ConsoleSettings(
        f"[{address}]:{port}" if ":" in address else f"{address}:{port}",
        security,
        sign_in,
        registry=f"{scheme}://{in_url}:{http_port}",
        registry_is_here=True,
        read_only=settings.http_console == "read-only",
        masks=tuple(map(Mask.parse, settings.console_masks)),
        oidc=oidc,
        metrics=(f"{scheme}://{in_url}:{http_port}/metrics?per_partition=false",),
        metrics_login="" if security is None else security.http_login("", in_clear=True),
        vouch=None
        if broker.entrance.authorizer is None
        else lambda address: broker.origins.vouch(plain_host(address)),
    )


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
