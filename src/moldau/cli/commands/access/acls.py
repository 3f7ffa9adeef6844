"""`moldau acls`: who may do what, and which rule says so."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Annotated, Any

import typer

from moldau.cli.options import DEFAULT_BOOTSTRAP, Bootstrap, Json
from moldau.cli.requests import ask, check
from moldau.cli.views.output import Failure, show, show_json, show_table
from moldau.cli.views.prompt import confirm
from moldau.wire.acls import (
    CLUSTER_NAME,
    SUPPORTED,
    WILDCARD,
    Operation,
    PatternType,
    Permission,
    Resource,
    in_words,
)
from moldau.wire.apis import Api

app = typer.Typer(no_args_is_help=True, help="Say who may do what, and explain why.")

_BROKER = 4
# Whatever there is.
_EVERY: list[tuple[Resource, str | None]] = [(Resource.ANY, None)]

Topic = Annotated[str | None, typer.Option(metavar="NAME", help="A topic; * for all.")]
Group = Annotated[str | None, typer.Option(metavar="NAME", help="A consumer group; * for all.")]
TransactionalId = Annotated[
    str | None, typer.Option(metavar="NAME", help="A transactional id; * for all.")
]
Cluster = Annotated[bool, typer.Option("--cluster", help="The cluster itself.")]
Prefix = Annotated[
    bool, typer.Option("--prefix", help="All resources whose names begin with NAME.")
]
Host = Annotated[str, typer.Option(metavar="ADDRESS", help="Only from this address.")]
Operations = Annotated[
    list[str],
    typer.Option("--operation", "-o", help="Operation, such as Read or Write; may be repeated."),
]


@app.command()
def add(
    operation: Operations,
    allow: Annotated[
        list[str] | None,
        typer.Option(metavar="User:NAME", help="Principal that may; User:* is everybody."),
    ] = None,
    deny: Annotated[
        list[str] | None,
        typer.Option(metavar="User:NAME", help="Principal that may not, whatever other rules say."),
    ] = None,
    topic: Topic = None,
    group: Group = None,
    transactional_id: TransactionalId = None,
    cluster: Cluster = False,
    prefix: Prefix = False,
    host: Host = WILDCARD,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Add access rules, which allow or deny operations on resources."""
    if not allow and not deny:
        raise typer.BadParameter("give --allow or --deny", param_hint="--allow")
    resources = _resources(topic, group, transactional_id, cluster)
    if not resources:
        raise typer.BadParameter("give --topic, --group, --transactional-id or --cluster")
    who = [(each, Permission.ALLOW) for each in allow or ()]
    who += [(each, Permission.DENY) for each in deny or ()]
    creations = [
        {
            "resource_type": kind,
            "resource_name": name,
            "resource_pattern_type": PatternType.PREFIXED if prefix else PatternType.LITERAL,
            "principal": _principal(principal),
            "host": host,
            "operation": _operation(word, kind),
            "permission_type": permission,
        }
        for kind, name in resources
        for principal, permission in who
        for word in operation
    ]
    answer = ask(bootstrap, Api.CREATE_ACLS, {"creations": creations})
    for each in answer.results:
        check(each)
    count = len(creations)
    show(f"added {count} rule{'' if count == 1 else 's'}")


@app.command("list")
def list_acls(
    principal: Annotated[
        str | None, typer.Option(metavar="User:NAME", help="Only rules about this principal.")
    ] = None,
    topic: Topic = None,
    group: Group = None,
    transactional_id: TransactionalId = None,
    cluster: Cluster = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: Json = False,
) -> None:
    """List the rules; for a resource, all that apply to it, prefixes and * included."""
    found = find_rules(bootstrap, principal, _resources(topic, group, transactional_id, cluster))
    if as_json:
        show_json(found)
    elif found:
        rows = [
            (
                each["permission"],
                each["principal"],
                each["operation"],
                each["resource"],
                each["name"] + ("*" if each["prefix"] else ""),
                each["host"],
            )
            for each in found
        ]
        show_table(("RULE", "PRINCIPAL", "OPERATION", "RESOURCE", "NAME", "HOST"), rows)
    else:
        show("no rules; `moldau acls add` adds one", "dim", stderr=True)


@app.command()
def remove(
    principal: Annotated[
        str | None, typer.Option(metavar="User:NAME", help="Rules about this principal.")
    ] = None,
    operation: Annotated[
        str | None, typer.Option("--operation", "-o", help="Rules about this operation.")
    ] = None,
    topic: Topic = None,
    group: Group = None,
    transactional_id: TransactionalId = None,
    cluster: Cluster = False,
    prefix: Prefix = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Remove the rules that match everything given."""
    resources = _resources(topic, group, transactional_id, cluster)
    if principal is None and not resources:
        raise typer.BadParameter("choose the rules to remove: give --principal or a resource")
    pattern = PatternType.PREFIXED if prefix else PatternType.LITERAL
    filters = [
        _filter(principal, kind, name, pattern if name is not None else PatternType.ANY)
        | {"operation": Operation.ANY if operation is None else _operation(operation, kind)}
        for kind, name in resources or _EVERY
    ]
    confirm("remove these rules?", yes)
    answer = ask(bootstrap, Api.DELETE_ACLS, {"filters": filters})
    count = 0
    for each in answer.filter_results:
        check(each)
        count += len(each.matching_acls)
    show(f"removed {count} rule{'' if count == 1 else 's'}")


@app.command()
def explain(
    principal: Annotated[str, typer.Argument(metavar="User:NAME", help="Who.")],
    operation: Annotated[str, typer.Argument(metavar="OPERATION", help="Operation, such as Read.")],
    topic: Topic = None,
    group: Group = None,
    transactional_id: TransactionalId = None,
    cluster: Cluster = False,
    host: Annotated[
        str, typer.Option(metavar="ADDRESS", help="Client address to check for.")
    ] = "127.0.0.1",
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: Json = False,
) -> None:
    """Say whether somebody may do something, and which rule decides.

    Exit status 1 if they may not.
    """
    from moldau.broker.security.principal import Principal
    from moldau.broker.security.standard_authorizer import StandardAuthorizer
    from moldau.cluster.state.access import Acl, ResourcePattern

    resources = _resources(topic, group, transactional_id, cluster)
    if len(resources) != 1:
        raise typer.BadParameter("give one of --topic, --group, --transactional-id and --cluster")
    ((kind, name),) = resources
    rules: dict[ResourcePattern, tuple[Acl, ...]] = {}
    answer = ask(bootstrap, Api.DESCRIBE_ACLS, _filter(None, kind, name, PatternType.MATCH))
    check(answer, "Describe")
    for each in answer.resources:
        pattern = ResourcePattern(each.resource_type, each.resource_name, each.pattern_type)
        rules[pattern] = tuple(
            Acl(acl.principal, acl.host, acl.operation, acl.permission_type) for acl in each.acls
        )
    users, everyone = _settings(bootstrap)
    authorizer = StandardAuthorizer(rules, users, allow_if_no_rules=everyone)
    kind_of, _, who = _principal(principal).partition(":")
    number = _operation(operation, kind)
    decision = authorizer.decide(Principal(kind_of, who), host, number, kind, name)
    question = f"{in_words(number)} on {in_words(kind)} {name}"
    if as_json:
        show_json({"allowed": decision.allowed, "rule": decision.rule})
    elif decision.allowed:
        show(f"{principal} may {question}: {decision.rule}")
    else:
        show(f"{principal} may not {question}: {decision.rule}", "bold")
        if not decision.rule.startswith("Deny"):
            show(f"  try: {grant_command(principal, number, kind, name)}")
    if not decision.allowed:
        raise typer.Exit(1)


def grant_command(principal: str, operation: Operation, kind: Resource, name: str) -> str:
    """Return the command that grants a right."""
    rest = f"--operation {in_words(operation)} {_where(in_words(kind), name)}"
    return f"moldau acls add --allow {shlex.quote(principal)} {rest}"


def explain_command(principal: str, operation: Operation, kind: Resource, name: str) -> str:
    """Return the command that says which rule decides."""
    where = _where(in_words(kind), name)
    return f"moldau acls explain {shlex.quote(principal)} {in_words(operation)} {where}"


def removal_command(rule: Mapping[str, Any]) -> str:
    """Return the command that removes a rule of `find_rules`."""
    who, what = shlex.quote(rule["principal"]), rule["operation"]
    prefix = " --prefix" if rule["prefix"] else ""
    where = _where(rule["resource"], rule["name"])
    return f"moldau acls remove --principal {who} --operation {what} {where}{prefix}"


def _where(kind: str, name: str) -> str:
    options = {"Topic": "topic", "Group": "group", "TransactionalId": "transactional-id"}
    return f"--{options[kind]} {shlex.quote(name)}" if kind in options else "--cluster"


def _settings(bootstrap: str) -> tuple[frozenset[str], bool]:
    """Return super.users and allow.everyone.if.no.acl.found, of some broker."""
    broker = ask(bootstrap, Api.DESCRIBE_CLUSTER, {}).brokers[0]
    node, address = str(broker.broker_id), f"{broker.host}:{broker.port}"
    keys = ["super.users", "allow.everyone.if.no.acl.found"]
    wanted = {"resource_type": _BROKER, "resource_name": node, "configuration_keys": keys}
    # Only the broker itself knows them.
    answer = ask(address, Api.DESCRIBE_CONFIGS, {"resources": [wanted]})
    for found in answer.results:
        # Who is a super user cannot be told without.
        check(found, "DescribeConfigs")
    values = {each.name: each.value for found in answer.results for each in found.configs}
    users = (values.get(keys[0]) or "").split(";")
    return frozenset(each.strip() for each in users if each.strip()), values.get(keys[1]) == "true"


def find_rules(
    bootstrap: str, principal: str | None, resources: list[tuple[Resource, str]]
) -> list[dict[str, Any]]:
    """Return the rules about a principal that apply to these resources; Failure if we may not."""
    found = []
    for kind, name in resources or _EVERY:
        pattern = PatternType.ANY if name is None else PatternType.MATCH
        answer = ask(bootstrap, Api.DESCRIBE_ACLS, _filter(principal, kind, name, pattern))
        check(answer, "Describe")
        found += [
            {
                "permission": in_words(Permission(acl.permission_type)),
                "principal": acl.principal,
                "operation": in_words(Operation(acl.operation)),
                "resource": in_words(Resource(each.resource_type)),
                "name": each.resource_name,
                "prefix": each.pattern_type == PatternType.PREFIXED,
                "host": acl.host,
            }
            for each in answer.resources
            for acl in each.acls
        ]
    return found


def _filter(
    principal: str | None, kind: Resource, name: str | None, pattern: PatternType
) -> dict[str, Any]:
    return {
        "resource_type_filter": kind,
        "resource_name_filter": name,
        "pattern_type_filter": pattern,
        "principal_filter": None if principal is None else _principal(principal),
        "host_filter": None,
        "operation": Operation.ANY,
        "permission_type": Permission.ANY,
    }


def _resources(
    topic: str | None, group: str | None, transactional_id: str | None, cluster: bool
) -> list[tuple[Resource, str]]:
    named = (
        (Resource.TOPIC, topic),
        (Resource.GROUP, group),
        (Resource.TRANSACTIONAL_ID, transactional_id),
    )
    found = [(kind, name) for kind, name in named if name is not None]
    return found + ([(Resource.CLUSTER, CLUSTER_NAME)] if cluster else [])


def _principal(text: str) -> str:
    kind, colon, name = text.partition(":")
    if not (kind and colon and name):
        raise typer.BadParameter(f"{text!r} is not a principal; write User:{text}")
    return text


def _operation(word: str, kind: Resource) -> Operation:
    """Return an operation by its name, however it is spelled."""
    wanted = word.replace("_", "").replace("-", "").lower()
    known = SUPPORTED.get(kind, tuple(Operation)[2:])
    for each in (*known, Operation.ALL):
        if in_words(each).lower() == wanted:
            return each
    names = ", ".join(in_words(each) for each in (*known, Operation.ALL))
    raise Failure(f"{in_words(kind)} has no operation {word!r}", f"one of {names}")
