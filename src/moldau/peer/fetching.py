"""Fetch from the asking side, by hand: an answer's records are left where they are.

The broker's side of the same bytes is `moldau.wire.fetch`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from struct import Struct, error
from typing import NamedTuple
from uuid import UUID

from moldau.wire.primitives import (
    INT32,
    MalformedRequest,
    TopicKey,
    count,
    read_count,
    read_string,
    read_uvarint,
    skip_tags,
    string,
)

_ABORTED = Struct(">qq")
_EPOCH_AND_OFFSET = Struct(">iq")
_TWO_INT32 = Struct(">ii")
_ERROR_AND_SESSION = Struct(">hi")


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is asked of one partition. The epochs and `log_start` matter to followers only."""

    topic: str
    topic_id: UUID | None
    partition: int
    offset: int
    max_bytes: int
    leader_epoch: int = -1
    last_fetched_epoch: int = -1
    log_start: int = -1


@dataclass(frozen=True, slots=True)
class FetchQuestion:
    """One Fetch. `replica_id` is a follower's broker id, -1 for a consumer.

    Without a session unless an epoch is given (KIP-227): then `wanted` are the partitions that are
    new or changed since the session's last question, and `forgotten` those to leave out from now
    on, by topic id, which takes a broker that speaks v13.
    """

    wanted: Sequence[Wanted]
    max_wait_ms: int = 500
    min_bytes: int = 1
    max_bytes: int = 50 << 20
    read_committed: bool = False
    replica_id: int = -1
    replica_epoch: int = -1
    session_id: int = 0
    session_epoch: int = -1
    forgotten: Sequence[tuple[UUID, Sequence[int]]] = ()


class FetchedPartition(NamedTuple):
    """The answer for one partition; the last batch in `records` may be cut short.

    `aborted` has (producer id, first offset) of aborted transactions, in the order of the log;
    `diverging` (epoch, end offset) and `leader` (broker id, epoch) are there when the broker says.
    """

    topic: TopicKey
    partition: int
    error: int
    high_watermark: int
    last_stable: int
    log_start: int
    aborted: list[tuple[int, int]]
    records: memoryview
    diverging: tuple[int, int] | None
    leader: tuple[int, int] | None


# The fields before the records.
_Said = tuple[TopicKey, int, int, int, int, int, list[tuple[int, int]]]


class FetchAnswer(NamedTuple):
    """A whole answer; `error` concerns the request as such."""

    throttle_ms: int
    error: int
    partitions: list[FetchedPartition]
    session_id: int = 0


class Beginning(NamedTuple):
    """What stands before the records in an answer for one partition.

    `partition` has no records, and is None when there is none in the answer, as when an `error`
    concerns the request as such; they are `records_size` bytes from `records_at` on.
    """

    error: int
    partition: FetchedPartition | None
    records_at: int
    records_size: int


class _Layout:
    """What one version of Fetch has and lacks."""

    def __init__(self, version: int) -> None:
        self.flexible = version >= 12
        self.by_id = version >= 13
        self.has_sessions = version >= 7
        self.has_rack = version >= 11
        self.has_replica_id = version < 15
        self.head = Struct(">iiiib" if self.has_replica_id else ">iiib")
        self.partition = Struct(
            ">i" + "i" * (version >= 9) + "q" + "i" * (version >= 12) + "q" * (version >= 5) + "i"
        )
        self.has_epoch = version >= 9
        self.has_last_epoch = version >= 12
        self.has_log_start = version >= 5
        self.result = Struct(">ihqqq" if self.has_log_start else ">ihqq")


@cache
def _layout(version: int) -> _Layout:
    return _Layout(version)


def encode_fetch(version: int, question: FetchQuestion) -> bytes:
    """The body of a request; partitions of one topic should stand next to each other."""
    layout = _layout(version)
    compact, tags = layout.flexible, b"\x00" if layout.flexible else b""
    limits = (question.max_wait_ms, question.min_bytes, question.max_bytes)
    isolation = int(question.read_committed)
    if layout.has_replica_id:
        out = bytearray(layout.head.pack(question.replica_id, *limits, isolation))
    else:
        out = bytearray(layout.head.pack(*limits, isolation))
    if layout.has_sessions:
        out += _TWO_INT32.pack(question.session_id, question.session_epoch)
    topics: list[tuple[Wanted, list[Wanted]]] = []
    for wanted in question.wanted:
        if not topics or topics[-1][0].topic != wanted.topic:
            topics.append((wanted, []))
        topics[-1][1].append(wanted)
    out += count(len(topics), compact)
    for first, partitions in topics:
        if layout.by_id:
            assert first.topic_id is not None
            out += first.topic_id.bytes
        else:
            out += string(first.topic, compact)
        out += count(len(partitions), compact)
        for wanted in partitions:
            out += _encode_wanted(layout, wanted) + tags
        out += tags
    if layout.has_sessions:
        out += count(len(question.forgotten), compact)
        for topic_id, indexes in question.forgotten:
            assert layout.by_id
            out += topic_id.bytes + count(len(indexes), compact)
            out += Struct(f">{len(indexes)}i").pack(*indexes) + tags
    if layout.has_rack:
        out += string("", compact)
    if not layout.has_replica_id and question.replica_id >= 0:
        state = _EPOCH_AND_OFFSET.pack(question.replica_id, question.replica_epoch) + b"\x00"
        return bytes(out + b"\x01\x01" + bytes((len(state),)) + state)
    return bytes(out + tags)


def _encode_wanted(layout: _Layout, wanted: Wanted) -> bytes:
    values = [wanted.partition]
    if layout.has_epoch:
        values.append(wanted.leader_epoch)
    values.append(wanted.offset)
    if layout.has_last_epoch:
        values.append(wanted.last_fetched_epoch)
    if layout.has_log_start:
        values.append(wanted.log_start)
    return layout.partition.pack(*values, wanted.max_bytes)


def decode_fetch(version: int, body: memoryview) -> FetchAnswer:
    """The answer in `body`; MalformedRequest where it is none."""
    try:
        return _decode(_layout(version), body)
    except (error, IndexError):
        raise MalformedRequest("it ends too early") from None


def decode_beginning(version: int, body: memoryview) -> Beginning:
    """What an answer says before the records, of which `body` need not have any.

    MalformedRequest where it is not the answer for one partition, or has not come that far.
    """
    try:
        return _decode_beginning(_layout(version), body)
    except (error, IndexError):
        raise MalformedRequest("it ends too early") from None


def _decode(layout: _Layout, body: memoryview) -> FetchAnswer:
    compact = layout.flexible
    throttle_ms, code, session_id, position = _decode_top(layout, body)
    found: list[FetchedPartition] = []
    topics, position = read_count(body, position, compact)
    for _ in range(topics):
        key, position = _decode_topic(layout, body, position)
        partitions, position = read_count(body, position, compact)
        for _ in range(partitions):
            partition, position = _decode_partition(layout, key, body, position)
            found.append(partition)
        if compact:
            position = skip_tags(body, position)
    return FetchAnswer(throttle_ms, code, found, session_id)


def _decode_beginning(layout: _Layout, body: memoryview) -> Beginning:
    _, code, _, position = _decode_top(layout, body)
    topics, position = read_count(body, position, layout.flexible)
    if code or not topics:
        return Beginning(code, None, position, 0)
    if topics != 1:
        raise MalformedRequest(f"it is for {topics} topics instead of one")
    key, position = _decode_topic(layout, body, position)
    partitions, position = read_count(body, position, layout.flexible)
    if partitions != 1:
        raise MalformedRequest(f"it is for {partitions} partitions instead of one")
    said, size, position = _decode_result(layout, key, body, position)
    return Beginning(code, FetchedPartition(*said, body[:0], None, None), position, size)


def _decode_top(layout: _Layout, body: memoryview) -> tuple[int, int, int, int]:
    (throttle_ms,) = INT32.unpack_from(body)
    if not layout.has_sessions:
        return throttle_ms, 0, 0, 4
    code, session_id = _ERROR_AND_SESSION.unpack_from(body, 4)
    return throttle_ms, code, session_id, 10


def _decode_topic(layout: _Layout, body: memoryview, position: int) -> tuple[TopicKey, int]:
    if not layout.by_id:
        name, position = read_string(body, position, layout.flexible)
        return name or "", position
    if position + 16 > len(body):
        raise MalformedRequest("it ends inside a topic id")
    return UUID(bytes=bytes(body[position : position + 16])), position + 16


def _decode_result(
    layout: _Layout, key: TopicKey, body: memoryview, position: int
) -> tuple[_Said, int, int]:
    """What is said of a partition before its records, their size, and where they begin."""
    compact = layout.flexible
    index, code, high_watermark, last_stable, *rest = layout.result.unpack_from(body, position)
    position += layout.result.size
    aborted: list[tuple[int, int]] = []
    aborted_count, position = read_count(body, position, compact)
    for _ in range(aborted_count):
        aborted.append(_ABORTED.unpack_from(body, position))
        position += _ABORTED.size
        if compact:
            position = skip_tags(body, position)
    if layout.has_rack:
        position += 4
    size, position = _records_size(body, position, compact)
    log_start = rest[0] if rest else -1
    said = (key, index, code, high_watermark, last_stable, log_start, aborted)
    return said, size, position


def _decode_partition(
    layout: _Layout, key: TopicKey, body: memoryview, position: int
) -> tuple[FetchedPartition, int]:
    said, size, position = _decode_result(layout, key, body, position)
    end = position + size
    if end > len(body):
        raise MalformedRequest(f"{size} bytes of records reach beyond it")
    records, position = body[position:end], end
    diverging = leader = None
    if layout.flexible:
        diverging, leader, position = _read_tags(body, position)
    return FetchedPartition(*said, records, diverging, leader), position


def _records_size(body: memoryview, position: int, compact: bool) -> tuple[int, int]:
    if compact:
        size, position = read_uvarint(body, position)
        return max(size - 1, 0), position
    (size,) = INT32.unpack_from(body, position)
    return max(size, 0), position + 4


def _read_tags(
    body: memoryview, position: int
) -> tuple[tuple[int, int] | None, tuple[int, int] | None, int]:
    diverging = leader = None
    tags, position = read_uvarint(body, position)
    for _ in range(tags):
        tag, position = read_uvarint(body, position)
        size, position = read_uvarint(body, position)
        end = position + size
        if end > len(body):
            raise MalformedRequest("a tagged field reaches beyond it")
        if tag == 0 and size >= _EPOCH_AND_OFFSET.size:
            diverging = _EPOCH_AND_OFFSET.unpack_from(body, position)
        elif tag == 1 and size >= _TWO_INT32.size:
            leader = _TWO_INT32.unpack_from(body, position)
        position = end
    return diverging, leader, position
