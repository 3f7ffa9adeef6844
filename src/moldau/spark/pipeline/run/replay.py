"""A bounded run over the past, as a batch."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from moldau.spark.errors import log
from moldau.spark.pipeline.errors import PipelineError, Problem, nearest
from moldau.spark.pipeline.file.file import PipelineFile
from moldau.spark.pipeline.file.settings import LakeSinkSettings, ParquetSink
from moldau.spark.pipeline.plan.lake_sinks import is_there
from moldau.spark.pipeline.plan.plan import Plan, PlannedSink
from moldau.spark.pipeline.plan.sinks import Writer
from moldau.spark.pipeline.run.progress import SinkProgress
from moldau.spark.pipeline.run.running import failure

if TYPE_CHECKING:
    from pyspark.sql import Observation

# Spark reports what it counted a moment after the work is done.
COUNTED_WITHIN_S = 5.0


def replay_sinks(
    file: PipelineFile,
    plan: Plan,
    from_: datetime | None,
    until: datetime | None,
    *,
    sinks: Sequence[str],
    into: str | None,
    append: bool,
    on_sink: Callable[[SinkProgress], None] | None,
) -> dict[str, SinkProgress]:
    """Write each sink in turn; PipelineError before any is written if one must not be."""
    chosen = _chosen(plan, sinks, into)
    writers = {name: _writer(file, sink, from_, until, into) for name, sink in chosen.items()}
    for writer in writers.values():
        _refuse_stream_folder(file, writer)
        if not append:
            _require_room(file, writer)
    done: dict[str, SinkProgress] = {}
    for name, sink in chosen.items():
        progress = SinkProgress(name)
        if on_sink is not None:
            on_sink(progress)
        done[name] = _replay(file, plan, sink, writers[name], _ms(from_), _ms(until))
        if on_sink is not None:
            on_sink(done[name])
    return done


def _replay(
    file: PipelineFile,
    plan: Plan,
    sink: PlannedSink,
    writer: Writer,
    from_ms: int | None,
    until_ms: int | None,
) -> SinkProgress:
    begun = time.monotonic()
    try:
        frame, counted = plan.bounded_frame(sink, writer, from_ms, until_ms)
        writer.write_once(frame)
    except PipelineError:
        raise
    except Exception as problem:
        raise failure(file, writer.name, problem) from None
    if writer.outcome.skipped:
        log.warning("%s already has this span, so nothing was added", writer.target)
    took_s = time.monotonic() - begun
    counts = [_result(each) for each in counted.values()]
    rows = sum(int(each.get("records", 0)) for each in counts)
    return SinkProgress(
        writer.name,
        batch=0,
        batch_rows=rows,
        batch_s=took_s,
        rows_per_s=rows / took_s,
        rows=rows,
        written=writer.outcome.rows if writer.counts_rows else None,
        dead_letters=sum(int(each.get("dead_letters", 0)) for each in counts),
        is_done=True,
    )


def _result(counted: Observation) -> dict[str, Any]:
    """Return what was counted; nothing if Spark did not need to read the source."""
    future = counted._jo.future()  # type: ignore[union-attr]
    deadline = time.monotonic() + COUNTED_WITHIN_S
    while not future.isCompleted():
        if time.monotonic() > deadline:
            return {}
        time.sleep(0.01)
    return counted.get


def _chosen(plan: Plan, sinks: Sequence[str], into: str | None) -> dict[str, PlannedSink]:
    for name in sinks:
        if name not in plan.sinks:
            raise PipelineError(Problem(f"there is no sink {name!r}{nearest(name, plan.sinks)}"))
    chosen = {name: plan.sinks[name] for name in sinks} if sinks else plan.sinks
    if into is not None and len(chosen) != 1:
        raise PipelineError(
            Problem(f"another target needs exactly one sink; choose one of {', '.join(chosen)}")
        )
    return chosen


def _writer(
    file: PipelineFile,
    sink: PlannedSink,
    from_: datetime | None,
    until: datetime | None,
    into: str | None,
) -> Writer:
    settings = sink.writer.settings
    now = datetime.now(UTC).isoformat()
    # The same span added to the same table a second time changes nothing. One that has no end is
    # another every time; so is a replay that replaces rows, perhaps by other SQL.
    span = f"{from_.isoformat() if from_ else ''}/{until.isoformat() if until else now}"
    if isinstance(settings, LakeSinkSettings) and _replaces(settings):
        span = f"{span}/{now}"
    app_id = f"{sink.writer.app_id}/replay/{span}"
    return Writer(file, sink.writer.name, sink.writer.store, app_id, into)


def _replaces(sink: LakeSinkSettings) -> bool:
    return bool(sink.keys) or sink.mode == "complete"


def _require_room(file: PipelineFile, writer: Writer) -> None:
    """Refuse to add rows to what has some: those of the span are probably among them."""
    sink = writer.settings
    if isinstance(sink, LakeSinkSettings) and not _replaces(sink):
        is_empty = not is_there(file, sink, writer.target)
    elif isinstance(sink, ParquetSink) and "://" not in writer.target:
        folder = Path(writer.target)
        is_empty = not folder.exists() or not any(folder.iterdir())
    else:
        return
    if not is_empty:
        raise PipelineError(
            file.problem(
                f"{writer.target} has rows, and a replay would add those of its span, perhaps a "
                "second time; choose another target (--into), or allow it (--append)",
                "sinks",
                writer.name,
            )
        )


def _refuse_stream_folder(file: PipelineFile, writer: Writer) -> None:
    if isinstance(writer.settings, ParquetSink) and Path(writer.target, "_spark_metadata").exists():
        raise PipelineError(
            file.problem(
                f"{writer.target} is the folder of a stream, where Spark sees only that stream's "
                "files; choose another target (--into)",
                "sinks",
                writer.name,
            )
        )


def _ms(moment: datetime | None) -> int | None:
    return None if moment is None else int(moment.timestamp() * 1000)
