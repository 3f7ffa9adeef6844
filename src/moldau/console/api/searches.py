"""Searches: millions of records looked through by a filter, in a worker process."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta
from starlette.responses import Response

from moldau.console.api.messages import shower
from moldau.console.browse import Bounds, topic_bounds
from moldau.console.call import Call
from moldau.console.endpoint import Done as Answered
from moldau.console.endpoint import Event, Stream, endpoint
from moldau.console.errors import ApiError, invalid
from moldau.console.sampling.state import ClusterState, offsets_at, read_topic
from moldau.console.search.asking import messages, new_request
from moldau.console.search.parquet import MODULE
from moldau.console.search.process import Search, require_extra
from moldau.console.search.request import (
    LENGTH,
    Failed,
    FoundRecord,
    Range,
    encode,
)

_WITHIN_S = 600.0
_EXPORT_WITHIN_S = 120
_AT_ONCE = 200
MOST = 10_000


class NewSearch(msgspec.Struct, rename={"from_": "from"}):
    """What to look for. `from` and `until` are beginning, end, offset:N or time:MS.

    The filter is an SQL expression over key, value, value.FIELD, headers.NAME, timestamp,
    partition, offset and size; empty, everything passes.
    """

    topic: Annotated[str, Meta(min_length=1, max_length=249)]
    filter: Annotated[str, Meta(max_length=10_000)] = ""
    from_: str = "beginning"
    until: str = "end"
    partitions: list[Annotated[int, Meta(ge=0)]] | None = None
    limit: Annotated[int, Meta(ge=1, le=MOST)] = 1000


class Begun(msgspec.Struct):
    """The search's name, under which it can be followed."""

    id: str


class SearchedTopic(msgspec.Struct):
    topic: str


class ExportQuery(msgspec.Struct):
    format: Literal["json", "parquet"] = "json"


@endpoint("POST", "api/searches", status=201, changes=False)
def begin_search(call: Call, asked: NewSearch) -> Begun:
    """Begin a search; its events tell what is found."""
    require_extra()
    state, described = read_topic(call.cluster, asked.topic)
    chosen = asked.partitions
    strange = [index for index in chosen or () if index not in described.partitions]
    if strange:
        raise ApiError(404, "not_found", f"{asked.topic} has no partition {strange[0]}")
    known = topic_bounds(call.cluster, state, asked.topic, None)
    if chosen is not None:
        known = {index: both for index, both in known.items() if index in chosen}
    starts = places(call, state, asked.topic, known, asked.from_)
    ends = places(call, state, asked.topic, known, asked.until)
    ranges = [
        Range(index, starts[index], max(starts[index], ends[index])) for index in sorted(known)
    ]
    request = new_request(
        call.console.settings,
        call.visitor,
        asked.topic,
        ranges,
        asked.filter,
        asked.limit,
        _WITHIN_S,
    )
    begun = call.console.in_loop(call.console.begin_search(call.visitor, request))
    return Begun(begun.id)


def places(call: Call, state: ClusterState, topic: str, known: Bounds, text: str) -> dict[int, int]:
    """Return the offset that a text means in each partition, within what there is."""
    kind, _, rest = text.partition(":")
    if text == "beginning":
        return {index: start for index, (start, _) in known.items()}
    if text == "end":
        return {index: end for index, (_, end) in known.items()}
    if kind == "offset" and rest.isdecimal() and len(rest) < 19:
        return {index: min(max(int(rest), lo), hi) for index, (lo, hi) in known.items()}
    if kind == "time" and rest.isdecimal() and len(rest) < 17:
        found = offsets_at(call.cluster, state, {(topic, index): int(rest) for index in known})
        return {
            index: at if (at := found.get((topic, index), -1)) >= 0 else end
            for index, (_, end) in known.items()
        }
    raise invalid(f"{text!r} is not beginning, end, offset:N or time:MS")


@endpoint("POST", "api/searches/ready", changes=False)
def prepare_search(call: Call, asked: SearchedTopic) -> Answered:
    """Have a process ready for a search of a topic that somebody is about to begin."""
    require_extra()
    read_topic(call.cluster, asked.topic)
    call.console.in_loop(call.console.searches.spare.renew())
    return Answered()


@endpoint("GET", "api/searches/{search}/events", is_stream=True)
async def follow_search(call: Call) -> Stream:
    """Follow a search: events `progress`, `found`, `done` and `failed`."""
    search = call.console.searches.find(call.visitor, call.path["search"])
    show = shower(call, search.request.topic)
    told = 0
    last: Any = None
    loop = asyncio.get_running_loop()
    yield Event("progress", _progress(search))
    while True:
        changed = search.changed
        while told < len(search.records):
            some = search.records[told : told + _AT_ONCE]
            told += len(some)
            shown = await loop.run_in_executor(call.console.threads, messages, show, some)
            yield Event("found", shown)
        if search.progress is not None and search.progress is not last:
            last = search.progress
            yield Event("progress", _progress(search))
        end = search.end
        if end is not None and told == len(search.records):
            if isinstance(end, Failed):
                code = "bad_filter" if end.is_bad_filter else "failed"
                yield Event("failed", {"message": end.message, "code": code})
            else:
                yield Event("done", {"reason": end.reason})
            return
        await changed.wait()


def _progress(search: Search) -> dict[str, int]:
    known = search.progress
    if known is None:
        total = sum(each.end - each.start for each in search.request.ranges)
        return {
            "scanned": 0,
            "total": total,
            "bytes": 0,
            "found": 0,
            "elapsed_ms": 0,
            "unreadable": 0,
        }
    return {
        "scanned": known.scanned,
        "total": known.total,
        "bytes": known.bytes,
        "found": known.found,
        "elapsed_ms": known.elapsed_ms,
        "unreadable": known.unreadable,
    }


@endpoint("DELETE", "api/searches/{search}", changes=False)
def cancel_search(call: Call) -> Answered:
    """Cancel a search; what it found can still be exported."""
    search = call.console.searches.find(call.visitor, call.path["search"])
    call.console.in_loop(call.console.searches.cancel(search))
    return Answered()


@endpoint("GET", "api/searches/{search}/export", media_type="application/octet-stream")
def export_search(call: Call, asked: ExportQuery) -> Response:
    """Download what a search has found, as JSON or as Parquet."""
    search = call.console.searches.find(call.visitor, call.path["search"])
    topic = search.request.topic
    masks = call.console.masks
    records = list(search.records)
    name = f"{topic}.{asked.format}"
    headers = {"Content-Disposition": f'attachment; filename="{name}"', "Cache-Control": "no-store"}
    if asked.format == "json":
        show = shower(call, topic, whole=True)
        body = msgspec.json.encode(messages(show, records))
        return Response(body, headers=headers, media_type="application/json")
    if any(masks.of_record(topic, each.headers) for each in records):
        raise ApiError(403, "masked", f"fields of {topic} are masked", "export it as JSON instead")
    return Response(_parquet(records), headers=headers, media_type="application/vnd.apache.parquet")


def _parquet(records: list[FoundRecord]) -> bytes:
    body = encode(records)
    try:
        ran = subprocess.run(
            [sys.executable, "-m", MODULE],
            input=LENGTH.pack(len(body)) + body,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=_EXPORT_WITHIN_S,
            check=True,
        )
    except subprocess.SubprocessError:
        raise ApiError(500, "failed", "the export did not succeed") from None
    return ran.stdout
