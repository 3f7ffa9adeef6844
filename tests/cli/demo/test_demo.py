"""The demo: both acts for real, and what its proof notices."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from moldau.cli import main
from moldau.cli.demo import demo as demo_command
from moldau.cli.demo import proof as demo_proof
from moldau.cli.demo.page_views import Activity, PageView
from moldau.cli.demo.proof import Check, check_events, check_sessions, check_views
from moldau.cli.demo.tables import Lake
from moldau.cli.views.output import Failure

NO_SPARK = any(find_spec(name) is None for name in demo_command.OF_SPARK)
EVENTS = 3000


def check_first_act(told: str) -> None:
    assert "orders: 12 messages delivered" in told
    assert "kitchen: stable, 3 members, 0 messages and 0 s behind" in told
    killed, lagging, taken_over = re.split("dies without a word|a sign of life", told)
    # Soon after the death there are four messages behind, unless the machine is so slow that the
    # others have taken over by then.
    assert re.search("3 members, 4 messages and|2 members, ", lagging)
    for number in range(1, 37):
        assert len(re.findall(rf"\[cook-\d\] \w+, order {number}:", told)) == 1
    assert "cook-2" in killed
    assert "[cook-2]" not in taken_over
    assert "kitchen: stable, 2 members, 0 messages and 0 s behind" in taken_over


def _watch(console: str, process: subprocess.Popen[str], states: set[str]) -> None:
    """Look at the pipelines of a console, until the demo ends or one runs."""
    while process.poll() is None and "running" not in states:
        with suppress(OSError), urlopen(f"{console}api/pipelines", timeout=10) as answer:
            states.update(each["state"] for each in json.load(answer)["pipelines"])
        threading.Event().wait(0.2)


@pytest.mark.timeout(600)
@pytest.mark.slow
def test_the_demo_tells_its_story_proves_itself_and_leaves_nothing(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "moldau", "demo", "--events", str(EVENTS)],
        env=os.environ | {"TMPDIR": str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert process.stdout is not None
    lines: list[str] = []
    states: set[str] = set()
    watcher: threading.Thread | None = None
    try:
        for line in process.stdout:
            lines.append(line)
            page = re.search(r"in a browser at (http://\S+/console/)", line)
            if page:
                watcher = threading.Thread(target=_watch, args=(page[1], process, states))
                watcher.start()
    finally:
        process.kill()
        process.wait(60)
        process.stdout.close()
        if watcher is not None:
            watcher.join(60)
    told = "".join(lines)
    assert process.returncode == 0, told[-5000:]
    # Whoever opened the console saw the pipeline at work.
    assert watcher is not None
    assert NO_SPARK or "running" in states
    check_first_act(told)
    if NO_SPARK:
        assert "pip install 'moldau[spark]'" in told
    else:
        assert f"events produced = rows in the table    │ {EVENTS:>21,} │ holds" in told
        assert told.count("holds") == 5
        assert "wrong" not in told
    assert told.rstrip().endswith("Start your own with `moldau broker`.")
    assert list(tmp_path.iterdir()) == []


def test_without_the_extra_the_second_act_is_left_out_and_the_extra_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    @contextmanager
    def no_broker(folder: Path) -> Iterator[str]:
        yield "127.0.0.1:1"

    monkeypatch.setattr(demo_command, "running_broker", no_broker)
    monkeypatch.setattr(demo_command, "tell_of_orders", lambda story: None)
    monkeypatch.setattr(demo_command, "find_spec", lambda name: None)
    assert main(["demo"]) == 0
    told = capsys.readouterr().out
    assert "pyspark not installed" in told
    assert "pip install 'moldau[spark]'" in told


def views(count: int) -> list[PageView]:
    return list(islice(Activity(3, views_per_s=5, users=20), count))


def rows_of(events: list[PageView]) -> list[dict[str, Any]]:
    return [{name: getattr(view, name) for name in view.__struct_fields__} for view in events]


def problems(checks: list[Check]) -> list[str]:
    return [check.problem for check in checks if check.problem]


def test_a_table_with_every_event_once_passes() -> None:
    events = views(200)
    assert problems(check_events(rows_of(events), events)) == []


@pytest.mark.parametrize(
    ("spoil", "found"),
    [
        (lambda rows: rows[:-1], ["200 were produced", "1 are missing, 0 twice, 0 changed"]),
        (lambda rows: [*rows, rows[0]], ["200 were produced", "0 are missing, 1 twice, 0 changed"]),
        (
            lambda rows: [rows[0] | {"status": 418}, *rows[1:]],
            ["0 are missing, 0 twice, 1 changed"],
        ),
        (
            lambda rows: [rows[0] | {"event_id": "another"}, *rows[1:]],
            ["1 are missing, 0 twice, 1 changed"],
        ),
    ],
    ids=["lost", "twice", "changed", "another"],
)
def test_lost_doubled_and_changed_events_are_noticed(spoil: Any, found: list[str]) -> None:
    events = views(200)
    assert problems(check_events(spoil(rows_of(events)), events)) == found


def test_aggregates_that_do_not_follow_from_the_events_are_noticed() -> None:
    rows = rows_of(views(200))
    right = demo_proof.count_views(rows)
    assert sum(counted.views for counted in right.values()) == 200
    assert check_views("views", rows, right).problem == ""
    key = next(iter(right))
    one = right[key]
    for wrong in (
        right | {key: demo_proof.Counted(one.views + 1, one.errors, one.latency_ms)},
        right | {key: demo_proof.Counted(one.views, one.errors, one.latency_ms * 1.001)},
        {other: counted for other, counted in right.items() if other != key},
        right | {(key[0], "/nowhere"): one},
    ):
        assert "1 of" in check_views("views", rows, wrong).problem


def test_sessions_end_after_half_a_minute_and_wrong_ones_are_noticed() -> None:
    first = views(1)[0]
    rows = [
        {"session": "s", "user": "u", "time": first.time + timedelta(seconds=at)}
        for at in (0, 29, 59, 20)
    ]
    counted = demo_proof.count_sessions(rows)
    begun, gap = first.time, demo_proof.SESSION_GAP
    assert counted == {
        ("s", "u", begun, begun + timedelta(seconds=29) + gap): 3,
        ("s", "u", begun + timedelta(seconds=59), begun + timedelta(seconds=59) + gap): 1,
    }
    table = [
        {"session": s, "user": u, "started": started, "ended": ended, "views": views}
        for (s, u, started, ended), views in counted.items()
    ]
    assert check_sessions(rows, table).problem == ""
    assert "1 of 2 differ" in check_sessions(rows, table[:1]).problem
    assert "1 of 2 differ" in check_sessions(rows, [table[0] | {"views": 9}, table[1]]).problem


def test_wrong_results_fail_the_demo(monkeypatch: pytest.MonkeyPatch) -> None:
    events = views(50)
    rows = rows_of(events)
    tables = {"raw": rows[1:], "views": [], "sessions": []}
    monkeypatch.setattr(demo_proof, "_rows", lambda path: tables[path])
    monkeypatch.setattr(demo_proof, "_latest", lambda topic, address: [])
    with pytest.raises(Failure, match="the results are wrong: events produced"):
        demo_proof.prove(Lake("raw", "views", "sessions", "topic"), events, "127.0.0.1:1")
