"""`moldau quotas`: how much users, clients and addresses may do."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from moldau.cli.options import DEFAULT_BOOTSTRAP, Bootstrap, Json, key_values
from moldau.cli.requests import ask, check
from moldau.cli.views.output import Failure, show, show_json, show_table
from moldau.wire.apis import Api
from moldau.wire.quotas import CLIENT_ID, IP, IP_LIMITS, LIMITS, USER

app = typer.Typer(no_args_is_help=True, help="Limit how much users, clients and addresses may do.")

# Stands for every user, client or address that has no limits of its own.
EVERY = "*"

User = Annotated[str | None, typer.Option(metavar="NAME", help="A user; * for all others.")]
ClientId = Annotated[
    str | None, typer.Option(metavar="NAME", help="A client id; * for all others.")
]
Address = Annotated[str | None, typer.Option(metavar="ADDRESS", help="An address; * for others.")]


@app.command("set")
def set_quotas(
    limits: Annotated[
        list[str],
        typer.Argument(
            metavar="LIMIT=VALUE",
            help=f"Limits: {', '.join((*LIMITS, *IP_LIMITS))}. Bytes and requests per second, "
            "and percent of the broker's time.",
        ),
    ],
    user: User = None,
    client_id: ClientId = None,
    ip: Address = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Set limits of a user, a client id, a client id of a user, or an address."""
    ops = []
    for key, text in key_values(limits, "LIMIT=VALUE").items():
        try:
            ops.append({"key": key, "value": float(text), "remove": False})
        except ValueError:
            raise typer.BadParameter(f"{text!r} is not a number", param_hint=key) from None
    _alter(bootstrap, _entity(user, client_id, ip), ops)
    show(f"set {', '.join(limits)}")


@app.command("list")
def list_quotas(bootstrap: Bootstrap = DEFAULT_BOOTSTRAP, as_json: Json = False) -> None:
    """List all limits."""
    answer = ask(bootstrap, Api.DESCRIBE_CLIENT_QUOTAS, {"components": [], "strict": False})
    check(answer, "DescribeConfigs")
    found = [
        (
            {each.entity_type: each.entity_name for each in entry.entity},
            {each.key: each.value for each in entry.values},
        )
        for entry in answer.entries or ()
    ]
    if as_json:
        show_json([{"entity": entity, "limits": limits} for entity, limits in found])
    elif found:
        rows = [
            (_described(entity), key, f"{value:.15g}")
            for entity, limits in found
            for key, value in sorted(limits.items())
        ]
        show_table(("WHO", "LIMIT", "VALUE"), rows)
    else:
        show("no quotas; `moldau quotas set` sets one", "dim", stderr=True)


@app.command()
def remove(
    limits: Annotated[
        list[str] | None, typer.Argument(metavar="LIMIT", help="Limits to remove. Default: all.")
    ] = None,
    user: User = None,
    client_id: ClientId = None,
    ip: Address = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Remove limits."""
    entity = _entity(user, client_id, ip)
    known = IP_LIMITS if ip is not None else LIMITS
    ops = [{"key": key, "value": 0.0, "remove": True} for key in limits or known]
    _alter(bootstrap, entity, ops)
    show(f"removed {', '.join(limits) if limits else 'all limits'}")


def _alter(bootstrap: str, entity: list[dict[str, Any]], ops: list[dict[str, Any]]) -> None:
    entry = {"entity": entity, "ops": ops}
    answer = ask(bootstrap, Api.ALTER_CLIENT_QUOTAS, {"entries": [entry], "validate_only": False})
    for each in answer.entries:
        check(each, "AlterConfigs")


def _entity(user: str | None, client_id: str | None, ip: str | None) -> list[dict[str, Any]]:
    found = [
        {"entity_type": kind, "entity_name": None if name == EVERY else name}
        for kind, name in ((USER, user), (CLIENT_ID, client_id), (IP, ip))
        if name is not None
    ]
    if not found:
        raise Failure("no user, client or address given", "give --user, --client-id or --ip")
    return found


def _described(entity: dict[str, str | None]) -> str:
    return ", ".join(f"{kind} {EVERY if name is None else name}" for kind, name in entity.items())
