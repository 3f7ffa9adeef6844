"""The status of a pipeline, and a request to it: the records of `__moldau_pipelines`. Without I/O.

The topic is compacted. The key of a status is the pipeline's name, that of a request the name with
`REQUEST` after it. Readers pass over kinds and fields that they do not know.
"""

from __future__ import annotations

from typing import Literal

import msgspec

TOPIC = "__moldau_pipelines"
VERSION = 1
REQUEST = "\0request"

State = Literal["starting", "running", "restarting", "stopped", "done", "failed"]
# The states of a pipeline that is alive, if it has said so lately.
LIVE: tuple[State, ...] = ("starting", "running", "restarting")
LOST = "lost"
# A live pipeline writes at least this often; it is lost when it has missed it three times.
EVERY_MS = 10_000
_MISSED = 3


class RecordPlace(msgspec.Struct, frozen=True, kw_only=True):
    """Where a record is."""

    topic: str
    partition: int
    offset: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition} offset {self.offset}"


class LastError(msgspec.Struct, frozen=True, kw_only=True):
    """What went wrong last, in one sentence, and the record that caused it, if that is known."""

    message: str
    at_ms: int
    part: str = ""
    line: int = 0
    record: RecordPlace | None = None


class SourceStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A source of a pipeline."""

    name: str
    topics: list[str] = []
    pattern: str | None = None
    format: str = ""
    dead_letters: str | None = None


class SinkStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A sink of a pipeline after its latest batch."""

    name: str
    type: str = ""
    from_: str = msgspec.field(name="from", default="")
    state: State = "starting"
    target: str | None = None
    # Of tables in the lake only, and of topics only.
    path: str | None = None
    topic: str | None = None
    # The folder of an Iceberg table's catalog, if that is a file in it.
    warehouse: str | None = None
    mode: str | None = None
    batch: int = -1
    batch_rows: int = 0
    batch_ms: float = 0.0
    rows_per_s: float = 0.0
    rows: int = 0
    written: int | None = None
    lag: int | None = None
    dead_letters: int = 0
    late_rows: int = 0
    open_rows: int = 0
    watermark: str = ""
    trigger: str = ""
    # Batches take longer than the trigger.
    slow: bool = False
    last_error: LastError | None = None


class PipelineStatus(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="status"):
    """A pipeline: one `run` of it is one life of its process."""

    version: int = VERSION
    name: str
    run: str
    state: State
    host: str = ""
    pid: int = 0
    user: str | None = None
    started_ms: int = 0
    at_ms: int = 0
    every_ms: int = EVERY_MS
    file: str = ""
    mode: Literal["continuous", "once"] = "continuous"
    spark: str = ""
    moldau: str = ""
    restarts: int = 0
    restart_limit: int = 0
    next_start_ms: int | None = None
    last_error: LastError | None = None
    sources: list[SourceStatus] = []
    sql: dict[str, str] = {}
    steps: dict[str, str] = {}
    sinks: list[SinkStatus] = []

    def state_at(self, now_ms: int) -> str:
        """Return the state as of now: a live pipeline that has been silent for long is lost."""
        is_silent = now_ms - self.at_ms > _MISSED * self.every_ms
        return LOST if self.state in LIVE and is_silent else self.state


class Request(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="request"):
    """Somebody wants a pipeline to stop: any run of it, or the one that is named."""

    version: int = VERSION
    name: str
    run: str | None = None
    request: Literal["stop"] = "stop"
    by: str = ""
    at_ms: int = 0

    def is_for(self, name: str, run: str, started_ms: int) -> bool:
        if self.name != name or self.run not in (None, run):
            return False
        # A request without a run is for the one that ran when it was made.
        return self.run == run or self.at_ms >= started_ms


_decode = msgspec.json.Decoder(PipelineStatus | Request).decode
encode = msgspec.json.Encoder().encode


class Statuses:
    """All statuses and requests, after the records of the topic were applied in their order."""

    def __init__(self) -> None:
        self.pipelines: dict[str, PipelineStatus] = {}
        self.requests: dict[str, Request] = {}

    def apply(self, key: bytes, value: bytes | None) -> None:
        name = key.decode(errors="replace")
        if value is None:
            self.pipelines.pop(name, None)
            self.requests.pop(name.removesuffix(REQUEST), None)
            return
        try:
            found = _decode(value)
        except msgspec.MsgspecError:
            # Of a later version, or none of ours.
            return
        if isinstance(found, Request):
            self.requests[found.name] = found
        else:
            self.pipelines[found.name] = found
