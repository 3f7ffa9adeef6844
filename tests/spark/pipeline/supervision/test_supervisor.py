"""Supervisors: when a pipeline is started again, and what others are told."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest

from moldau.client.pipelines.status import PipelineStatus, RecordPlace
from moldau.spark.pipeline import PipelineError
from moldau.spark.pipeline.supervision.pauses import Pauses
from moldau.spark.pipeline.supervision.supervisor import Supervisor
from tests.spark.pipeline.supervision.scripted import (
    Scripted,
    ending,
    failing,
    scripted,
    unable,
    until_stopped,
)

QUIET = "status = false\n"


def supervisor(pipeline: Scripted, told: list[PipelineStatus], **more: Any) -> Supervisor:
    return Supervisor(pipeline, lambda: None, on_status=told.append, **more)  # type: ignore[arg-type, return-value]


def states(told: list[PipelineStatus]) -> list[str]:
    """The states, each as long as it lasted once."""
    found: list[str] = []
    for each in told:
        if found[-1:] != [each.state]:
            found.append(each.state)
    return found


def test_pauses_grow_up_to_a_limit_and_begin_anew_after_a_finished_batch() -> None:
    pauses = Pauses(limit=5, first_s=1, longest_s=5)
    assert [pauses.after_failure(False) for _ in range(6)] == [1, 2, 4, 5, 5, None]
    assert pauses.after_failure(True) == 1
    assert Pauses(limit=0, first_s=1, longest_s=5).after_failure(True) is None


def test_a_pipeline_that_fails_is_started_again_and_its_counts_go_on(tmp_path: Path) -> None:
    told: list[PipelineStatus] = []
    pipeline = scripted(tmp_path, failing(rows=3), failing(), ending(4), more=QUIET)
    done = supervisor(pipeline, told).run()
    assert (done["raw"].rows, done["raw"].written) == (7, 7)
    assert states(told) == [
        "running", "restarting", "running", "restarting", "running", "done",
    ]  # fmt: skip
    assert told[-1].restarts == 2
    assert told[-1].sinks[0].rows == 7
    assert told[-1].sinks[0].path == str(tmp_path / "lake")
    assert told[-1].sql == {"names": "SELECT upper(name) AS name FROM events"}
    # What went wrong stays to be seen.
    assert told[-1].last_error is not None
    waiting = next(each for each in told if each.state == "restarting")
    assert waiting.next_start_ms is not None


def test_after_too_many_failures_in_a_row_the_last_one_is_raised(tmp_path: Path) -> None:
    told: list[PipelineStatus] = []
    pipeline = scripted(
        tmp_path, failing(rows=1), failing(), failing("the third one"), ending(1), more=QUIET
    )
    with pytest.raises(PipelineError, match="the third one"):
        supervisor(pipeline, told).run()
    assert len(pipeline.starts) == 1
    assert told[-1].state == told[-1].sinks[0].state == "failed"


def test_a_first_start_that_fails_is_not_tried_again_and_alerts_nobody(tmp_path: Path) -> None:
    told: list[PipelineStatus] = []
    more = QUIET + f'alert = "touch {tmp_path}/alerted"\n'
    with pytest.raises(PipelineError, match="no broker answered"):
        supervisor(scripted(tmp_path, unable, ending(1), more=more), told).run()
    assert states(told) == ["failed"]
    assert not (tmp_path / "alerted").exists()
    # Later, when nobody watches, it is.
    again = scripted(tmp_path, failing(), unable, ending(1), more=more)
    assert supervisor(again, told).run()["raw"].rows == 1


@pytest.mark.parametrize(
    ("detail", "part"),
    [
        ("moldau.spark.formats.errors.BadRecord: the record at ...", "sink raw"),
        ("Traceback ... moldau.spark.errors.DataLoss: offsets are gone", "source events"),
        ("[DIVIDE_BY_ZERO] Division by zero", "table names"),
    ],
)
def test_what_would_fail_again_is_not_started_again(tmp_path: Path, detail: str, part: str) -> None:
    told: list[PipelineStatus] = []
    message = "the record at my-events-2 offset 17 does not parse: no"
    pipeline = scripted(tmp_path, failing(message, detail=detail, part=part), more=QUIET)
    with pytest.raises(PipelineError):
        supervisor(pipeline, told).run()
    assert states(told) == ["running", "failed"]
    error = told[-1].last_error
    assert error is not None
    assert (error.part, error.record) == (
        part,
        RecordPlace(topic="my-events", partition=2, offset=17),
    )
    assert told[-1].sinks[0].last_error == (error if part == "sink raw" else None)


def test_bounded_runs_are_not_started_again(tmp_path: Path) -> None:
    pipeline = scripted(tmp_path, failing(rows=1), ending(1), more=QUIET)
    with pytest.raises(PipelineError, match="gone"):
        supervisor(pipeline, [], once=True).run()


def test_a_pipeline_can_be_stopped_while_it_waits_for_its_next_start(tmp_path: Path) -> None:
    stop = threading.Event()
    told: list[PipelineStatus] = []
    pipeline = scripted(tmp_path, failing(rows=5), ending(1), more=QUIET)
    pauses = {"restarts.first_pause": "10 hours", "restarts.longest_pause": "10 hours"}
    slow = Scripted.load(pipeline.file.path, overrides=pauses)
    assert isinstance(slow, Scripted)
    slow.starts = pipeline.starts

    def follow(status: PipelineStatus) -> None:
        told.append(status)
        if status.state == "restarting":
            stop.set()

    waiting = Supervisor(slow, lambda: None, stop=stop, on_status=follow)  # type: ignore[arg-type, return-value]
    assert waiting.run()["raw"].rows == 5
    assert told[-1].state == "stopped"
    assert len(slow.starts) == 1


def test_the_alert_command_gets_the_first_failure_of_a_row_and_the_last(tmp_path: Path) -> None:
    script = tmp_path / "alert.sh"
    script.write_text(f'echo "$MOLDAU_STATE: $MOLDAU_ERROR" >> {tmp_path}/log; cat > {tmp_path}/in')
    more = QUIET + f'alert = "sh {script}"\n'
    pipeline = scripted(tmp_path, failing("one"), failing("two"), failing("it's three"), more=more)
    with pytest.raises(PipelineError, match="three"):
        supervisor(pipeline, []).run()
    assert (tmp_path / "log").read_text() == "restarting: one\nfailed: it's three\n"
    status = json.loads((tmp_path / "in").read_text())
    assert (status["name"], status["state"], status["restarts"]) == ("test", "failed", 2)


def test_an_alert_command_that_fails_changes_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    more = QUIET + 'alert = "echo no mail >&2; exit 7"\n'
    pipeline = scripted(tmp_path, failing(), ending(2), more=more)
    assert supervisor(pipeline, []).run()["raw"].rows == 2
    assert "the alert command failed with status 7: no mail" in caplog.text


def test_stopping_is_no_failure(tmp_path: Path) -> None:
    stop = threading.Event()
    told: list[PipelineStatus] = []
    threading.Timer(0.05, stop.set).start()
    supervisor(scripted(tmp_path, until_stopped, more=QUIET), told, stop=stop).run()
    assert states(told) == ["running", "stopped"]
