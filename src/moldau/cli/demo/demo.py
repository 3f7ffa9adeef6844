"""`moldau demo`: the whole way, live, with the same commands that a person would type."""

from __future__ import annotations

import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from moldau.cli.demo.orders import tell_of_orders
from moldau.cli.demo.story import Story, running_broker
from moldau.cli.views.output import show

EVENTS = 60_000
OF_SPARK = ("deltalake", "numba", "pyarrow", "pyspark")


def demo(
    keep: Annotated[
        bool,
        typer.Option(
            "--keep",
            help="Leave everything running at the end, until Ctrl-C, so that you can explore.",
        ),
    ] = False,
    events: Annotated[
        int, typer.Option(metavar="N", min=1, help="Number of page views in the second act.")
    ] = EVENTS,
    seed: Annotated[
        int,
        typer.Option(metavar="N", help="Seed of the page views; another seed gives other views."),
    ] = 1,
) -> None:
    """Start a broker and show what it can do, in two acts; the second checks its own results.

    The first act is a consumer group that shares orders, its lag, and a member that dies. The
    second, with the extra `spark`, takes the page views of a web shop through a Spark pipeline into
    lake tables. The processes are real, the ports free and the folder temporary; nothing is left
    behind. It takes about a minute and a half.
    """
    with tempfile.TemporaryDirectory(prefix="moldau-demo-") as name:
        folder = Path(name)
        with running_broker(folder / "broker") as address:
            story = Story(address)
            tell_of_orders(story)
            missing = [package for package in OF_SPARK if find_spec(package) is None]
            if missing:
                _leave_out_second_act(story, missing)
            else:
                from moldau.cli.demo.activity import tell_of_activity

                tell_of_activity(story, folder / "pipeline", events=events, seed=seed, keep=keep)
            story.tell("Now the broker stops.")
    show("\nDone. Start your own with `moldau broker`.", "bold green")


def _leave_out_second_act(story: Story, missing: list[str]) -> None:
    story.tell(
        "There is a second act, with page views through a Spark pipeline into lake tables. It is",
        f"left out here, as {', '.join(missing)} not installed. This adds it:",
        "    pip install 'moldau[spark]'",
    )
