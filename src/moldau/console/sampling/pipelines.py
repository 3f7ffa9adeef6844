"""Pipelines: what those that run say of themselves, in the topic of their statuses."""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from typing import Any

import msgspec

from moldau.console.records import read_all
from moldau.console.sampling.state import bounds, read_state
from moldau.peer.cluster import Cluster
from moldau.records.record import Record
from moldau.wire.errors import Error

TOPIC = "__moldau_pipelines"
# What a status says while its pipeline should be saying something again.
_ALIVE = ("starting", "running", "restarting")
_MISSED = 3
# A record that deletes another may be compacted away later; Kafka keeps it for a day by default.
_TOMBSTONES_LAST_S = 3600.0


class PipelineSink(msgspec.Struct):
    """A sink as its pipeline tells of it. `path` is that of a lake table: its folder or, for an
    Iceberg table of a local warehouse, the warehouse's with the table's name."""

    name: str
    state: str
    rows_per_s: float | None
    batch_ms: float | None
    lag: int | None
    dead_letters: int | None
    last_error: dict[str, Any] | None
    type: str
    target: str | None
    path: str | None


class PipelineInfo(msgspec.Struct):
    """A pipeline as it last said; `state` is lost if it should have said something since.

    `more` is its whole status, with all that it tells.
    """

    name: str
    state: str
    sinks: list[PipelineSink]
    sql: dict[str, str]
    seen_ms: int
    last_error: dict[str, Any] | None
    more: dict[str, Any]


class PipelineStatuses:
    """What pipelines have said last. Each reading goes on where the one before it stopped, and asks
    the brokers for records every time, so that they check the reader's rights. Any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._forget("")

    def read(self, cluster: Cluster) -> list[PipelineInfo]:
        """Return what pipelines have said last, by name; none if we may not see the topic."""
        with self._lock:
            self._go_on(cluster)
            found = []
            for _, status in sorted(self._last.items()):
                with suppress(KeyError, TypeError, ValueError):
                    found.append(_info(status))
            return found

    def _forget(self, topic_id: str) -> None:
        self._topic_id = topic_id
        self._read_at = time.monotonic()
        # By partition, the offset to go on from.
        self._following: dict[int, int] = {}
        self._last: dict[bytes, dict[str, Any]] = {}

    def _go_on(self, cluster: Cluster) -> None:
        state = read_state(cluster, [TOPIC])
        topic = state.topics[TOPIC]
        if topic.error in (Error.UNKNOWN_TOPIC_OR_PARTITION, Error.TOPIC_AUTHORIZATION_FAILED):
            self._forget("")
            return
        known = bounds(cluster, state, state.places())
        now = time.monotonic()
        fits = all(
            start <= self._following.get(index, start) <= end
            for (_, index), (start, end) in known.items()
        )
        if not fits or topic.id != self._topic_id or now - self._read_at > _TOMBSTONES_LAST_S:
            self._forget(topic.id)
        self._read_at = now
        for (_, index), (start, _) in known.items():
            following = self._following.get(index, start)
            for record, _ in read_all(cluster, TOPIC, index, following):
                self._take(record)
                self._following[index] = record.offset + 1

    def _take(self, record: Record) -> None:
        if record.key is None:
            return
        status: Any = None
        with suppress(msgspec.DecodeError):
            status = msgspec.json.decode(bytes(record.value or b"null"))
        if isinstance(status, dict) and status.get("kind") == "status":
            self._last[bytes(record.key)] = status
        else:
            self._last.pop(bytes(record.key), None)


def _info(status: dict[str, Any]) -> PipelineInfo:
    now = time.time() * 1000
    seen = int(status["at_ms"])
    state = str(status["state"])
    if state in _ALIVE and now - seen > _MISSED * int(status.get("every_ms") or 10_000):
        state = "lost"
    sinks = [
        PipelineSink(
            str(each["name"]),
            "lost" if state == "lost" else str(each.get("state", "")),
            each.get("rows_per_s"),
            each.get("batch_ms"),
            each.get("lag"),
            each.get("dead_letters"),
            each.get("last_error"),
            str(each.get("type", "")),
            each.get("target"),
            _path(each),
        )
        for each in status.get("sinks", ())
    ]
    return PipelineInfo(
        str(status["name"]),
        state,
        sinks,
        dict(status.get("sql") or {}),
        seen,
        status.get("last_error"),
        status,
    )


def _path(sink: dict[str, Any]) -> str | None:
    warehouse, table = sink.get("warehouse"), sink.get("target")
    if warehouse and table:
        return f"{warehouse}/{table}"
    return sink.get("path")
