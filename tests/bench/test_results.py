"""Medians, percentiles, targets, and how they are shown."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from bench.page import keep, keep_some
from moldau.bench.markdown import markdown
from moldau.bench.results import Report, Row, Target, figure, number, percentile


def test_a_figure_is_the_median_of_its_samples() -> None:
    assert figure("rate", "msg/s", [1, 9, 2]).median == 2


@pytest.mark.parametrize(
    ("share", "expected"), [(50, 50), (99, 99), (99.9, 100), (100, 100), (0, 1)]
)
def test_a_percentile_is_the_smallest_value_that_covers_the_share(
    share: float, expected: int
) -> None:
    assert percentile(list(range(100, 0, -1)), share) == expected


def test_a_target_is_an_upper_or_a_lower_limit() -> None:
    assert Target(0.6).is_met_by(0.6)
    assert not Target(0.6).is_met_by(0.61)
    assert Target(3e6, at_least=True).is_met_by(4e6)
    assert not Target(3e6, at_least=True).is_met_by(2e6)


def test_a_report_names_the_figures_that_miss_their_target() -> None:
    slow = figure("p99", "ms", [2.0], Target(1.0))
    fast = figure("p50", "ms", [0.2], Target(1.0))
    report = Report({}, "full", (Row("latency", "end to end", (slow, fast)),), {})
    assert report.missed == ["end to end: p99"]


def test_markdown_shows_median_range_target_and_verdict() -> None:
    measured = figure("messages", "msg/s", [3.2e6, 3.0e6, 3.4e6], Target(3e6, at_least=True))
    row = Row("throughput", "produce 100 B", (measured,))
    text = markdown(Report({"processor": "one"}, "full", (row,), {"cold": "no disk"}))
    assert "## Produce 100 B" in text
    line = "| messages | 3,200,000 msg/s | 3,000,000 - 3,400,000 | >= 3,000,000 msg/s | met |"
    assert line in text
    assert "- processor: one" in text
    assert "Not measured: cold, no disk." in text


@pytest.mark.parametrize(
    ("value", "text"), [(0.12345, "0.123"), (12.3456, "12.3"), (1234.5, "1,234"), (100, "100")]
)
def test_numbers_keep_three_digits_that_matter(value: float, text: str) -> None:
    assert number(value) == text


def test_rows_that_are_measured_later_take_the_place_of_the_earlier_ones(tmp_path: Path) -> None:
    def row(measurement: str, rate: float) -> Row:
        return Row(measurement, f"{measurement} of something", (figure("rate", "/s", [rate]),))

    whole = Report({"date": "first"}, "full", (row("a", 1), row("b", 2), row("d", 4)), {"c": "no"})
    keep(whole, tmp_path)
    some = Report({"date": "second"}, "full", (row("c", 30), row("b", 20)), {})
    keep_some(some, "abcd", tmp_path)
    kept = msgspec.json.decode((tmp_path / "results.json").read_bytes(), type=Report)
    found = [(each.measurement, each.figures[0].median) for each in kept.rows]
    assert found == [("a", 1), ("b", 20), ("c", 30), ("d", 4)]
    assert kept.skipped == {}
    page = (tmp_path / "RESULTS.md").read_text()
    assert "- date: first" in page
    assert "- b, measured later: second" in page
