"""`moldau pipeline list|status|stop`: what running pipelines say of themselves."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from moldau.cli.options import DEFAULT_BOOTSTRAP, Bootstrap, Json
from moldau.cli.requests import connect_cluster
from moldau.cli.views.output import Failure, show, show_json, show_table

if TYPE_CHECKING:
    from moldau.client.pipelines.status import LastError, PipelineStatus

_POLL_S = 0.5

Name = Annotated[str, typer.Argument(metavar="NAME", help="The pipeline's name.")]


def list_pipelines(bootstrap: Bootstrap = DEFAULT_BOOTSTRAP, as_json: Json = False) -> None:
    """List the pipelines that run or have run on these brokers."""
    statuses = sorted(_statuses(bootstrap).values(), key=lambda each: each.name)
    now_ms = _now_ms()
    if as_json:
        show_json({"pipelines": [_as_json(each, now_ms) for each in statuses]})
        return
    if not statuses:
        show("no pipelines have run on these brokers", "dim", stderr=True)
        return
    rows = [
        (
            each.name,
            each.state_at(now_ms),
            len(each.sinks),
            f"{sum(sink.rows_per_s for sink in each.sinks):.0f}",
            _lag(each),
            sum(sink.dead_letters for sink in each.sinks),
            each.restarts,
            each.host,
            each.pid,
            _age(now_ms - each.at_ms),
        )
        for each in statuses
    ]
    show_table(
        (
            *("NAME", "STATE", "SINKS", "ROWS/S", "LAG", "DEAD LETTERS", "RESTARTS"),
            *("HOST", "PID", "SEEN"),
        ),
        rows,
    )


def status(name: Name, bootstrap: Bootstrap = DEFAULT_BOOTSTRAP, as_json: Json = False) -> None:
    """Show one pipeline: its state, its sinks, and what went wrong last."""
    found = _require(_statuses(bootstrap), name)
    now_ms = _now_ms()
    if as_json:
        show_json(_as_json(found, now_ms))
        return
    state = found.state_at(now_ms)
    show(f"{name}: {state}, process {found.pid} on {found.host}, since {_clock(found.started_ms)}")
    if found.restarts:
        limit = found.restart_limit
        show(f"started again {found.restarts} times; at most {limit} failures in a row")
    if found.next_start_ms is not None:
        show(f"starts again at {_clock(found.next_start_ms)}")
    if found.last_error is not None:
        show(f"last error at {_clock(found.last_error.at_ms)}: {_in_words(found.last_error)}")
    rows = [
        (
            sink.name,
            sink.state if state == found.state else state,
            sink.target or "-",
            sink.batch,
            f"{sink.batch_ms:.0f}",
            f"{sink.rows_per_s:.0f}",
            sink.rows,
            "-" if sink.lag is None else sink.lag,
            sink.dead_letters,
        )
        for sink in found.sinks
    ]
    show_table(
        ("SINK", "STATE", "TARGET", "BATCH", "MS", "ROWS/S", "READ", "LAG", "DEAD LETTERS"), rows
    )
    for sink in found.sinks:
        if sink.slow:
            show(f"{sink.name}: batches take longer than the trigger of {sink.trigger}")


def stop(
    name: Name,
    timeout: Annotated[
        float, typer.Option(metavar="S", help="Seconds to wait until it has stopped.")
    ] = 60.0,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: Json = False,
) -> None:
    """Stop a pipeline after its current batch, wherever it runs.

    The request goes through the brokers, so it works from any machine that reaches them.
    """
    from moldau.client.pipelines.status import LIVE, LOST
    from moldau.client.pipelines.status_topic import StatusTopic

    with connect_cluster(bootstrap) as cluster:
        topic = StatusTopic(cluster)
        found = _require(topic.read().pipelines, name)
        state = found.state_at(_now_ms())
        where = f"process {found.pid} on {found.host}"
        if state == LOST:
            raise Failure(
                f"{name} has not reported since {_clock(found.at_ms)}; it was {where}",
                "check whether that process still runs",
            )
        if state not in LIVE:
            raise Failure(f"{name} is not running: it is {state}")
        topic.ask_to_stop(name, found.run)
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline:
            now = topic.read().pipelines.get(name, found)
            if now.run != found.run or now.state not in LIVE:
                break
            time.sleep(_POLL_S)
        else:
            raise Failure(
                f"{name} was asked to stop, but still runs after {timeout:g} s ({where})",
                "it stops when its batch ends; `moldau pipeline status` shows when it has",
            )
    if as_json:
        show_json({"name": name, "state": now.state, "host": found.host, "pid": found.pid})
    else:
        show(f"{name} has stopped ({where})", "green")


def _statuses(bootstrap: str) -> dict[str, PipelineStatus]:
    from moldau.client.pipelines.status_topic import StatusTopic

    with connect_cluster(bootstrap) as cluster:
        return StatusTopic(cluster).read().pipelines


def _require(statuses: dict[str, PipelineStatus], name: str) -> PipelineStatus:
    if name not in statuses:
        raise Failure(
            f"these brokers have no status of a pipeline {name!r}",
            "see `moldau pipeline list`",
        )
    return statuses[name]


def _as_json(status: PipelineStatus, now_ms: int) -> dict[str, Any]:
    import msgspec

    content: dict[str, Any] = msgspec.to_builtins(status)
    return content | {"state": status.state_at(now_ms)}


def _lag(status: PipelineStatus) -> int | str:
    known = [sink.lag for sink in status.sinks if sink.lag is not None]
    return sum(known) if known else "-"


def _in_words(error: LastError) -> str:
    part = f"{error.part}: " if error.part else ""
    named = error.record is not None and str(error.record) not in error.message
    return part + error.message + (f" (record {error.record})" if named else "")


def _now_ms() -> int:
    return int(time.time() * 1000)


def _age(ms: int) -> str:
    seconds = max(ms, 0) // 1000
    for unit, length in (("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds // length} {unit} ago"
    return f"{seconds} s ago"


def _clock(ms: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(ms / 1000))
