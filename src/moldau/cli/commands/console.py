"""`moldau console`: the web console for any Kafka-compatible cluster."""

from __future__ import annotations

import asyncio
import ipaddress
import os
import signal
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated

import typer

from moldau.cli.http_login import (
    REGISTRY_VARIABLE,
    http_login,
    registry_address,
    without_login,
)
from moldau.cli.log_lines import LogFormat, log_in
from moldau.cli.options import DEFAULT_BOOTSTRAP, Bootstrap
from moldau.cli.views.output import Failure, show

if TYPE_CHECKING:
    from moldau.console.settings import ConsoleSettings, OidcSettings
    from moldau.schemas.registry_settings import RegistrySettings


def console(
    listen: Annotated[
        str,
        typer.Option(metavar="HOST:PORT", help="Address to listen on; port 0 takes a free one."),
    ] = "127.0.0.1:8080",
    registry: Annotated[
        str,
        typer.Option(
            envvar=REGISTRY_VARIABLE,
            metavar="URL",
            callback=registry_address,
            help="Schema registry, such as http://127.0.0.1:8081. Its login is in the client's "
            "config, or that of the signed-in user. Default: none.",
        ),
    ] = "",
    read_only: Annotated[
        bool, typer.Option("--read-only", help="Show everything, but allow no changes.")
    ] = False,
    mask: Annotated[
        list[str] | None,
        typer.Option(
            metavar="TOPIC:FIELD",
            help="Field of the values to hide from everybody, such as customers:card.number; "
            "@key, @value or @HEADER hide those. * in the topic matches anything. May be "
            "repeated.",
        ),
    ] = None,
    host: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Host name that browsers may use for the console, besides numeric addresses and "
            "localhost, if nobody has to sign in. May be repeated.",
        ),
    ] = None,
    everybody: Annotated[
        bool,
        typer.Option(
            "--as-client",
            help="Let anyone who can reach the console act as the user of --client-config, "
            "without signing in.",
        ),
    ] = False,
    metrics: Annotated[
        list[str] | None,
        typer.Option(
            metavar="URL",
            help="A broker's metrics, such as http://127.0.0.1:8081/metrics, for numbers that the "
            "Kafka protocol does not provide, such as bytes out. If it asks for a login, the "
            "console sends that of the client config, or USER:PASSWORD from "
            "MOLDAU_HTTP_LOGIN. May be repeated.",
        ),
    ] = None,
    oidc_issuer: Annotated[
        str,
        typer.Option(
            metavar="URL",
            help="Let people sign in with this OpenID Connect issuer. If the client's config says "
            "OAUTHBEARER, the console talks to the brokers with their tokens.",
        ),
    ] = "",
    oidc_client_id: Annotated[
        str,
        typer.Option(
            metavar="ID",
            help="The console's client id at the issuer. Its secret, if it has one, is in "
            "MOLDAU_OIDC_CLIENT_SECRET.",
        ),
    ] = "",
    public_url: Annotated[
        str,
        typer.Option(
            metavar="URL",
            help="Address of this console for browsers, if it differs from --listen.",
        ),
    ] = "",
    log_format: LogFormat = "text",
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Serve a web console for a cluster: topics, messages, groups, schemas and more.

    It prints its address when it is ready, logs to stderr and stops on SIGTERM or Ctrl-C. If the
    client's config asks for SASL, people sign in as users of the brokers and have their rights.
    """
    log_in(log_format, "INFO")
    settings = settings_of(
        bootstrap,
        registry=registry,
        read_only=read_only,
        mask=mask or [],
        host=host or [],
        everybody=everybody,
        oidc=_oidc(oidc_issuer, oidc_client_id, public_url),
        metrics=without_login(metrics or [], "--metrics"),
    )
    address = _address(listen)
    if settings.sign_in is None and settings.oidc is None and not _is_loopback(address[0]):
        show(
            f"anyone who can reach {listen} can use this console: nobody has to sign in",
            "yellow",
            stderr=True,
        )
    asyncio.run(serve(settings, address))


def settings_of(
    bootstrap: str,
    *,
    registry: str = "",
    read_only: bool = False,
    mask: list[str] | None = None,
    host: list[str] | None = None,
    everybody: bool = False,
    oidc: OidcSettings | None = None,
    metrics: list[str] | None = None,
) -> ConsoleSettings:
    """Return the settings of a console by its options and the client's config."""
    from moldau.console.settings import ConsoleSettings, sign_in_properties
    from moldau.console.values.masks import Mask
    from moldau.peer.view import parse_bootstrap
    from moldau.security.client import ClientSecurity, is_security
    from moldau.security.client_config import client_properties
    from moldau.settings import InvalidSetting

    try:
        parse_bootstrap(bootstrap)
        masks = tuple(Mask.parse(text) for text in mask or [])
    except ValueError as problem:
        raise typer.BadParameter(str(problem)) from None
    given = client_properties()
    properties = {name: text for name, text in given.items() if is_security(name)}
    sign_in = None if everybody else sign_in_properties(properties)
    security = None
    try:
        security = ClientSecurity.parse(properties) if properties else None
    except InvalidSetting:
        # People sign in with names of their own; the console may have none itself.
        if sign_in is None:
            raise
    if sign_in is not None and sign_in["sasl.mechanism"] == "OAUTHBEARER" and oidc is None:
        raise Failure(
            "brokers require tokens (OAUTHBEARER), and people have none",
            "let them sign in with --oidc-issuer, or give everybody yours with --as-client",
        )
    return ConsoleSettings(
        bootstrap,
        security,
        sign_in,
        registry,
        read_only,
        masks,
        oidc,
        metrics=tuple(metrics or ()),
        metrics_login=http_login() if metrics else "",
        registry_own=_own_registry(registry, given),
        hosts=frozenset(name.lower() for name in host or []),
    )


def _own_registry(url: str, properties: Mapping[str, str]) -> RegistrySettings | None:
    """Return what the client's config, or the address, says about the registry; None if nothing."""
    from moldau.schemas.registry_settings import PREFIX, RegistrySettings, registry_properties

    own = registry_properties(properties)
    if not url or (not own and "@" not in url):
        return None
    return RegistrySettings.parse(own | {f"{PREFIX}url": url})


def _oidc(issuer: str, client_id: str, public_url: str) -> OidcSettings | None:
    from moldau.console.settings import OidcSettings

    if not issuer:
        return None
    if not client_id:
        raise typer.BadParameter("an issuer needs one", param_hint="--oidc-client-id")
    secret = os.environ.get("MOLDAU_OIDC_CLIENT_SECRET", "")
    return OidcSettings(issuer, client_id, secret, redirect_url=public_url)


async def serve(settings: ConsoleSettings, address: tuple[str, int]) -> None:
    """Serve until a signal ends it."""
    from moldau.broker.net.listener import CannotListen
    from moldau.http.console.server import ConsoleServer

    loop = asyncio.get_running_loop()
    server = ConsoleServer(settings, *address)
    stopping = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    try:
        await server.start()
    except CannotListen as problem:
        raise Failure(str(problem), "choose another address with --listen") from None
    print(f"moldau console ready on {server.url}", flush=True)
    try:
        await stopping.wait()
    finally:
        await server.stop()


def _address(listen: str) -> tuple[str, int]:
    host, colon, port = listen.rpartition(":")
    if not colon or not host or not port.isdigit() or int(port) > 65535:
        raise typer.BadParameter(
            f"{listen!r} is not HOST:PORT, for example 127.0.0.1:8080", param_hint="--listen"
        )
    return host.strip("[]"), int(port)


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
