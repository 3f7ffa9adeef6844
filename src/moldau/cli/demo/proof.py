"""The end of `moldau demo`: the results must be what the produced events come to."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from moldau.cli.clients import connect_consumer, topic_metadata
from moldau.cli.demo.tables import Lake, read_table
from moldau.cli.views.output import Failure, console

if TYPE_CHECKING:
    from moldau.cli.demo.page_views import PageView

# As in the pipeline file.
SESSION_GAP = timedelta(seconds=30)
READ_WITHIN_S = 30.0

Row = Mapping[str, Any]
PageMinute = tuple[datetime, str]
Visit = tuple[str, str, datetime, datetime]


@dataclass(frozen=True, slots=True)
class Counted:
    """The views of one page in one minute."""

    views: int
    errors: int
    latency_ms: float

    def agrees_with(self, other: Counted) -> bool:
        """Averages of the same numbers, added in another order, differ in the last digits."""
        same = (self.views, self.errors) == (other.views, other.errors)
        return same and math.isclose(self.latency_ms, other.latency_ms, rel_tol=1e-9)


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that must hold; `problem` says how it does not."""

    what: str
    found: str
    problem: str = ""


def prove(lake: Lake, produced: list[PageView], address: str) -> None:
    """Show what was checked; raise Failure if anything is wrong."""
    checks = [
        *check_events(_rows(lake.raw), produced),
        check_views("views per page and minute", _rows(lake.raw), _counted(_rows(lake.views))),
        check_views(
            f"the same in the topic {lake.topic}",
            _rows(lake.raw),
            _counted(_latest(lake.topic, address)),
        ),
        check_sessions(_rows(lake.raw), _rows(lake.sessions)),
    ]
    _show(checks)
    wrong = [check for check in checks if check.problem]
    if wrong:
        problems = "; ".join(f"{check.what}: {check.problem}" for check in wrong)
        raise Failure(f"the results are wrong: {problems}")


def check_events(rows: Sequence[Row], produced: Iterable[PageView]) -> list[Check]:
    """Check that every event is in the table, once, as it was produced."""
    wanted = {view.event_id: view for view in produced}
    problem = "" if len(rows) == len(wanted) else f"{len(wanted):,} were produced"
    count = Check("events produced = rows in the table", f"{len(rows):,}", problem)
    kept = {row["event_id"]: row for row in rows}
    missing = wanted.keys() - kept.keys()
    changed = [
        name
        for name, row in kept.items()
        if name not in wanted
        or any(
            row[field] != getattr(wanted[name], field) for field in wanted[name].__struct_fields__
        )
    ]
    problem = ""
    if missing or changed or len(kept) != len(rows):
        twice = len(rows) - len(kept)
        problem = f"{len(missing):,} are missing, {twice:,} twice, {len(changed):,} changed"
    return [count, Check("each of them once and unchanged", f"{len(kept):,}", problem)]


def check_views(what: str, rows: Sequence[Row], found: Mapping[PageMinute, Counted]) -> Check:
    wanted = count_views(rows)
    wrong = [
        key
        for key in wanted.keys() | found.keys()
        if key not in wanted or key not in found or not wanted[key].agrees_with(found[key])
    ]
    problem = ""
    if wrong:
        key = min(wrong)
        problem = (
            f"{len(wrong):,} of {len(wanted):,} differ, such as {key[1]} at "
            f"{key[0]:%H:%M}: {found.get(key)} but the events give "
            f"{wanted.get(key)}"
        )
    return Check(what, f"{len(found):,} pages and minutes", problem)


def check_sessions(rows: Sequence[Row], sessions: Sequence[Row]) -> Check:
    wanted = count_sessions(rows)
    found = {
        (row["session"], row["user"], row["started"], row["ended"]): int(row["views"])
        for row in sessions
    }
    wrong = [key for key in wanted.keys() | found.keys() if wanted.get(key) != found.get(key)]
    problem = ""
    if wrong or len(found) != len(sessions):
        key = min(wrong, default=None)
        problem = (
            f"{len(wrong):,} of {len(wanted):,} differ, such as {key}: "
            f"{found.get(key) if key else None} but the events give "
            f"{wanted.get(key) if key else None}"
        )
    return Check("sessions", f"{len(found):,} sessions", problem)


def count_views(rows: Iterable[Row]) -> dict[PageMinute, Counted]:
    """Compute what the pipeline's table `views_per_minute` must hold."""
    groups: dict[PageMinute, list[Row]] = {}
    for row in rows:
        minute = row["time"].replace(second=0, microsecond=0)
        groups.setdefault((minute, row["page"]), []).append(row)
    return {
        key: Counted(
            len(group),
            sum(row["status"] >= 500 for row in group),
            math.fsum(row["latency_ms"] for row in group) / len(group),
        )
        for key, group in groups.items()
    }


def count_sessions(rows: Iterable[Row]) -> dict[Visit, int]:
    """Compute what the table `sessions` must hold: views less than half a minute apart."""
    visits: dict[tuple[str, str], list[datetime]] = {}
    for row in rows:
        visits.setdefault((row["session"], row["user"]), []).append(row["time"])
    counted: dict[Visit, int] = {}
    for (session, user), times in visits.items():
        times.sort()
        first, last, views = times[0], times[0], 0
        for at in times:
            if at >= last + SESSION_GAP and views:
                counted[session, user, first, last + SESSION_GAP] = views
                first, views = at, 0
            last = at
            views += 1
        counted[session, user, first, last + SESSION_GAP] = views
    return counted


def _rows(path: str) -> list[Row]:
    table = read_table(path)
    if table is None:
        raise Failure(f"there is no table at {path}")
    rows: list[Row] = table.to_pylist()
    return rows


def _counted(rows: Iterable[Row]) -> dict[PageMinute, Counted]:
    return {
        (row["minute"], row["page"]): Counted(
            int(row["views"]), int(row["errors"]), float(row["latency_ms"])
        )
        for row in rows
    }


def _latest(topic: str, address: str) -> list[Row]:
    """Return the last word of the topic on each page and minute."""
    from confluent_kafka import OFFSET_BEGINNING, KafkaError, TopicPartition

    consumer = connect_consumer(address, enable_partition_eof=True)
    latest: dict[PageMinute, Row] = {}
    deadline = time.monotonic() + READ_WITHIN_S
    try:
        left = set(topic_metadata(consumer, topic).partitions)
        consumer.assign([TopicPartition(topic, each, OFFSET_BEGINNING) for each in left])
        while left:
            if time.monotonic() > deadline:
                raise Failure(f"{topic} was not read within {READ_WITHIN_S:g} s")
            for message in consumer.consume(10_000, 0.2):
                error = message.error()
                if error is None:
                    row = json.loads(message.value() or b"{}")
                    at = datetime.fromisoformat(row["minute"]).astimezone(UTC)
                    latest[at, row["page"]] = {**row, "minute": at}
                elif error.code() == KafkaError._PARTITION_EOF:
                    left.discard(message.partition())
                else:
                    raise Failure(f"{topic}: {error.str()}")
    finally:
        consumer.close()
    return list(latest.values())


def _show(checks: list[Check]) -> None:
    from rich.table import Table
    from rich.text import Text

    table = Table(title="proof", title_justify="left", title_style="bold", min_width=60)
    table.add_column("what must hold")
    table.add_column("found", justify="right")
    table.add_column("")
    for check in checks:
        verdict = Text("wrong", "bold red") if check.problem else Text("holds", "green")
        table.add_row(check.what, check.found, verdict)
    console().print(table)
