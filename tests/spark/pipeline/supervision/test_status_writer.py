"""The status writer: what running pipelines tell the brokers, and hear from them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from moldau.client.pipelines.status import Statuses
from moldau.client.pipelines.status_topic import StatusTopic
from moldau.peer.cluster import Cluster
from moldau.peer.view import parse_bootstrap
from moldau.spark.pipeline.supervision.supervisor import Supervisor
from moldau.testing import Broker
from moldau.testing.waiting import until
from tests.cli.conftest import Run, moldau
from tests.spark.pipeline.supervision.scripted import (
    Scripted,
    failing,
    scripted,
    until_stopped,
)

__all__ = ["moldau"]


@contextmanager
def supervised(pipeline: Scripted) -> Iterator[tuple[Supervisor, threading.Thread]]:
    """A pipeline that runs in another thread until the block ends."""
    stop = threading.Event()
    supervisor = Supervisor(pipeline, lambda: None, stop=stop)  # type: ignore[arg-type, return-value]
    failures: list[BaseException] = []

    def run() -> None:
        try:
            supervisor.run()
        except BaseException as problem:
            failures.append(problem)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield supervisor, thread
    finally:
        stop.set()
        thread.join(60)
        assert not thread.is_alive()


def statuses(broker: Broker) -> Statuses:
    with Cluster(parse_bootstrap(broker.bootstrap)) as cluster:
        return StatusTopic(cluster).read()


def state_of(broker: Broker, name: str) -> str | None:
    found = statuses(broker).pipelines.get(name)
    return None if found is None else found.state


def test_a_pipeline_is_listed_shown_and_stopped_from_elsewhere(
    tmp_path: Path, moldau_session_broker: Broker, request: pytest.FixtureRequest
) -> None:
    run: Run = request.getfixturevalue("moldau")
    broker = moldau_session_broker
    pipeline = scripted(
        tmp_path, failing(rows=5), until_stopped, name="nile", bootstrap=broker.bootstrap
    )
    with supervised(pipeline) as (supervisor, thread):
        until(lambda: state_of(broker, "nile") == "running", "the pipeline's status")
        until(lambda: supervisor.status.restarts == 1, "its restart")
        until(lambda: statuses(broker).pipelines["nile"].restarts == 1, "that this is told")
        listed = next(
            each
            for each in run("pipeline", "list", "--json").json["pipelines"]
            if each["name"] == "nile"
        )
        assert (listed["state"], listed["run"]) == ("running", supervisor.status.run)
        row = next(
            line.split()
            for line in run("pipeline", "list").out.splitlines()
            if line.startswith("nile")
        )
        assert row[1:3] == ["running", "1"]
        shown = run("pipeline", "status", "nile").out
        assert "started again 1 times" in shown
        assert ": gone" in shown
        assert str(tmp_path / "lake") in shown
        stopped = run("pipeline", "stop", "nile", "--json")
        assert stopped.json["state"] == "stopped"
        thread.join(60)
        assert not thread.is_alive()
    # Nothing is left for the next run to hear.
    assert "nile" not in statuses(broker).requests
    again = run("pipeline", "stop", "nile")
    assert again.status == 1
    assert "nile is not running: it is stopped" in again.err
    unknown = run("pipeline", "status", "rhine")
    assert unknown.status == 1
    assert "these brokers have no status of a pipeline 'rhine'" in unknown.err


def test_a_pipeline_runs_without_brokers_that_take_its_status(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    from moldau.peer.errors import Refused
    from moldau.wire.errors import Error

    asked = threading.Event()

    def refuse(self: Any) -> None:
        asked.set()
        raise Refused(int(Error.TOPIC_AUTHORIZATION_FAILED), "topic '__moldau_pipelines'")

    monkeypatch.setattr(StatusTopic, "require", refuse)
    pipeline = scripted(tmp_path, until_stopped, name="po", bootstrap="127.0.0.1:1")
    with supervised(pipeline):
        assert asked.wait(60)
        until(lambda: "could not write the status" in caplog.text, "a warning")
    assert caplog.text.count("could not write the status") == 1
    assert "could not write the status of pipeline po to topic __moldau_pipelines" in caplog.text
