"""A report as Markdown, for bench/RESULTS.md."""

from __future__ import annotations

from collections.abc import Iterator

from moldau.bench.results import Figure, Report, number

COLUMNS = ("figure", "median", "range", "target", "")


def markdown(report: Report) -> str:
    """Return the report as a section of a page."""
    return "\n".join(_lines(report)) + "\n"


def cells(figure: Figure) -> tuple[str, str, str, str, str]:
    """Return one figure as the table shows it, under COLUMNS."""
    low, high = min(figure.samples), max(figure.samples)
    spread = f"{number(low)} - {number(high)}" if len(figure.samples) > 1 else ""
    target = figure.target.text(figure.unit) if figure.target is not None else ""
    verdict = {True: "met", False: "missed", None: ""}[figure.is_met]
    return figure.name, f"{number(figure.median)} {figure.unit}", spread, target, verdict


def _lines(report: Report) -> Iterator[str]:
    yield "## Moldau by itself"
    yield ""
    yield f"Written by `python -m bench.run` ({report.scale} run); docs/benchmarks.md explains."
    yield ""
    for key, value in report.machine.items():
        yield f"- {key}: {value}"
    for row in report.rows:
        yield ""
        yield f"### {row.title[0].upper()}{row.title[1:]}"
        yield ""
        yield "| " + " | ".join(COLUMNS) + " |"
        yield "|---|---:|---|---|---|"
        for figure in row.figures:
            yield "| " + " | ".join(cells(figure)) + " |"
    for name, reason in report.skipped.items():
        yield ""
        yield f"Not measured: {name}, {reason}."
