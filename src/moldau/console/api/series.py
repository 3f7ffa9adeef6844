"""Series and events: charts over the last hours, and what changes while one looks."""

from __future__ import annotations

import asyncio
import time
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from moldau.console.api.cluster import may_see
from moldau.console.call import Call
from moldau.console.endpoint import Event, Stream, endpoint
from moldau.console.errors import invalid
from moldau.console.sampling.problems import Problem
from moldau.console.sampling.state import read_state
from moldau.peer.errors import PeerError
from moldau.peer.groups import Groups

_MOST_NAMES = 200
_MOST_WAITING = 100


class SeriesQuery(msgspec.Struct):
    """`names` are separated by commas, such as cluster.in_msgs,topic:orders.in_msgs."""

    names: str
    minutes: Annotated[int, Meta(ge=1, le=360)] = 60


class SeriesAnswer(msgspec.Struct):
    """One number for each time and series; null for a gap."""

    times: list[int]
    series: dict[str, list[float | None]]


class EventQuery(msgspec.Struct):
    """`series` are the names whose numbers the stream tells, separated by commas."""

    series: str = ""


@endpoint("GET", "api/series")
def get_series(call: Call, asked: SeriesQuery) -> SeriesAnswer:
    """Return the last minutes of some series."""
    names = _names(call, asked.names)
    since = int((time.time() - asked.minutes * 60) * 1000)
    times, series = call.console.watch.ring.read(names, since)
    return SeriesAnswer(times, series)


def _names(call: Call, text: str) -> list[str]:
    """Return the names that are asked for, of things that the visitor may see."""
    names = list(dict.fromkeys(name for name in text.split(",") if name))
    if len(names) > _MOST_NAMES:
        raise invalid(f"{len(names)} series are too many; ask for at most {_MOST_NAMES} at once")
    if call.is_own:
        return names
    topics: set[str] = set()
    groups: set[str] = set()
    if any(name.startswith("topic:") for name in names):
        topics = set(read_state(call.cluster).topics)
    if any(name.startswith("group:") for name in names):
        try:
            groups = {each.name for each in Groups(call.cluster).listed()}
        except PeerError:
            groups = set()
    seen = []
    for name in names:
        kind, colon, rest = name.partition(":")
        of = rest.rpartition(".")[0]
        if not colon or kind == "broker" or of in (topics if kind == "topic" else groups):
            seen.append(name)
    return seen


@endpoint("GET", "api/events", is_stream=True)
async def follow_events(call: Call, asked: EventQuery) -> Stream:
    """Follow what changes: events `changed`, `series` and `problems`."""
    loop = asyncio.get_running_loop()
    names = await loop.run_in_executor(call.console.threads, _names, call, asked.series)
    waiting: asyncio.Queue[tuple[str, Any]] = asyncio.Queue(_MOST_WAITING)

    def listener(event: str, data: Any) -> None:
        if waiting.full():
            # Whoever is so slow misses the oldest.
            waiting.get_nowait()
        waiting.put_nowait((event, data))

    stop = call.console.watch.listen(listener)
    try:
        yield Event("problems", await _seen(call, call.console.watch.problems))
        while True:
            event, data = await waiting.get()
            if event == "series":
                numbers = {name: data["numbers"].get(name) for name in names}
                data = {"at": data["at"], "numbers": numbers}
            elif event == "problems":
                data = await _seen(call, data)
            yield Event(event, data)
    finally:
        stop()


async def _seen(call: Call, problems: list[Problem]) -> list[Problem]:
    """Return the problems that the visitor may know of."""
    if call.is_own or not problems:
        return problems

    def look() -> list[Problem]:
        visitor = call.visitor
        with call.console.pool.borrowed(visitor.security, visitor.address) as cluster:
            state = read_state(cluster)
            return [each for each in problems if may_see(call, state, each)]

    try:
        return await asyncio.get_running_loop().run_in_executor(call.console.threads, look)
    except PeerError:
        return []
