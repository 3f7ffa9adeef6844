"""Messages: browsed, followed live, and produced."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from moldau.client.producer.partitioner import partition_for_key
from moldau.console.browse import (
    Bounds,
    Browser,
    Start,
    count_of,
    cursor,
    parse_start,
    topic_bounds,
)
from moldau.console.call import Call
from moldau.console.encoding import encoded
from moldau.console.endpoint import Event, Stream, endpoint
from moldau.console.errors import ApiError, invalid
from moldau.console.producing import produce
from moldau.console.records import PartitionReader
from moldau.console.sampling.state import read_topic
from moldau.console.search.asking import collect, failure, messages, new_request
from moldau.console.search.process import Worker, require_extra
from moldau.console.search.request import Failed, Found, Range
from moldau.console.values.shown import SHOWN_BYTES, Message, Shower
from moldau.peer.cluster import Cluster
from moldau.records.record import Record

MOST = 1000
_WHOLE_BYTES = 8 << 20
# A live view shows what people can follow, not everything that flows.
_TAIL_EVERY_S = 0.5
_TAIL_MOST = 500
_TAIL_S = 6 * 3600.0
_NO_LIMIT = 1 << 60
# A page by a filter looks so long, and backwards through so many records.
_FILTER_S = 8.0
_STRETCH = 200_000


class MessageQuery(msgspec.Struct, rename={"from_": "from"}):
    """Which messages. `from` is beginning, end:-N, offset:N, time:MS, or a cursor of an answer.

    With `decode` none, bytes are shown as text or hex. `whole` shows values of any size, for one
    message. `isolation` uncommitted shows what transactions have not committed, too.
    """

    partition: Annotated[int, Meta(ge=0)] | None = None
    from_: str = "end:-100"
    key: str | None = None
    limit: Annotated[int, Meta(ge=1, le=MOST)] = 100
    filter: str = ""
    decode: Literal["auto", "none"] = "auto"
    whole: bool = False
    isolation: Literal["committed", "uncommitted"] = "committed"


class MessagePage(msgspec.Struct):
    """Messages, oldest first. `next` and `previous` are what `from` takes; null if nothing follows.

    `scanned` counts records that were looked at.
    """

    messages: list[Message]
    next: str | None
    previous: str | None
    scanned: int
    took_ms: int


class TailQuery(msgspec.Struct):
    partition: Annotated[int, Meta(ge=0)] | None = None
    filter: str = ""


Encoding = Literal["text", "json", "hex", "schema", "null"]


class NewMessage(msgspec.Struct):
    """A message to produce. Text and hex are strings; JSON may be any value.

    With the encoding `schema`, the value is JSON and is written by the schema of that id.
    """

    key: Any = None
    value: Any = None
    headers: list[tuple[str, str | None]] = []
    partition: Annotated[int, Meta(ge=0)] | None = None
    key_encoding: Encoding = "text"
    value_encoding: Encoding = "text"
    key_schema_id: int | None = None
    schema_id: int | None = None
    timestamp: int | None = None


class Produced(msgspec.Struct):
    partition: int
    offset: int


@endpoint("GET", "api/topics/{topic}/messages")
def browse_messages(call: Call, asked: MessageQuery) -> MessagePage:
    """Show messages from some place on."""
    began = time.monotonic()
    topic = call.path["topic"]
    state, _ = read_topic(call.cluster, topic)
    known = topic_bounds(call.cluster, state, topic, asked.partition)
    start = parse_start(asked.from_, call.cluster, state, topic, known)
    limit = count_of(asked.from_, asked.limit)
    masks = call.console.masks
    show = shower(call, topic, decodes=asked.decode == "auto", whole=asked.whole)
    if asked.filter:
        return _filtered(call, asked, known, start, limit, show, began)
    wants = None
    if asked.key is not None:
        if masks.of(topic).key:
            raise ApiError(403, "masked", f"keys of {topic} are masked")
        key = asked.key.encode()

        def wants(index: int, record: Record) -> bool:
            is_key = record.key is not None and bytes(record.key) == key
            return is_key and not masks.of_record(topic, record.headers).key

    browser = Browser(
        call.cluster, topic, known, wants, read_committed=asked.isolation == "committed"
    )
    page = browser.page(start, limit)
    return MessagePage(
        [show.message(*each) for each in page.found],
        cursor("after", page.following),
        cursor("before", page.preceding),
        page.scanned,
        round((time.monotonic() - began) * 1000),
    )


def _filtered(
    call: Call,
    asked: MessageQuery,
    known: Bounds,
    start: Start,
    limit: int,
    show: Shower,
    began: float,
) -> MessagePage:
    """Return a page of messages that pass a filter, as far as a worker comes in a few seconds.

    Backwards, a stretch before the start is looked through, and its last messages are shown.
    """
    require_extra()
    if asked.key is not None:
        raise invalid("give either a key or a filter", "put the key into the filter")
    console = call.console
    following: dict[int, int] | None
    preceding: dict[int, int] | None
    if start.backwards:
        stretch = max(_STRETCH // max(len(start.offsets), 1), limit)
        begins = {at: max(known[at][0], end - stretch) for at, end in start.offsets.items()}
        ranges = [Range(at, begins[at], end) for at, end in start.offsets.items()]
        most = _STRETCH
    else:
        ranges = [Range(at, begin, known[at][1]) for at, begin in start.offsets.items()]
        most = limit
    request = new_request(
        console.settings, call.visitor, call.path["topic"], ranges, asked.filter, most, _FILTER_S
    )
    found = console.in_loop(collect(request, console.searches.spare))
    order = sorted(found.records, key=lambda each: (each.timestamp, each.partition, each.offset))
    if start.backwards:
        following = dict(start.offsets) if _is_before(start.offsets, known, 1) else None
        preceding = begins if any(begins[at] > known[at][0] for at in begins) else None
        order = order[-limit:]
    else:
        reached = {**start.offsets, **found.positions}
        following = reached if _is_before(reached, known, 1) else None
        preceding = None
    return MessagePage(
        messages(show, order),
        cursor("after", following),
        cursor("before", preceding),
        found.scanned,
        round((time.monotonic() - began) * 1000),
    )


def _is_before(offsets: dict[int, int], known: Bounds, bound: int) -> bool:
    return any(at < known[index][bound] for index, at in offsets.items())


def shower(call: Call, topic: str, *, decodes: bool = True, whole: bool = False) -> Shower:
    """Return what shows the messages of a topic to the visitor."""
    return Shower(
        topic,
        call.console.values_of(call.visitor) if decodes else None,
        call.console.masks,
        decodes=decodes,
        most_bytes=_WHOLE_BYTES if whole else SHOWN_BYTES,
    )


@endpoint("GET", "api/topics/{topic}/tail", is_stream=True)
async def tail_messages(call: Call, asked: TailQuery) -> Stream:
    """Show messages as they come: events `messages`, each with a list."""
    topic = call.path["topic"]
    loop = asyncio.get_running_loop()
    tail = Tail(call, topic, asked.partition)
    if asked.filter:
        require_extra()
        await loop.run_in_executor(call.console.threads, tail.begin)
        yield Event("messages", [])
        async for some in tail.filtered(asked.filter):
            yield Event("messages", some)
        return
    try:
        await loop.run_in_executor(call.console.threads, tail.begin)
        yield Event("messages", [])
        while True:
            found, skipped = await loop.run_in_executor(call.console.threads, tail.read)
            if skipped:
                yield Event("skipped", {"messages": skipped})
            if found:
                yield Event("messages", found)
            await asyncio.sleep(_TAIL_EVERY_S)
    finally:
        tail.close()


class Tail:
    """What comes at the end of a topic; where too much comes, the newest of it."""

    def __init__(self, call: Call, topic: str, partition: int | None) -> None:
        self._call = call
        self._topic = topic
        self._partition = partition
        self._cluster: Cluster = call.console.pool.new(call.visitor.security, call.visitor.address)
        self._at: dict[int, int] = {}
        self._show = shower(call, topic)

    def begin(self) -> None:
        state, _ = read_topic(self._cluster, self._topic)
        known = topic_bounds(self._cluster, state, self._topic, self._partition)
        self._at = {index: end for index, (_, end) in known.items()}

    def read(self) -> tuple[list[Message], int]:
        """Return new messages, and how many were left out because there were too many."""
        state, _ = read_topic(self._cluster, self._topic)
        known = topic_bounds(self._cluster, state, self._topic, self._partition)
        found: list[tuple[int, Record, bool]] = []
        skipped = 0
        for index, (_, end) in known.items():
            at = self._at.setdefault(index, end)
            if end < at:
                # The topic was deleted and created again.
                at = 0
            if end - at > _TAIL_MOST:
                skipped += end - _TAIL_MOST - at
                at = end - _TAIL_MOST
            if at < end:
                reader = PartitionReader(self._cluster, self._topic, index)
                try:
                    fetched = reader.read(at)
                finally:
                    reader.close()
                found += [(index, record, is_append) for record, is_append in fetched.records]
                at = max(at, fetched.following)
            self._at[index] = at
        found.sort(key=lambda each: (each[1].timestamp, each[0], each[1].offset))
        left_out = max(0, len(found) - _TAIL_MOST)
        return [self._show.message(*each) for each in found[left_out:]], skipped + left_out

    async def filtered(self, filter: str) -> AsyncGenerator[list[Message], None]:
        """Yield what comes and passes a filter, for as long as somebody looks."""
        self._cluster.close()
        ranges = [Range(index, at, at) for index, at in self._at.items()]
        settings, visitor = self._call.console.settings, self._call.visitor
        request = new_request(
            settings, visitor, self._topic, ranges, filter, _NO_LIMIT, _TAIL_S, follows=True
        )
        request.most_bytes = _NO_LIMIT
        answers = Worker(request, self._call.console.searches.spare).answers()
        try:
            async for answer in answers:
                if isinstance(answer, Failed):
                    raise failure(answer)
                if isinstance(answer, Found):
                    yield messages(self._show, answer.records[-_TAIL_MOST:])
        finally:
            await answers.aclose()

    def close(self) -> None:
        self._cluster.close()


@endpoint("POST", "api/topics/{topic}/messages", status=201)
def produce_message(call: Call, asked: NewMessage) -> Produced:
    """Write a message."""
    topic = call.path["topic"]
    _, described = read_topic(call.cluster, topic)
    key = encoded(call, asked.key, asked.key_encoding, asked.key_schema_id)
    value = encoded(call, asked.value, asked.value_encoding, asked.schema_id)
    count = len(described.partitions)
    partition = asked.partition
    if partition is None:
        partition = time.monotonic_ns() % count if key is None else partition_for_key(key, count)
    if partition not in described.partitions:
        raise ApiError(404, "not_found", f"{topic} has no partition {partition}")
    headers = [(name, None if text is None else text.encode()) for name, text in asked.headers]
    now = int(time.time() * 1000) if asked.timestamp is None else asked.timestamp
    record = Record(0, now, key, value, headers)
    offset = produce(call.cluster, topic, partition, [record])
    call.note("produced", topic=topic, partition=partition, offset=offset)
    return Produced(partition, offset)
