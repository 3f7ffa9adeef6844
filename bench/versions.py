"""Versions: this Moldau and another one under the same load, in turns.

`python -m bench.versions OTHER NAME...` measures the brokers of `OTHER`, the `moldau` command of
another environment, and those of this one. Load, clients and ways to measure are this one's for
both. Rounds alternate, and so does who begins, so that whatever else the machine does hits both.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from moldau.bench.broker import moldau_command
from moldau.bench.results import Report, number
from moldau.bench.scale import QUICK, Scale
from moldau.bench.suite import run_suite

# Those that start brokers by the workbench.
_NAMES = ("startup", "throughput", "requests", "latency", "partitions")
_Samples = dict[tuple[str, str, str], list[float]]


def compare(
    other: Sequence[str],
    names: Sequence[str],
    rounds: int,
    scale: Scale = QUICK,
    say: Callable[[str], None] = print,
) -> list[str]:
    """Return a table in Markdown: each figure of the other version, of this one, the change."""
    sides = (list(other), moldau_command())
    samples: tuple[_Samples, _Samples] = ({}, {})
    for turn in range(rounds):
        for side in (1, 0) if turn % 2 else (0, 1):
            say(f"round {turn + 1} of {rounds}: {sides[side][0]}")
            report = run_suite(scale, only=names, command=sides[side])
            _add(samples[side], report)
    return list(_table(*samples))


def _add(samples: _Samples, report: Report) -> None:
    for row in report.rows:
        for each in row.figures:
            samples.setdefault((row.title, each.name, each.unit), []).extend(each.samples)


def _table(before: _Samples, after: _Samples) -> Iterator[str]:
    yield "| row | figure | before | after | change |"
    yield "|---|---|---:|---:|---:|"
    for key, olds in before.items():
        title, name, unit = key
        news = after[key]
        old, new = statistics.median(olds), statistics.median(news)
        change = f"{100 * (new / old - 1):+.1f} %" if old else ""
        yield f"| {title} | {name}, {unit} | {_range(olds)} | {_range(news)} | {change} |"


def _range(samples: list[float]) -> str:
    low, high = min(samples), max(samples)
    return f"{number(statistics.median(samples))} ({number(low)} - {number(high)})"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.versions", description=__doc__)
    parser.add_argument("other", type=Path, help="the `moldau` command of the other version")
    parser.add_argument("only", nargs="*", metavar="NAME", help=", ".join(_NAMES))
    parser.add_argument("--rounds", type=int, default=4, help="how often each is measured")
    given = parser.parse_intermixed_args()
    for name in given.only:
        if name not in _NAMES:
            parser.error(f"{name!r} is none of {', '.join(_NAMES)}")
    if not given.other.is_file():
        parser.error(f"{given.other} does not exist")
    for line in compare([str(given.other)], given.only or _NAMES, given.rounds):
        print(line)


if __name__ == "__main__":
    main()
