"""`moldau pipeline redrive`: move a pipeline's dead letters back to where they came from."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from moldau.cli.clients import failures as client_failures
from moldau.cli.options import Json
from moldau.cli.pipelines.loading import PipelineBootstrap, failures, moment, starting_spark
from moldau.cli.requests import connect_cluster
from moldau.cli.views.output import Failure, show, show_json, show_table
from moldau.cli.views.prompt import confirm
from moldau.client.connection import bootstrap_address
from moldau.security.client import ClientSecurity

if TYPE_CHECKING:
    from moldau.client.pipelines.letters import PipelineLetter
    from moldau.client.pipelines.redrive import Edit, RedrivePlan

_SHOWN = 200


class _Letters(NamedTuple):
    """Where the letters of a pipeline are: by topic, the sources that they are of."""

    bootstrap: str
    topics: dict[str, set[str]]
    # How to get in at the brokers, if the file says so.
    security: ClientSecurity | None = None


def redrive(
    pipeline: Annotated[
        str,
        typer.Argument(metavar="PIPELINE", help="The pipeline's name, or its TOML file."),
    ],
    reason: Annotated[
        str | None,
        typer.Option(metavar="TEXT", help="Only letters whose reason contains this text."),
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="Only letters set aside since then: 2024-02-29T12:00Z, or an age such as 2h.",
        ),
    ] = None,
    edit: Annotated[
        str | None,
        typer.Option(
            metavar="SQL",
            help="An SQL expression for the new value, over key, value, reason, source, topic, "
            "partition, offset, timestamp and headers; NULL leaves a letter where it is.",
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only show what would be moved.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
    bootstrap: PipelineBootstrap = None,
    verbose: Annotated[
        bool, typer.Option("--verbose", help="Show Spark's full output on errors.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Move dead letters of a pipeline back to their topics. Shows what would move, and asks.

    Each record is moved once, however often this runs or is interrupted, even if several pipelines
    have set it aside. It keeps its key, headers and partition, and every reader of the topic gets
    it like a new one. The letters themselves stay in their topic.
    """
    since_at = moment(since, "--since")
    since_ms = None if since_at is None else int(since_at.timestamp() * 1000)
    with failures(verbose), client_failures(), ExitStack() as stack:
        found = _letters_of(pipeline, bootstrap)
        edits = None if edit is None else stack.enter_context(_editing(edit, verbose))
        for topic, sources in found.topics.items():
            choose = partial(_is_chosen, sources, reason, since_ms)
            _redrive(found, topic, choose, edits, dry_run=dry_run, yes=yes, as_json=as_json)


def _is_chosen(
    sources: set[str], reason: str | None, since_ms: int | None, letter: PipelineLetter
) -> bool:
    return (
        # What brokers have set aside there is of no source.
        (letter.source in sources or letter.is_quarantined)
        and (reason is None or reason.lower() in letter.reason.lower())
        and (since_ms is None or letter.timestamp_ms >= since_ms)
    )


def _redrive(
    found: _Letters,
    topic: str,
    choose: Callable[[PipelineLetter], bool],
    edit: Edit | None,
    *,
    dry_run: bool,
    yes: bool,
    as_json: bool,
) -> None:
    from moldau.client.pipelines.redrive import PipelineRedrive

    settings = {} if found.security is None else found.security.properties()
    with (
        connect_cluster(found.bootstrap, security=found.security) as cluster,
        PipelineRedrive(
            topic, choose=choose, edit=edit, bootstrap=found.bootstrap, settings=settings
        ) as work,
    ):
        if not dry_run:
            work.claim(cluster)
        plan = work.plan(cluster)
        if not as_json:
            _show(topic, plan, edited=edit is not None)
        moved = 0
        if plan.count and not dry_run:
            letters = f"{plan.count:,} dead letter{'s' if plan.count != 1 else ''}"
            confirm(f"Move {letters} in {topic} back?", yes)
            moved = work.move()
    if as_json:
        rows = [
            {"topic": to, "reason": why, "letters": count}
            for (to, why), count in sorted(plan.letters.items())
        ]
        show_json(
            {
                "from": topic,
                "letters": rows,
                "moved_before": plan.moved_before,
                "unedited": plan.unedited,
                "moved": moved,
            }
        )
    elif plan.count and not dry_run:
        show(f"{topic}: {moved:,} moved", "green")


def _show(topic: str, plan: RedrivePlan, *, edited: bool) -> None:
    rows = [(to, count, reason) for (to, reason), count in sorted(plan.letters.items())]
    if rows:
        show_table(("TO TOPIC", "LETTERS", "REASON"), rows)
    else:
        show(f"{topic}: no dead letters to move", "dim", stderr=True)
    if plan.moved_before:
        show(f"{topic}: {plan.moved_before:,} were already moved", "dim", stderr=True)
    if plan.unedited:
        show(f"{topic}: {plan.unedited:,} stay, because the edit gives NULL", "dim", stderr=True)
    if edited:
        for letter, value in plan.examples:
            where = f"{letter.origin.topic}-{letter.origin.partition}"
            if not letter.is_quarantined:
                where += f" {letter.origin.offset}"
            show(f"{where}: {_short(letter.value)} -> {_short(value)}", "dim", stderr=True)


def _short(value: bytes | None) -> str:
    text = "null" if value is None else value.decode(errors="backslashreplace")
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def _letters_of(pipeline: str, bootstrap: str | None) -> _Letters:
    """Return where the letters are, as a file says, or the status of a pipeline."""
    path = Path(pipeline)
    if path.suffix == ".toml" or path.is_file():
        if not path.is_file():
            raise typer.BadParameter(f"{path} is not a file", param_hint="PIPELINE")
        from moldau.spark.pipeline.file.file import read_file
        from moldau.spark.pipeline.plan.topics import dead_letter_topic

        file = read_file(path, bootstrap=bootstrap)
        named = {name: dead_letter_topic(file, name) for name in file.settings.sources}
        return _by_topic(pipeline, file.settings.bootstrap, named, file.security())
    from moldau.client.pipelines.status_topic import StatusTopic

    address = bootstrap_address(bootstrap)
    with connect_cluster(address) as cluster:
        status = StatusTopic(cluster).read().pipelines.get(pipeline)
    if status is None:
        raise Failure(
            f"these brokers have no status of a pipeline {pipeline!r}",
            "give its file instead; `moldau pipeline list` shows the known pipelines",
        )
    return _by_topic(pipeline, address, {each.name: each.dead_letters for each in status.sources})


def _by_topic(
    pipeline: str,
    bootstrap: str,
    sources: dict[str, str | None],
    security: ClientSecurity | None = None,
) -> _Letters:
    topics: dict[str, set[str]] = {}
    for source, topic in sources.items():
        if topic is not None:
            topics.setdefault(topic, set()).add(source)
    if not topics:
        raise Failure(f"no source of {pipeline} has a topic for dead letters")
    return _Letters(bootstrap, topics, security)


@contextmanager
def _editing(expression: str, verbose: bool) -> Iterator[Edit]:
    from moldau.spark import OptionError, session
    from moldau.spark.letter_edits import SqlEdit
    from moldau.spark.pipeline.supervision.sessions import Sessions

    with Sessions(lambda: session("moldau-redrive", master="local[1]")) as sessions:
        with starting_spark(verbose):
            spark = sessions.get()
        try:
            yield SqlEdit(spark, expression)
        except OptionError as problem:
            raise Failure(str(problem)) from None
