"""The status of a pipeline, made from its file and from how far its sinks have come."""

from __future__ import annotations

import getpass
import os
import socket
import time
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from uuid import uuid4

import msgspec

import moldau
from moldau.client.pipelines.status import PipelineStatus, SinkStatus, SourceStatus, State
from moldau.spark.pipeline.file.file import PipelineFile
from moldau.spark.pipeline.file.settings import AnySink, IcebergSinkSettings, TopicSink
from moldau.spark.pipeline.plan.topics import dead_letter_topic
from moldau.spark.pipeline.run.progress import SinkProgress


def first_status(file: PipelineFile, *, once: bool) -> PipelineStatus:
    """Return the status of a pipeline that is about to start in this process."""
    settings = file.settings
    now_ms = int(time.time() * 1000)
    return PipelineStatus(
        name=settings.name,
        run=uuid4().hex,
        state="starting",
        host=socket.gethostname(),
        pid=os.getpid(),
        user=_user(),
        started_ms=now_ms,
        at_ms=now_ms,
        file=str(file.path.resolve()),
        mode="once" if once else "continuous",
        spark=_version("pyspark"),
        moldau=moldau.__version__,
        restart_limit=0 if once else settings.general.restarts.limit,
        sources=[
            SourceStatus(
                name=name,
                topics=source.topics,
                pattern=source.pattern,
                format=source.format,
                dead_letters=dead_letter_topic(file, name),
            )
            for name, source in settings.sources.items()
        ],
        sql={name: table.sql for name, table in settings.tables.items()},
        steps={name: step.python for name, step in settings.steps.items()},
        sinks=[_first_sink(file, name, sink) for name, sink in settings.sinks.items()],
    )


def with_state(status: PipelineStatus, state: State, **more: object) -> PipelineStatus:
    """Return the status with another state, of the pipeline and of all its sinks."""
    sinks = [msgspec.structs.replace(sink, state=state) for sink in status.sinks]
    return msgspec.structs.replace(status, state=state, sinks=sinks, **more)


def with_progress(
    status: PipelineStatus, progress: SinkProgress, *, slow: bool = False
) -> PipelineStatus:
    """Return the status after one more batch of a sink."""
    sinks = [
        _with_progress(sink, progress, slow) if sink.name == progress.sink else sink
        for sink in status.sinks
    ]
    return msgspec.structs.replace(status, sinks=sinks)


def with_failed_sink(status: PipelineStatus) -> PipelineStatus:
    """Return the status with its last error at the sink that had it, if it was one."""
    error = status.last_error
    names: Mapping[str, str] = {f"sink {sink.name}": sink.name for sink in status.sinks}
    if error is None or error.part not in names:
        return status
    sinks = [
        msgspec.structs.replace(sink, last_error=error) if sink.name == names[error.part] else sink
        for sink in status.sinks
    ]
    return msgspec.structs.replace(status, sinks=sinks)


def _with_progress(sink: SinkStatus, progress: SinkProgress, slow: bool) -> SinkStatus:
    return msgspec.structs.replace(
        sink,
        state="running",
        batch=progress.batch,
        batch_rows=progress.batch_rows,
        batch_ms=round(progress.batch_s * 1000, 1),
        rows_per_s=round(progress.rows_per_s, 1),
        rows=progress.rows,
        written=progress.written,
        lag=progress.lag,
        dead_letters=progress.dead_letters,
        late_rows=progress.late_rows,
        open_rows=progress.open_rows,
        watermark=progress.watermark,
        slow=slow,
    )


def _first_sink(file: PipelineFile, name: str, sink: AnySink) -> SinkStatus:
    topic = sink.topic if isinstance(sink, TopicSink) else None
    written: str | None = getattr(sink, "path", None)
    path = None if written is None else file.resolve(written)
    # By its name in a catalog, which knows where it is.
    named: str | None = getattr(sink, "table", None)
    return SinkStatus(
        name=name,
        type=sink.type,
        from_=sink.from_,
        target=topic or path or named,
        path=path,
        topic=topic,
        warehouse=_warehouse(file, sink),
        mode=sink.mode,
        trigger=sink.trigger or file.settings.general.trigger,
    )


def _warehouse(file: PipelineFile, sink: AnySink) -> str | None:
    """Return the folder with the catalog of an Iceberg table; None for others and for topics."""
    if not isinstance(sink, IcebergSinkSettings) or sink.catalog:
        return None
    return file.resolve(sink.warehouse)


def _user() -> str | None:
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        # A container's user may have no name.
        return None


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""
