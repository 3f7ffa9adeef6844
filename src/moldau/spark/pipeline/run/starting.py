"""Starting the queries of a pipeline: where each resumes, and with which offsets."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from typing import TYPE_CHECKING

from moldau.spark.errors import log
from moldau.spark.pipeline.errors import PipelineError, Problem
from moldau.spark.pipeline.file.file import PipelineFile
from moldau.spark.pipeline.file.settings import LakeSinkSettings
from moldau.spark.pipeline.plan.lake_sinks import committed
from moldau.spark.pipeline.plan.plan import Plan, PlannedSink
from moldau.spark.pipeline.plan.sinks import Writer
from moldau.spark.pipeline.plan.topics import partitions_of
from moldau.spark.pipeline.run.checkpoint import Checkpoint
from moldau.spark.pipeline.run.last_windows import finish_copy, prepare_copy
from moldau.spark.pipeline.run.lost_processes import lost_process
from moldau.spark.pipeline.run.running import Running, failure, is_gone, without_java

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

    from moldau.spark.lake import Offsets

# Spark's status of a query while a source may still fail to start.
WITHOUT_SOURCES = ("Initializing", "Getting offsets")
SOURCES_WITHIN_S = 30.0
START_TRIES = 6


def start_problems(file: PipelineFile, plan: Plan, checkpoint: Checkpoint) -> list[Problem]:
    """Find what keeps the queries from starting: existing tables, and the checkpoint.

    Nothing is changed.
    """
    problems = plan.table_problems()
    if problems:
        return problems
    try:
        checkpoint.require_same({name: sink.sources for name, sink in plan.sinks.items()})
    except PipelineError as problem:
        return list(problem.problems)
    for name, sink in plan.sinks.items():
        try:
            if not checkpoint.has_progress(name):
                _offsets_of_table(file, sink)
        except PipelineError as problem:
            problems += problem.problems
        except Exception as problem:
            problems += failure(file, name, problem).problems
    return problems


def start_queries(file: PipelineFile, plan: Plan, checkpoint: Checkpoint, once: bool) -> Running:
    """Start a query for each sink; all of them run, or none."""
    problems = plan.table_problems()
    if problems:
        raise PipelineError(*problems)
    sources = {name: sink.sources for name, sink in plan.sinks.items()}
    checkpoint.acquire(sources, plan.read_as())
    running = Running(file, plan, checkpoint)
    running.restart = lambda name, is_new: _start_query(
        # A new plan starts as patiently as the first.
        running,
        running.plan.sinks[name],
        once,
        tries=START_TRIES if is_new else 1,
    )
    running.is_bounded = once
    try:
        for name, sink in plan.sinks.items():
            try:
                _start_query(running, sink, once)
            except PipelineError:
                raise
            except Exception as problem:
                if is_gone(problem):
                    raise without_java(problem) from None
                raise failure(file, name, problem) from None
    except BaseException:
        running.stop(finish=False)
        raise
    return running


def emit_last_windows(running: Running) -> None:
    """Write the windows and joins that are still open, as they stand, unless that was done."""
    for name, sink in running.plan.sinks.items():
        if not sink.is_stateful or sink.mode != "append":
            continue
        if not running.checkpoint.is_local:
            log.warning(
                "the open windows of sink %s stay in its checkpoint, because it is "
                "not in a local folder",
                name,
            )
            continue
        copy = prepare_copy(running.checkpoint, name)
        if copy is None:
            continue
        writer = sink.writer
        # Another writer to the table's log: the copy's batch is not the next one of the query.
        last = Writer(writer.file, name, writer.store, f"{writer.app_id}/last windows")
        for attempt in range(START_TRIES):
            try:
                query = last.start(
                    running.plan.frame(sink, {}), sink.mode, str(copy), {"once": True}, is_last=True
                )
                query.awaitTermination()
                break
            except Exception as problem:
                cause = last.outcome.failure or problem
                if attempt == START_TRIES - 1 or not lost_process(query, last.outcome.failure):
                    raise failure(running.file, name, cause) from None
                last.outcome.failure = None
        finish_copy(running.checkpoint, name)
        progress = running.progress[name]
        if progress.written is not None:
            written = progress.written + last.outcome.rows
            running.progress[name] = replace(progress, written=written)


def _start_query(running: Running, sink: PlannedSink, once: bool, tries: int = START_TRIES) -> None:
    file, checkpoint, name = running.file, running.checkpoint, sink.writer.name
    begun = checkpoint.start_of(name) if checkpoint.is_local else None
    starts: dict[str, str] = {}
    if not checkpoint.has_progress(name):
        checkpoint.drop_drafts(name)
        begun = _offsets_of_table(file, sink)
        if begun is not None:
            starts, begun = _starting_offsets(file, sink, begun)
        checkpoint.set_start(name, begun)
    elif begun is not None and checkpoint.last_committed(name) is None:
        # The first batch was planned and not finished: it begins where it did.
        starts, _ = _starting_offsets(file, sink, begun)
    trigger = sink.writer.settings.trigger or file.settings.general.trigger
    frame = running.plan.frame(sink, starts)
    for attempt in range(tries):
        query = sink.writer.start(
            frame,
            sink.mode,
            checkpoint.of_sink(name),
            {"availableNow": True} if once else {"processingTime": trigger},
            begun,
        )
        if attempt == tries - 1 or _is_up(query):
            break
    running.add(name, query)


def _is_up(query: StreamingQuery) -> bool:
    """Wait until a query has its sources; if it fails, return whether to start it again.

    Spark gives each source's new Python process ten seconds to answer, which a busy machine may
    not keep; one at a time it does so sooner, and a query that has not read yet can start again.
    """
    deadline = time.monotonic() + SOURCES_WITHIN_S
    while query.isActive and query.status["message"].startswith(WITHOUT_SOURCES):
        if time.monotonic() > deadline:
            break
        time.sleep(0.05)
    return lost_process(query) is None


def _offsets_of_table(file: PipelineFile, sink: PlannedSink) -> Offsets | None:
    """Return where a lake table says to go on when the checkpoint is lost."""
    settings = sink.writer.settings
    if not isinstance(settings, LakeSinkSettings):
        return None
    found = committed(file, settings, sink.writer.target, sink.writer.app_id)
    if found is None:
        return None
    batch, offsets = found
    what = f"the checkpoint of sink {sink.writer.name} is lost, and its table has batch {batch}"
    if not sink.is_stateful:
        log.warning("%s: resuming at %s", what, offsets.starting_offsets())
        return offsets
    if sink.mode == "append":
        raise PipelineError(
            file.problem(
                f"{what}. Its windows were in the checkpoint, so it cannot resume, "
                "and starting again would write rows twice; restore the "
                "checkpoint, or set another 'path', or set 'keys' to replace rows "
                "by",
                "sinks",
                sink.writer.name,
            )
        )
    log.warning("%s: recomputing everything from the start of its sources", what)
    return None


def _starting_offsets(
    file: PipelineFile, sink: PlannedSink, known: Offsets
) -> tuple[dict[str, str], Offsets]:
    """Return the option of each source to go on after these, and the same with partitions new
    since."""
    from moldau.spark.lake import Offsets

    starts: dict[str, str] = {}
    begun: dict[str, dict[int, int]] = {}
    for source in sink.sources:
        offsets = {
            topic: marks | known.ends.get(topic, {})
            for topic, marks in partitions_of(file, source).items()
        }
        starts[source] = json.dumps(
            {t: {str(p): offset for p, offset in ps.items()} for t, ps in offsets.items()}
        )
        begun |= {t: {p: max(o, 0) for p, o in ps.items()} for t, ps in offsets.items()}
    return starts, Offsets.at(begun)
