"""`moldau top`: a cluster live in a terminal."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from typing import Annotated

import typer

from moldau.cli.clients import REQUEST_TIMEOUT_S, cluster_metadata, connect_admin, failures
from moldau.cli.http_login import http_login, without_login
from moldau.cli.options import DEFAULT_BOOTSTRAP, Bootstrap, Json
from moldau.cli.stopping import stopping
from moldau.cli.top.picture import Picture, picture_of
from moldau.cli.top.sample import Sample, Unreachable, take
from moldau.cli.top.screen import lines_of
from moldau.cli.views.output import Failure, console, show_json

_SETTINGS = ("http.listen", "http.security.protocol")
_WILDCARDS = ("", "0.0.0.0", "::")


def top(
    http: Annotated[
        list[str] | None,
        typer.Option(
            metavar="URL",
            help="A broker's HTTP address, such as http://127.0.0.1:8081; may be repeated. If it "
            "asks for a login, moldau sends that of the client config, or USER:PASSWORD from "
            "MOLDAU_HTTP_LOGIN. Default: the addresses in the brokers' settings.",
        ),
    ] = None,
    interval: Annotated[
        float,
        typer.Option(min=0.1, max=60, metavar="S", help="Seconds between updates."),
    ] = 2.0,
    once: Annotated[bool, typer.Option("--once", help="Measure once, print, and exit.")] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: Json = False,
) -> None:
    """Watch a cluster live: brokers, rates, lag, latency, and what is wrong.

    It reads what each broker shows over HTTP (`moldau broker --http HOST:PORT`). Ctrl-C ends it.
    """
    urls, problems = (without_login(http, "--http"), []) if http else find_brokers(bootstrap)
    if not urls:
        raise Failure(
            "no broker serves HTTP" + "".join(f"; {each}" for each in problems),
            "start brokers with --http HOST:PORT, or give an address with --http URL",
        )
    with stopping() as stop:
        _watch(urls, problems, stop, interval=interval, once=once, as_json=as_json)


def _watch(
    urls: list[str],
    problems: list[str],
    stop: threading.Event,
    *,
    interval: float,
    once: bool,
    as_json: bool,
) -> None:
    from rich.console import Group
    from rich.live import Live

    out = console()
    is_live = out.is_terminal and not once and not as_json
    before, _ = _look(urls)
    if not before:
        _, unreachable = _look(urls)
        raise Failure("no broker answers: " + "; ".join(unreachable), "check the addresses")
    with Live(console=out, screen=True, auto_refresh=False) if is_live else _nothing() as live:
        while not stop.wait(interval):
            now, unreachable = _look(urls)
            picture = picture_of(now, before, problems + unreachable)
            before = {**before, **now}
            if live is not None:
                live.update(Group(*lines_of(picture)), refresh=True)
            else:
                _print(picture, as_json=as_json)
            if once:
                return


def _print(picture: Picture, *, as_json: bool) -> None:
    if as_json:
        show_json(asdict(picture))
        return
    out = console()
    for line in lines_of(picture):
        out.print(line)


def _look(urls: list[str]) -> tuple[dict[str, Sample], list[str]]:
    """Ask all brokers at once; what those show that answer, and a word about the others."""
    from moldau.security.client_config import client_security

    found: dict[str, Sample] = {}
    problems = []
    security, login = client_security(), http_login()
    with ThreadPoolExecutor(min(len(urls), 16)) as threads:
        for url, asked in [(url, threads.submit(take, url, security, login)) for url in urls]:
            try:
                found[url] = asked.result()
            except Unreachable as problem:
                problems.append(f"{url} cannot be read: {problem}")
    return found, problems


def find_brokers(bootstrap: str) -> tuple[list[str], list[str]]:
    """Return where the brokers of a cluster serve HTTP, by their settings, and what is wrong with
    those that do not."""
    from confluent_kafka.admin import ConfigResource, ResourceType

    admin = connect_admin(bootstrap)
    metadata = cluster_metadata(admin)
    urls, problems = [], []
    asked = [ConfigResource(ResourceType.BROKER, str(id)) for id in sorted(metadata.brokers)]
    with failures():
        for resource, future in admin.describe_configs(asked).items():
            values = future.result(REQUEST_TIMEOUT_S)
            settings = {name: values[name].value for name in _SETTINGS if name in values}
            host = str(metadata.brokers[int(resource.name)].host)
            url = url_of(settings, host)
            if url is None:
                problems.append(
                    f"broker {resource.name} serves no HTTP, or serves it on a random port"
                )
            else:
                urls.append(url)
    return urls, problems


def url_of(settings: Mapping[str, str | None], host: str) -> str | None:
    """Return where a broker with these settings serves HTTP, reached under `host` otherwise."""
    address, _, port = (settings.get("http.listen") or "").rpartition(":")
    if not port or port == "0":
        return None
    secured = (settings.get("http.security.protocol") or "").endswith("SSL")
    if address.strip("[]") in _WILDCARDS:
        address = f"[{host}]" if ":" in host else host
    return f"{'https' if secured else 'http'}://{address}:{port}"


class _nothing:
    def __enter__(self) -> None:
        return None

    def __exit__(self, *problem: object) -> None:
        return None
