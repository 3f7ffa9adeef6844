"""A report as Markdown, for bench/RESULTS.md."""

from __future__ import annotations

from collections.abc import Iterator

from bench.kafka.comparison import MOLDAU, Compared, Report
from moldau.bench.results import number

COMMAND = "make bench-kafka"


def markdown(report: Report, plots: dict[str, str]) -> str:
    """The report as a section of a page; `plots` are titles and files of pictures."""
    return "\n".join(_lines(report, plots)) + "\n"


def _lines(report: Report, plots: dict[str, str]) -> Iterator[str]:
    yield "## Moldau beside Apache Kafka"
    yield ""
    yield f"Written by `{COMMAND}` ({report.scale} run); docs/kafka.md explains. Medians, with the"
    yield "range below where there are several samples. The factor says how many times better"
    yield "Moldau is, below 1 how much worse; a goal stands beside it where there is one."
    yield ""
    for key, value in report.machine.items():
        yield f"- {key}: {value}"
    for title, file in plots.items():
        yield ""
        yield f"![{title}]({file})"
    for row in report.rows:
        sides = list(row.compared[0].samples)
        yield ""
        yield f"### {row.title[0].upper()}{row.title[1:]}"
        yield ""
        yield "| | " + " | ".join(_header(sides)) + " |"
        yield "|---|" + "---:|" * len(list(_header(sides)))
        for compared in row.compared:
            yield f"| {compared.name}, {compared.unit} | " + " | ".join(_cells(compared)) + " |"
        if row.note:
            yield ""
            yield row.note
    for name, reason in report.skipped.items():
        yield ""
        yield f"Not measured: {name}, {reason}."


def _header(sides: list[str]) -> Iterator[str]:
    yield from sides
    for side in sides:
        if side != MOLDAU:
            yield f"against {side}"


def _cells(compared: Compared) -> Iterator[str]:
    for side, samples in compared.samples.items():
        spread = ""
        if len(samples) > 1:
            spread = f"<br>{number(min(samples))} - {number(max(samples))}"
        yield f"{number(compared.median(side))}{spread}"
    for side in compared.samples:
        if side != MOLDAU:
            yield _factor(compared, side)


def _factor(compared: Compared, side: str) -> str:
    advantage = compared.advantage(side)
    text = f"{advantage:.2g} x" if advantage < 10 else f"{advantage:.0f} x"
    if compared.goal is None:
        return text
    verdict = "met" if advantage >= compared.goal.factor else "missed"
    return f"{text} ({compared.goal.text()}: {verdict})"
