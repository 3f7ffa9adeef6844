"""`moldau groups redrive`: move a share group's dead letters back to where they came from."""

from __future__ import annotations

from collections import Counter
from typing import Annotated

import typer

from moldau.cli.clients import failures
from moldau.cli.options import DEFAULT_BOOTSTRAP, Bootstrap, Json, complete_topics
from moldau.cli.requests import ask
from moldau.cli.views.output import Failure, show, show_json, show_table
from moldau.cli.views.prompt import confirm
from moldau.wire.apis import Api

_GROUP = 32
_TOPIC_NAME = "errors.deadletterqueue.topic.name"


def redrive(
    group: Annotated[str, typer.Argument(metavar="GROUP", help="The share group's name.")],
    from_topic: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="TOPIC",
            help=f"The topic of the dead letters. Default: the group's {_TOPIC_NAME}.",
            autocompletion=complete_topics,
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only show what would be moved.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: Json = False,
) -> None:
    """Move dead letters of a share group back to their topics. Shows what would move, and asks.

    Each letter is moved once, however often this runs or is interrupted: the same transactions
    write the messages and record how far the letters were read. Messages keep key, value and
    headers, and the group delivers them like new ones. The letters themselves stay in their topic.
    """
    from moldau.client.queue.redrive import Redrive

    topic = from_topic or _topic_of(bootstrap, group)
    with failures(), Redrive(group, topic, bootstrap=bootstrap) as work:
        if not dry_run:
            work.claim()
        planned = work.plan()
        count = sum(planned.values())
        if not as_json:
            _show(planned)
        moved = 0
        if count and not dry_run:
            letters = f"{count:,} dead letter{'s' if count != 1 else ''}"
            confirm(f"Move {letters} of group {group} back?", yes)
            moved = work.move()
    if as_json:
        rows = [{"topic": t, "reason": r, "letters": n} for (t, r), n in sorted(planned.items())]
        show_json({"group": group, "from": topic, "letters": rows, "moved": moved})
    elif not count:
        show(f"{group}: no dead letters in {topic} that were not moved before", "dim", stderr=True)
    elif not dry_run:
        show(f"{group}: {moved:,} moved", "green")


def _show(planned: Counter[tuple[str, str]]) -> None:
    rows = [(topic, count, reason) for (topic, reason), count in sorted(planned.items())]
    if rows:
        show_table(("TO TOPIC", "LETTERS", "REASON"), rows)


def _topic_of(bootstrap: str, group: str) -> str:
    """Return the topic that a group's own settings name for dead letters."""
    resource = {
        "resource_type": _GROUP,
        "resource_name": group,
        "configuration_keys": [_TOPIC_NAME],
    }
    told = ask(bootstrap, Api.DESCRIBE_CONFIGS, {"resources": [resource]}).results[0]
    if told.error_code:
        raise Failure(f"the settings of group {group} cannot be read: {told.error_message}")
    for each in told.configs:
        if each.name == _TOPIC_NAME and each.value:
            return str(each.value)
    raise Failure(
        f"group {group} has no topic for dead letters ({_TOPIC_NAME})",
        "name one with --from TOPIC",
    )
