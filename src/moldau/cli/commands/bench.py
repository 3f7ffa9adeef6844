"""`moldau bench`: the measurements of `moldau.bench`, printed as tables."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from moldau.cli.options import Json
from moldau.cli.views.output import Failure, console, show, show_json

if TYPE_CHECKING:
    from moldau.bench.results import Report, Row

# Wide enough for every figure, so that the tables of all rows line up as they appear.
WIDTHS = (35, 18, 22, 20, 6)


def complete_names(incomplete: str) -> list[str]:
    from moldau.bench.measure import MEASUREMENTS

    return [name for name in MEASUREMENTS if name.startswith(incomplete)]


def bench(
    quick: Annotated[
        bool,
        typer.Option("--quick", help="Take smaller, less exact samples; takes about a minute."),
    ] = False,
    only: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Run only this measurement; may be repeated. One of startup, throughput, "
            "requests, latency, partitions, flush, recovery, groups, client, cluster, "
            "failover, spark, spark-sink.",
            autocompletion=complete_names,
        ),
    ] = None,
    folder: Annotated[
        Path | None,
        typer.Option(
            metavar="D",
            exists=True,
            file_okay=False,
            help="Folder for the data, up to 30 GB, which is removed at the end. Default: the "
            "system's temporary folder.",
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Measure a broker on this machine, with librdkafka in another process.

    Starts its own brokers and leaves nothing behind. Figures are medians, and mean little on a
    machine that is busy with other work.
    """
    report = _run(quick, only or [], folder, rows_shown=not as_json)
    if as_json:
        import msgspec

        show_json(msgspec.to_builtins(report))
        return
    for name, reason in report.skipped.items():
        show(f"{name}: skipped, {reason}", "yellow", stderr=True)
    for key, value in report.machine.items():
        show(f"{key}: {value}", "dim")


def _run(quick: bool, only: Sequence[str], folder: Path | None, *, rows_shown: bool) -> Report:
    from moldau.bench.errors import BenchFailed, Unavailable
    from moldau.bench.measure import MEASUREMENTS
    from moldau.bench.scale import FULL, QUICK
    from moldau.bench.suite import run_suite

    for name in only:
        if name not in MEASUREMENTS:
            known = ", ".join(MEASUREMENTS)
            raise typer.BadParameter(f"{name!r} is not one of {known}", param_hint="--only")
    # On a terminal the status is one line that changes; elsewhere it is left out.
    with console(stderr=True).status("starting") as status:
        try:
            return run_suite(
                QUICK if quick else FULL,
                only=only,
                parent=folder,
                say=status.update,
                on_row=_show_row if rows_shown else lambda row: None,
            )
        except (BenchFailed, Unavailable) as problem:
            raise Failure(str(problem)) from None


def _show_row(row: Row) -> None:
    from rich.table import Table
    from rich.text import Text

    from moldau.bench.markdown import cells

    table = Table(box=None, show_header=False, pad_edge=False)
    for width, justify in zip(WIDTHS, ("left", "right", "left", "left", "left"), strict=True):
        table.add_column(justify=justify, min_width=width, no_wrap=True)  # type: ignore[arg-type]
    styles = {True: "green", False: "bold red", None: ""}
    for figure in row.figures:
        name, median, spread, target, verdict = cells(figure)
        mark = Text(verdict, styles[figure.is_met])
        table.add_row(f"  {name}", median, Text(spread, "dim"), Text(target, "dim"), mark)
    out = console()
    out.print(Text(row.title, "bold"))
    # A fixed width: rich would cut columns to 80 characters when the output is not a terminal.
    out.print(table, width=sum(WIDTHS) + len(WIDTHS))
