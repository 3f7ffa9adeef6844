"""`moldau users`: who has a password (SCRAM), in the cluster's metadata."""

from __future__ import annotations

import getpass
import hashlib
import os
import secrets
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from moldau.cli.options import DEFAULT_BOOTSTRAP, Bootstrap, Json
from moldau.cli.requests import ask, check
from moldau.cli.views.output import Failure, show, show_json, show_table
from moldau.cli.views.prompt import confirm
from moldau.wire.apis import Api
from moldau.wire.errors import Error
from moldau.wire.scram import HASHES, LEAST_ITERATIONS, MECHANISMS, MOST_ITERATIONS, NUMBERS

PASSWORD_VARIABLE = "MOLDAU_USER_PASSWORD"
_SALT_BYTES = 24

app = typer.Typer(
    no_args_is_help=True, help="Add, list and delete users with passwords (SASL/SCRAM)."
)


class Mechanism(StrEnum):
    """The mechanisms that passwords can be kept for."""

    SHA_256 = "SCRAM-SHA-256"
    SHA_512 = "SCRAM-SHA-512"


Name = Annotated[str, typer.Argument(metavar="NAME", help="The user's name.")]
Mechanisms = Annotated[
    list[Mechanism] | None,
    typer.Option("--mechanism", help="Mechanism; may be repeated. Default: both."),
]
PasswordFile = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help=f"File with the password. Default: ${PASSWORD_VARIABLE}, or a prompt.",
    ),
]
Iterations = Annotated[
    int,
    typer.Option(min=LEAST_ITERATIONS, max=MOST_ITERATIONS, help="Number of hash iterations."),
]


@app.command()
def add(
    name: Name,
    mechanism: Mechanisms = None,
    password_file: PasswordFile = None,
    iterations: Iterations = LEAST_ITERATIONS,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Add a user. The password comes from a prompt, a file or the environment."""
    if name in _known(bootstrap):
        raise Failure(
            f"user {name} exists already", f"to change the password: moldau users password {name}"
        )
    _set(bootstrap, name, mechanism, _password(password_file), iterations)
    show(f"added user {name}; `moldau acls add --allow User:{name} ...` says what it may do")


@app.command()
def password(
    name: Name,
    mechanism: Mechanisms = None,
    password_file: PasswordFile = None,
    iterations: Iterations = LEAST_ITERATIONS,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Change a user's password. Open connections stay open."""
    known = _known(bootstrap)
    if name not in known:
        raise Failure(f"there is no user {name}", f"to add it: moldau users add {name}")
    chosen = mechanism or [Mechanism(each) for each, _ in known[name]]
    _set(bootstrap, name, chosen, _password(password_file), iterations)
    show(f"changed the password of user {name}")


@app.command("list")
def list_users(bootstrap: Bootstrap = DEFAULT_BOOTSTRAP, as_json: Json = False) -> None:
    """List the users that have passwords, with their mechanisms."""
    known = _known(bootstrap)
    if as_json:
        show_json([{"user": name, "mechanisms": dict(found)} for name, found in known.items()])
    elif known:
        rows = [(name, ", ".join(each for each, _ in found)) for name, found in known.items()]
        show_table(("USER", "MECHANISMS"), rows)
    else:
        show("no users yet; `moldau users add NAME` adds one", "dim", stderr=True)


@app.command()
def delete(
    name: Name,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Delete a user's passwords. Access rules that name the user stay."""
    known = _known(bootstrap)
    if name not in known:
        raise Failure(f"there is no user {name}", "see `moldau users list`")
    confirm(f"delete user {name}?", yes)
    for each, _ in known[name]:
        deletion = {"name": name, "mechanism": NUMBERS[each]}
        _alter(bootstrap, {"deletions": [deletion], "upsertions": []})
    show(f"deleted user {name}")


def _known(bootstrap: str) -> dict[str, list[tuple[str, int]]]:
    answer = ask(bootstrap, Api.DESCRIBE_USER_SCRAM_CREDENTIALS, {"users": None})
    check(answer, "Describe")
    return {
        each.user: [
            (MECHANISMS[info.mechanism], info.iterations)
            for info in each.credential_infos
            if info.mechanism in MECHANISMS
        ]
        for each in answer.results
    }


def _set(
    bootstrap: str,
    name: str,
    mechanisms: list[Mechanism] | None,
    secret: str,
    iterations: int,
) -> None:
    # One request each: a request may alter a user only once.
    for each in mechanisms or list(Mechanism):
        salt = secrets.token_bytes(_SALT_BYTES)
        upsertion = {
            "name": name,
            "mechanism": NUMBERS[each.value],
            "iterations": iterations,
            "salt": salt,
            "salted_password": hashlib.pbkdf2_hmac(
                HASHES[each.value], secret.encode(), salt, iterations
            ),
        }
        _alter(bootstrap, {"deletions": [], "upsertions": [upsertion]})


def _alter(bootstrap: str, values: dict[str, Any]) -> None:
    answer = ask(bootstrap, Api.ALTER_USER_SCRAM_CREDENTIALS, values)
    for each in answer.results:
        if each.error_code != Error.NONE:
            check(each)


def _password(file: Path | None) -> str:
    """Return the password, which never stands on the command line: others could see it there."""
    if file is not None:
        try:
            found = file.read_text(encoding="utf-8").rstrip("\r\n")
        except OSError as problem:
            raise Failure(f"cannot read {file}: {problem.strerror}") from None
    elif PASSWORD_VARIABLE in os.environ:
        found = os.environ[PASSWORD_VARIABLE]
    elif not sys.stdin.isatty():
        found = sys.stdin.readline().rstrip("\r\n")
    else:
        found = getpass.getpass("password: ")
        if getpass.getpass("again: ") != found:
            raise Failure("the two passwords differ")
    if not found:
        raise Failure("the password is empty")
    return found
