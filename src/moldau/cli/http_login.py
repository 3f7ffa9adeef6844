"""Logins at the HTTP side of brokers: from the client's config or the environment, never on the
command line, which everybody on the machine can read."""

from __future__ import annotations

import os
from collections.abc import Sequence
from urllib.parse import urlsplit

import typer

VARIABLE = "MOLDAU_HTTP_LOGIN"
REGISTRY_VARIABLE = "MOLDAU_REGISTRY"


def without_login(urls: Sequence[str], flag: str) -> list[str]:
    """Return these addresses; BadParameter if one of them has a login in it."""
    for url in urls:
        parts = urlsplit(url)
        if "@" in parts.netloc:
            bare = parts.netloc.rpartition("@")[2]
            raise typer.BadParameter(
                f"every user of this machine can read the login before {bare}; use "
                f"--client-config, or put USER:PASSWORD into {VARIABLE}",
                param_hint=flag,
            )
    return list(urls)


def registry_address(
    context: typer.Context, parameter: typer.CallbackParam, url: str | None
) -> str | None:
    """Return the address of a registry, the callback of an option; BadParameter if it was given on
    the command line with a login in it."""
    source = context.get_parameter_source(parameter.name or "")
    if url and source is not None and source.name == "COMMANDLINE":
        bare = urlsplit(url).netloc.rpartition("@")
        if bare[1]:
            raise typer.BadParameter(
                f"the login before {bare[2]} is visible to every user of this machine; set "
                "basic.auth.user.info in --client-config, or put the address into "
                f"{REGISTRY_VARIABLE}",
                param_hint="--registry",
            )
    return url


def http_login() -> str:
    """Return USER:PASSWORD from the environment; empty if the client's config is meant."""
    given = os.environ.get(VARIABLE, "")
    if given and ":" not in given:
        raise typer.BadParameter("expected USER:PASSWORD", param_hint=VARIABLE)
    return given
