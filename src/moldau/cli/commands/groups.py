"""`moldau groups`: list, describe, reset, delete, redrive."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from moldau.cli.clients import REQUEST_TIMEOUT_S, connect_client_admin, failures
from moldau.cli.commands.redrive import redrive
from moldau.cli.group_history import last_of, show_history
from moldau.cli.lag import look, state_of
from moldau.cli.options import DEFAULT_BOOTSTRAP, Bootstrap, Json, complete_topics
from moldau.cli.reset import Kind, Move, Target, parse_target, plan
from moldau.cli.share.groups import describe_share_group, share_rows
from moldau.cli.stopping import stopping
from moldau.cli.views.group import group_as_json, lines_of, or_dash, summary
from moldau.cli.views.output import Failure, console, show, show_json, show_table
from moldau.cli.views.prompt import confirm
from moldau.topic_partition import TopicPartition

if TYPE_CHECKING:
    from rich.text import Text

    from moldau.client.admin.admin import Admin

app = typer.Typer(
    no_args_is_help=True,
    help="List, describe, reset and delete groups; see their lag; redrive dead letters.",
)


def complete_groups(ctx: typer.Context, incomplete: str) -> list[str]:
    """Names of groups for shell completion; none when no broker answers at once."""
    try:
        with _admin(ctx.params.get("bootstrap") or DEFAULT_BOOTSTRAP, timeout=1) as admin:
            names = [group.name for group in admin.groups()]
    except (Failure, typer.BadParameter):
        return []
    return [name for name in names if name.startswith(incomplete)]


GroupName = Annotated[
    str,
    typer.Argument(metavar="GROUP", help="The group's name.", autocompletion=complete_groups),
]
GroupNames = Annotated[
    list[str],
    typer.Argument(metavar="GROUP", help="Names of groups.", autocompletion=complete_groups),
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]


@app.command("list")
def list_groups(
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: Json = False,
) -> None:
    """List all groups with their kind, state and number of members."""
    with _admin(bootstrap) as admin:
        shared = share_rows(bootstrap)
        share_names = {row[0] for row in shared}
        others = [group for group in admin.groups() if group.name not in share_names]
        counts = admin.member_counts([group.name for group in others])
    rows: list[tuple[str, str, str, int | None]] = [
        (group.name, group.kind, state_of(group), counts[group.name]) for group in others
    ]
    rows = sorted([*rows, *shared], key=lambda row: row[0])
    if as_json:
        show_json([{"group": g, "kind": k, "state": s, "members": m} for g, k, s, m in rows])
    elif rows:
        show_table(
            ("GROUP", "KIND", "STATE", "MEMBERS"), [(*row[:3], or_dash(row[3])) for row in rows]
        )
    else:
        show("no groups yet; `moldau consume TOPIC --group G` creates one", "dim", stderr=True)


@app.command()
def describe(
    groups: GroupNames,
    watch: Annotated[bool, typer.Option("--watch", help="Refresh until Ctrl-C.")] = False,
    every: Annotated[
        float, typer.Option(min=0.1, metavar="S", help="With --watch: seconds between refreshes.")
    ] = 2.0,
    history: Annotated[
        bool,
        typer.Option(
            "--history", help="Show the last hundred rebalances instead, with causes and durations."
        ),
    ] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: Json = False,
) -> None:
    """Show a group's members, the partitions that they read, and the group's lag.

    LAG counts the messages that are not committed. BEHIND is the age of the first of them, by its
    timestamp: 0 s when there is none, and growing while nobody reads.

    Of a share group, LEFT counts the messages that are not finished, and OLDEST is the age of the
    first of them. IN FLIGHT counts those that members hold, RETRY those to be delivered again.

    REDELIVERED and DEAD are counted by the leader of a partition while somebody reads it, and the
    history is kept by the group's coordinator. Both start over when another broker takes over;
    --history says when that was. The brokers' logs have every rebalance.
    """
    if history:
        show_history(bootstrap, groups, as_json=as_json)
        return
    with _admin(bootstrap) as admin:
        if watch:
            _watch(admin, groups, every, as_json)
            return
        for number, group in enumerate(groups):
            if describe_share_group(bootstrap, group, as_json=as_json, is_first=number == 0):
                continue
            view = look(admin, group)
            past = last_of(bootstrap, view)
            if as_json:
                show_json(group_as_json(view) | past.as_json())
                continue
            out = console()
            for line in ([] if number == 0 else [""]) + lines_of(view, past.lines()):
                out.print(line)


@app.command()
def reset(
    group: GroupName,
    to: Annotated[
        str | None,
        typer.Option(
            metavar="earliest|latest|N|TIME",
            help="Target: either end, offset N, or the first message at or after a time, such "
            "as 2024-02-29T12:00, or 2h for two hours ago.",
        ),
    ] = None,
    shift: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="Instead of --to: move forward by N messages, or back if N is negative.",
        ),
    ] = None,
    topic: Annotated[
        list[str] | None,
        typer.Option(
            metavar="TOPIC",
            help="Only this topic; may be repeated. Default: every topic that the group has "
            "committed offsets for.",
            autocompletion=complete_topics,
        ),
    ] = None,
    partition: Annotated[
        list[int] | None,
        typer.Option(min=0, metavar="N", help="Only this partition of the topic; may be repeated."),
    ] = None,
    yes: Yes = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: Json = False,
) -> None:
    """Move a group to other offsets. Shows what would change, and asks.

    The group must have no members, since they would overwrite the new offsets. A target outside the
    log becomes the nearest end of the log.
    """
    target = _target(to, shift)
    if partition and len(topic or []) != 1:
        raise typer.BadParameter("--partition needs exactly one --topic")
    with _admin(bootstrap) as admin:
        _require_empty(admin, group, "its offsets can be moved")
        committed = admin.group_offsets(group)
        places = _chosen(admin, group, committed, topic or [], partition or [])
        moves = _plan(admin, target, places, committed)
        if not moves:
            raise Failure(f"group {group} has no committed offsets there to shift")
        if not as_json:
            _show_plan(moves)
        count = f"{len(moves)} partition{'s' if len(moves) != 1 else ''}"
        confirm(f"Move {count} of group {group}?", yes)
        admin.set_group_offsets(group, {move.place: move.new for move in moves})
    if as_json:
        show_json({"group": group, "partitions": [_move_as_json(move) for move in moves]})
    else:
        show(f"{group}: {count} moved", "green")


@app.command()
def delete(
    groups: GroupNames,
    yes: Yes = False,
    if_exists: Annotated[
        bool, typer.Option("--if-exists", help="Do not fail if a group does not exist.")
    ] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: Json = False,
) -> None:
    """Delete groups and their committed offsets; asks first. Messages are kept."""
    with _admin(bootstrap) as admin:
        known = {group.name for group in admin.groups()}
        chosen = [group for group in dict.fromkeys(groups) if group in known or not if_exists]
        for group in chosen:
            if group not in known:
                raise Failure(f"there is no group {group}", "see `moldau groups list`")
            _require_empty(admin, group, "it can be deleted")
        if chosen:
            confirm(f"Delete {', '.join(chosen)} and the offsets committed there?", yes)
        for group in chosen:
            admin.delete_group(group)
            if not as_json:
                show(f"{group}: deleted", "green")
    if as_json:
        show_json({"deleted": chosen})


app.command()(redrive)


@contextmanager
def _admin(bootstrap: str, timeout: float = REQUEST_TIMEOUT_S) -> Iterator[Admin]:
    """Turn refusals of the cluster inside the block into a Failure."""
    with connect_client_admin(bootstrap, timeout) as admin, failures():
        yield admin


def _watch(admin: Admin, groups: list[str], every: float, as_json: bool) -> None:
    from rich.console import Group
    from rich.live import Live

    with stopping() as stop:
        if as_json or not sys.stdout.isatty():
            while not stop.is_set():
                for group in groups:
                    view = look(admin, group)
                    if as_json:
                        show_json(group_as_json(view))
                    else:
                        show(summary(view))
                sys.stdout.flush()
                stop.wait(every)
            return
        with Live(console=console(), auto_refresh=False) as live:
            while not stop.is_set():
                lines: list[Text | str] = []
                for group in groups:
                    lines += [*lines_of(look(admin, group)), ""]
                moment = time.strftime("%H:%M:%S")
                live.update(Group(*lines, f"{moment}, every {every:g} s; stop with Ctrl-C"))
                live.refresh()
                stop.wait(every)


def _target(to: str | None, shift: int | None) -> Target:
    if (to is None) == (shift is None):
        raise typer.BadParameter("give a target with either --to or --shift")
    if to is None:
        return Target(Kind.SHIFT, shift or 0)
    try:
        return parse_target(to, time.time())
    except ValueError as problem:
        raise typer.BadParameter(str(problem), param_hint="--to") from None


def _require_empty(admin: Admin, group: str, purpose: str) -> None:
    members = admin.group(group).members
    if members:
        count = f"{len(members)} member{'s' if len(members) != 1 else ''}"
        hosts = sorted({f"{m.client_id} on {m.host}" for m in members})
        raise Failure(
            f"group {group} has {count}: {', '.join(hosts)}",
            f"stop them first; {purpose} once the group is empty",
        )


def _chosen(
    admin: Admin,
    group: str,
    committed: dict[TopicPartition, int],
    topics: list[str],
    partitions: list[int],
) -> list[TopicPartition]:
    """Return the partitions to move: of the given topics all, else those that have a commit."""
    if not topics:
        if not committed:
            raise Failure(
                f"group {group} has committed nothing",
                "name the topics that it will read with --topic",
            )
        return sorted(committed)
    found = []
    for topic in dict.fromkeys(topics):
        known = [info.index for info in admin.topic(topic).partitions]
        for index in partitions:
            if index not in known:
                raise Failure(
                    f"topic {topic} has no partition {index}; it has 0 to {len(known) - 1}"
                )
        found += [(topic, index) for index in sorted(set(partitions) or known)]
    return found


def _plan(
    admin: Admin, target: Target, places: list[TopicPartition], committed: dict[TopicPartition, int]
) -> list[Move]:
    bounds: dict[TopicPartition, tuple[int, int]] = {}
    at_time: dict[TopicPartition, int] = {}
    # A committed offset may belong to a topic that is gone.
    for topic in {topic for topic, _ in places} & admin.topics(internal=True).keys():
        bounds |= {(topic, index): found for index, found in admin.offsets(topic).items()}
        if target.kind is Kind.TIME:
            times = admin.offsets_at(topic, target.number)
            at_time |= {(topic, i): -1 if at is None else at for i, at in times.items()}
    return plan(target, [at for at in places if at in bounds], committed, bounds, at_time)


def _show_plan(moves: list[Move]) -> None:
    show_table(
        ("TOPIC", "PARTITION", "NOW", "NEW", "CHANGE", "LAG THEN"),
        [
            (*move.place, or_dash(move.now), move.new, move.change, move.end - move.new)
            for move in moves
        ],
    )


def _move_as_json(move: Move) -> dict[str, Any]:
    topic, partition = move.place
    return {"topic": topic, "partition": partition, "before": move.now, "committed": move.new}
