"""Pipelines: what those that run say of themselves, in the topic of their statuses."""

from __future__ import annotations

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


class PipelineSink(msgspec.Struct):
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


def read_pipelines(cluster: Cluster) -> list[PipelineInfo]:
    """Return what pipelines have said last, by name."""
    state = read_state(cluster, [TOPIC])
    if state.topics[TOPIC].error == Error.UNKNOWN_TOPIC_OR_PARTITION:
        return []
    if state.topics[TOPIC].error == Error.TOPIC_AUTHORIZATION_FAILED:
        return []
    last: dict[bytes, Record] = {}
    for (topic, index), (start, _) in bounds(cluster, state, state.places()).items():
        for record, _ in read_all(cluster, topic, index, start):
            if record.key is not None:
                last[bytes(record.key)] = record
    found = []
    for _, record in sorted(last.items()):
        if record.value is not None:
            with suppress(msgspec.DecodeError, KeyError, TypeError, ValueError):
                status = msgspec.json.decode(bytes(record.value))
                if status.get("kind") == "status":
                    found.append(_info(status))
    return found


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
            each.get("path"),
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
