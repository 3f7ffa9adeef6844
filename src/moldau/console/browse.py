"""Browsing: which messages of a topic a page shows, and where the pages around it begin.

Messages of several partitions are shown by their timestamps. A page is so many at most; its
cursors say for each partition where the next page begins and where the one before it ends.
"""

from __future__ import annotations

import base64
import binascii
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import msgspec

from moldau.console.errors import ApiError, invalid
from moldau.console.records import PartitionReader
from moldau.console.sampling.state import ClusterState, bounds, offsets_at
from moldau.peer.cluster import Cluster
from moldau.records.record import Record

# One request looks at so many records at most, for so long, if only some of them are wanted.
MOST_SCANNED = 200_000
SCAN_WITHIN_S = 8.0
# Decoded messages of one page.
MOST_BYTES = 16 << 20

# A partition, a record, and whether its timestamp is the broker's.
Found = tuple[int, Record, bool]
Bounds = Mapping[int, tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Start:
    """Where to begin, by partition; backwards, where to end."""

    offsets: dict[int, int]
    backwards: bool = False


@dataclass(slots=True)
class Page:
    """Messages, and how to go on in both directions; None where nothing follows."""

    found: list[Found] = field(default_factory=list)
    following: dict[int, int] | None = None
    preceding: dict[int, int] | None = None
    scanned: int = 0


def parse_start(
    text: str, cluster: Cluster, state: ClusterState, topic: str, known: Bounds
) -> Start:
    """Return where `beginning`, `end`, `end:-N`, `offset:N`, `time:MS` or a cursor is."""
    kind, _, rest = text.partition(":")
    if text == "beginning":
        return Start({index: start for index, (start, _) in known.items()})
    if kind == "end":
        if rest and not (rest[:1] == "-" and rest[1:].isdecimal()):
            raise invalid(f"{text!r} is not end:-N")
        return Start({index: end for index, (_, end) in known.items()}, backwards=True)
    if kind == "offset" and rest.isdecimal() and len(rest) < 20:
        at = int(rest)
        return Start({index: min(max(at, lo), hi) for index, (lo, hi) in known.items()})
    if kind == "time" and rest.isdecimal() and len(rest) < 17:
        wanted = {(topic, index): int(rest) for index in known}
        found = offsets_at(cluster, state, wanted)
        return Start(
            {
                index: at if (at := found.get((topic, index), -1)) >= 0 else end
                for index, (_, end) in known.items()
            }
        )
    if kind in ("after", "before"):
        offsets = parse_cursor(rest)
        kept = {index: at for index, at in offsets.items() if index in known}
        return Start(kept, backwards=kind == "before")
    raise invalid(
        f"{text!r} is not a place to begin",
        "expected beginning, end:-N, offset:N, time:MS, or a cursor from an earlier answer",
    )


def count_of(text: str, limit: int) -> int:
    """Return how many messages to show: fewer than the limit if `end:-N` asks for fewer."""
    if text.startswith("end:-"):
        return min(limit, max(int(text[5:]), 1))
    return limit


def cursor(kind: str, offsets: dict[int, int] | None) -> str | None:
    """Return the place as a text that `parse_start` takes."""
    if offsets is None:
        return None
    coded = base64.urlsafe_b64encode(msgspec.msgpack.encode(offsets)).decode().rstrip("=")
    return f"{kind}:{coded}"


def parse_cursor(text: str) -> dict[int, int]:
    try:
        data = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
        return msgspec.msgpack.decode(data, type=dict[int, int])
    except (binascii.Error, ValueError, msgspec.DecodeError, RecursionError):
        raise ApiError(400, "bad_cursor", "the cursor is not one from an earlier answer") from None


def topic_bounds(
    cluster: Cluster, state: ClusterState, topic: str, partition: int | None
) -> Bounds:
    """Return the first and the next offset of a topic's partitions, or of one of them."""
    described = state.topics[topic].partitions
    if partition is not None and partition not in described:
        raise ApiError(404, "not_found", f"{topic} has no partition {partition}")
    wanted = [partition] if partition is not None else sorted(described)
    found = bounds(cluster, state, [(topic, index) for index in wanted])
    return {index: found[topic, index] for index in wanted if (topic, index) in found}


class Browser:
    """Reads pages of one topic. For one thread."""

    def __init__(
        self,
        cluster: Cluster,
        topic: str,
        known: Bounds,
        wants: Callable[[int, Record], bool] | None = None,
        *,
        read_committed: bool = True,
    ) -> None:
        self._cluster = cluster
        self._topic = topic
        self._known = known
        self._wants = wants
        self._read_committed = read_committed
        self._deadline = time.monotonic() + SCAN_WITHIN_S

    def page(self, start: Start, limit: int) -> Page:
        if start.backwards:
            return self._backwards(start.offsets, limit)
        return self._forwards(start.offsets, limit)

    def _forwards(self, offsets: dict[int, int], limit: int) -> Page:
        page = Page()
        reached = dict(offsets)
        found: list[Found] = []
        for index, offset in offsets.items():
            end = self._known[index][1]
            some, reached[index] = self._read(index, offset, end, limit, page)
            found += some
        found.sort(key=_order)
        kept = _within(found[:limit])
        # Of each partition, what comes first of what was not kept is where the next page begins.
        for index, record, _ in reversed(found[len(kept) :]):
            reached[index] = record.offset
        page.found = kept
        if any(reached[index] < self._known[index][1] for index in reached):
            page.following = reached
        if any(offset > self._known[index][0] for index, offset in offsets.items()):
            page.preceding = dict(offsets)
        return page

    def _backwards(self, offsets: dict[int, int], limit: int) -> Page:
        """Read what lies before these offsets: further back until there are enough."""
        page = Page()
        found: dict[int, list[Found]] = {}
        begun = dict(offsets)
        for index, end in offsets.items():
            start, following = self._known[index]
            step, some = limit, list[Found]()
            upto = min(end, following)
            while upto > start and len(some) < limit and self._may_go_on(page):
                begin = max(start, upto - min(step, MOST_SCANNED - page.scanned))
                more, reached = self._read(index, begin, upto, MOST_SCANNED, page)
                if reached < upto and not self._may_go_on(page):
                    # Those that were not read any more are the last ones: the next page has all.
                    break
                some = more + some
                upto, step = begin, step * 4
            begun[index] = upto
            found[index] = some
        merged = sorted((each for some in found.values() for each in some), key=_order)
        kept = _within(merged[-limit:][::-1])[::-1]
        for index, record, _ in merged[: len(merged) - len(kept)]:
            begun[index] = max(begun[index], record.offset + 1)
        page.found = kept
        if any(begun[index] > self._known[index][0] for index in begun):
            page.preceding = begun
        if any(at < self._known[index][1] for index, at in offsets.items()):
            page.following = dict(offsets)
        return page

    def _may_go_on(self, page: Page) -> bool:
        return page.scanned < MOST_SCANNED and time.monotonic() < self._deadline

    def _read(
        self, index: int, offset: int, end: int, limit: int, page: Page
    ) -> tuple[list[Found], int]:
        """Return wanted messages of a partition, and where reading them stopped."""
        found: list[Found] = []
        if offset >= end:
            return found, offset
        reader = PartitionReader(
            self._cluster, self._topic, index, read_committed=self._read_committed
        )
        try:
            while offset < end and len(found) < limit:
                fetched = reader.read(offset)
                for record, appended in fetched.records:
                    if record.offset >= end or len(found) >= limit:
                        break
                    page.scanned += 1
                    if self._wants is None or self._wants(index, record):
                        found.append((index, record, appended))
                    offset = record.offset + 1
                else:
                    if fetched.following <= offset and not fetched.records:
                        # What follows belongs to an open transaction.
                        break
                    offset = max(offset, fetched.following)
                if not self._may_go_on(page):
                    break
        finally:
            reader.close()
        return found, min(offset, end)


def _order(each: Found) -> tuple[int, int, int]:
    return each[1].timestamp, each[0], each[1].offset


def _within(found: list[Found]) -> list[Found]:
    """Return the first ones that fit an answer; one at least."""
    size = 0
    for number, (_, record, _) in enumerate(found):
        size += len(record.key or b"") + min(len(record.value or b""), 64 << 10) + 200
        if size > MOST_BYTES and number:
            return found[:number]
    return found
