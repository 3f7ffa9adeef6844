"""`moldau certs`: an authority of one's own, and certificates of brokers and users."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from moldau.cli.views.output import Failure, show

if TYPE_CHECKING:
    from moldau.security.authority import Authority

app = typer.Typer(
    help="Make an authority, and certificates of brokers and users.", no_args_is_help=True
)

_NAME = re.compile(r"[A-Za-z0-9._-]{1,64}")
_KEY_AND_CERTIFICATE, _CERTIFICATE = "authority.pem", "authority.crt"

Folder = Annotated[
    Path, typer.Option("--folder", metavar="D", help="The folder with the authority.")
]


@app.command()
def init(
    folder: Folder = Path("moldau-certs"),
    name: Annotated[
        str, typer.Option(metavar="NAME", help="The authority's name.")
    ] = "Moldau authority",
    days: Annotated[int, typer.Option(min=1, metavar="N", help="Days until it expires.")] = 3650,
) -> None:
    """Make an authority: authority.pem with its private key, and authority.crt to trust."""
    from moldau.local.secure import write_private
    from moldau.security.authority import Authority

    if (folder / _KEY_AND_CERTIFICATE).exists():
        raise Failure(
            f"{folder / _KEY_AND_CERTIFICATE} already exists",
            "issue certificates with `moldau certs issue`, or choose another --folder",
        )
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        authority = Authority.create(name, days)
        write_private(folder / _KEY_AND_CERTIFICATE, authority.pem)
        (folder / _CERTIFICATE).write_text(authority.certificate)
    except OSError as problem:
        raise Failure(f"{folder} cannot be written: {problem.strerror}") from None
    print(f"{folder / _CERTIFICATE}: for ssl.truststore.location of brokers and clients")
    print(f"{folder / _KEY_AND_CERTIFICATE}: signs certificates; keep it secret")


@app.command()
def issue(
    name: Annotated[str, typer.Argument(metavar="NAME", help="User or broker to issue it for.")],
    folder: Folder = Path("moldau-certs"),
    host: Annotated[
        list[str] | None,
        typer.Option(
            metavar="HOST",
            help="For a broker's certificate: a name or address of the broker; may be repeated.",
        ),
    ] = None,
    days: Annotated[int, typer.Option(min=1, metavar="N", help="Days until it expires.")] = 365,
) -> None:
    """Issue a private key and its certificate for a user, or with --host for a broker.

    Both are in one PEM file, for ssl.keystore.location. To renew a certificate, issue it again.
    """
    from moldau.local.secure import write_private

    if not _NAME.fullmatch(name) or name == "authority":
        raise typer.BadParameter("expected letters, digits, '.', '_' and '-'", param_hint="NAME")
    authority = _open(folder)
    path = folder / f"{name}.pem"
    try:
        write_private(path, authority.issue(name, host or (), days).pem)
    except ValueError as problem:
        raise typer.BadParameter(str(problem), param_hint="--host") from None
    except OSError as problem:
        raise Failure(f"{path} cannot be written: {problem.strerror}") from None
    print(f"{path}: for ssl.keystore.location of {'the broker' if host else 'the client'}")
    show(f"its principal is User:CN={name}", "dim", stderr=True)


def _open(folder: Path) -> Authority:
    from moldau.security.authority import Authority

    try:
        return Authority.load((folder / _KEY_AND_CERTIFICATE).read_text())
    except FileNotFoundError:
        raise Failure(
            f"there is no authority in {folder}", "make one with `moldau certs init`"
        ) from None
    except (OSError, ValueError) as problem:
        raise Failure(f"{folder / _KEY_AND_CERTIFICATE} cannot be used: {problem}") from None
