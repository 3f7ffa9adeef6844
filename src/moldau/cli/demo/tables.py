"""The lake tables of `moldau demo`, and how they are shown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from moldau.cli.views.output import console

if TYPE_CHECKING:
    import pyarrow as pa

    from moldau.spark.pipeline import Pipeline, SinkProgress

TOP = 6


@dataclass(frozen=True, slots=True)
class Lake:
    """The tables of the demo's pipeline, and the topic with its results."""

    raw: str
    views: str
    sessions: str
    topic: str

    @classmethod
    def of(cls, pipeline: Pipeline) -> Lake:
        from moldau.spark.pipeline.file.settings import DeltaSinkSettings, TopicSink

        sinks = pipeline.settings.sinks
        paths = {
            sink.from_: pipeline.file.resolve(sink.path)
            for sink in sinks.values()
            if isinstance(sink, DeltaSinkSettings)
        }
        (topic,) = (sink.topic for sink in sinks.values() if isinstance(sink, TopicSink))
        return cls(paths["page_views"], paths["views_per_minute"], paths["sessions"], topic)


def read_table(path: str) -> pa.Table | None:
    """Return what a Delta table holds now; None before its first transaction."""
    from deltalake import DeltaTable
    from pyarrow.fs import LocalFileSystem, SubTreeFileSystem

    if not (Path(path) / "_delta_log").is_dir() or not DeltaTable.is_deltatable(path):
        return None
    # Arrow's threads let go of deltalake's own file system, which is in Python, a little later:
    # a process that ends just then is aborted.
    files = SubTreeFileSystem(path, LocalFileSystem())
    return DeltaTable(path).to_pyarrow_table(filesystem=files)


def show_progress(produced: int, progress: Iterable[SinkProgress]) -> None:
    rows = [
        (
            each.sink,
            f"{each.rows:,}",
            f"{produced - each.rows:,}",
            f"{each.rows_per_s:,.0f}",
            f"{each.batch_s:.1f} s",
        )
        for each in sorted(progress, key=lambda each: each.sink)
    ]
    title = f"{produced:,} events produced"
    _show(title, ("sink", "read", "behind", "rows/s", "batch"), rows)


def show_results(lake: Lake, counted_before: int) -> int:
    """Return the pages of the newest minute, if the table has more views in all than before; how
    many."""
    table = read_table(lake.views)
    found = [] if table is None else table.to_pylist()
    counted = sum(int(row["views"]) for row in found)
    if counted <= counted_before:
        return counted
    newest = max(row["minute"] for row in found)
    rows = sorted(
        (row for row in found if row["minute"] == newest), key=lambda row: -int(row["views"])
    )
    _show(
        f"most viewed at {newest:%H:%M}, so far",
        ("page", "views", "errors", "error rate", "latency"),
        [
            (
                row["page"],
                f"{row['views']:,}",
                f"{row['errors']:,}",
                f"{row['error_rate']:.1%}",
                f"{row['latency_ms']:.0f} ms",
            )
            for row in rows[:TOP]
        ],
    )
    return counted


def show_totals(lake: Lake) -> None:
    """By minute, over all pages, and what the sessions were like."""
    views = read_table(lake.views)
    minutes: dict[str, list[float]] = {}
    for row in views.to_pylist() if views is not None else ():
        sums = minutes.setdefault(f"{row['minute']:%H:%M}", [0, 0, 0.0])
        sums[0] += row["views"]
        sums[1] += row["errors"]
        sums[2] += row["latency_ms"] * row["views"]
    _show(
        "the whole site by minute",
        ("minute", "views", "errors", "error rate", "latency"),
        [
            (minute, f"{n:,.0f}", f"{bad:,.0f}", f"{bad / n:.1%}", f"{total / n:.0f} ms")
            for minute, (n, bad, total) in sorted(minutes.items())
        ],
    )
    sessions = read_table(lake.sessions)
    lengths = [int(n) for n in sessions["views"].to_pylist()] if sessions is not None else []
    if lengths:
        count = len(lengths)
        bounced = sum(length == 1 for length in lengths) / count
        _show(
            "sessions",
            ("sessions", "views each", "longest", "one view only"),
            [(f"{count:,}", f"{sum(lengths) / count:.1f}", max(lengths), f"{bounced:.0%}")],
        )


def _show(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    from rich.table import Table

    table = Table(title=title, title_justify="left", title_style="bold", min_width=60)
    for number, column in enumerate(columns):
        table.add_column(column, justify="left" if number == 0 else "right", no_wrap=True)
    for row in rows:
        table.add_row(*(str(cell) for cell in row))
    console().print(table)
