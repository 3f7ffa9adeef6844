"""`moldau doctor`: problems of this machine or of the connection, and what to do about them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from moldau.cli.clients import parse_addresses
from moldau.cli.options import DEFAULT_BOOTSTRAP, Json
from moldau.cli.views.output import console, show_json

if TYPE_CHECKING:
    from moldau.cli.checks import Finding

COLOURS = {"ok": "green", "warn": "yellow", "fail": "bold red"}


def doctor(
    data_dir: Annotated[Path, typer.Option(metavar="D", help="Data folder to check.")] = Path(
        "moldau-data"
    ),
    listen: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="Address to listen on, HOST:PORT.")
    ] = DEFAULT_BOOTSTRAP,
    round_trip: Annotated[
        bool, typer.Option("--round-trip", help="Also send a message through a temporary topic.")
    ] = False,
    topic: Annotated[
        str | None, typer.Option(metavar="NAME", help="Also check the rights on this topic.")
    ] = None,
    group: Annotated[
        str | None, typer.Option(metavar="NAME", help="Also check the rights on this group.")
    ] = None,
    bootstrap: Annotated[
        str | None,
        typer.Option(
            envvar="MOLDAU_BOOTSTRAP",
            metavar="HOST:PORT[,...]",
            help="Brokers that must answer. Without it, the check does not fail if no broker "
            "is running.",
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Check this machine and the connection to a broker, and say how to fix what is wrong.

    Exit status 1 if a check fails; warnings do not count.
    """
    listen_at = parse_addresses(listen)[0]
    required = bootstrap is not None
    target = bootstrap or DEFAULT_BOOTSTRAP
    parse_addresses(target)

    findings = []
    checks = _findings(data_dir, listen_at, target, required, round_trip)
    for finding in chain(checks, _access(target, topic, group)):
        findings.append(finding)
        if not as_json:
            _show(finding)
    if as_json:
        show_json([asdict(finding) for finding in findings])
    if any(finding.status == "fail" for finding in findings):
        raise typer.Exit(1)


def _findings(
    data_dir: Path, listen_at: tuple[str, int], bootstrap: str, required: bool, round_trip: bool
) -> Iterator[Finding]:
    from moldau.cli import checks

    yield checks.check_python()
    yield checks.check_packages()
    yield checks.check_open_files()
    yield from checks.check_data_dir(data_dir)
    yield checks.check_port(*listen_at)
    connected = False
    for finding in checks.check_connection(bootstrap, parse_addresses(bootstrap)):
        connected |= finding.check == "metadata" and finding.status is checks.Status.OK
        if not required and finding.check == "tcp" and finding.status is checks.Status.FAIL:
            yield replace(finding, status=checks.Status.WARN)
        else:
            yield finding
    if connected:
        from moldau.cli.transaction_checks import check_transactions

        yield from check_transactions(bootstrap)
    if round_trip and connected:
        yield checks.check_round_trip(bootstrap)


def _access(bootstrap: str, topic: str | None, group: str | None) -> Iterator[Finding]:
    if topic is not None or group is not None:
        from moldau.cli.access_checks import check_access

        yield from check_access(bootstrap, topic, group)


def _show(finding: Finding) -> None:
    from rich.text import Text

    status = finding.status.value
    line = Text.assemble((f"{status:<4}", COLOURS[status]), f"  {finding.check:<12}  ")
    out = console()
    out.print(line + Text(finding.detail))
    if finding.advice:
        out.print(Text(f"{'':20}try: {finding.advice}", "bold"))
