"""Share sessions as a member keeps them: what it asks of one leader, without I/O (KIP-932).

A session begins with a fetch of epoch 0, and every request after that has the next epoch.
Partitions are named once; those that are fetched from no more are forgotten by name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum
from typing import Any, NamedTuple
from uuid import UUID

from moldau.wire.primitives import TopicIdPartition

_INITIAL, _FINAL = 0, -1
_LAST_EPOCH = 2**31 - 1
# No more records than were asked for, even from within a batch (KIP-1206).
_EXACTLY = 1
_MOST_BYTES = 50 << 20


class Word(IntEnum):
    """What is said of a record, by Kafka's numbers."""

    GAP = 0
    ACCEPT = 1
    RELEASE = 2
    REJECT = 3
    RENEW = 4


Words = Mapping[TopicIdPartition, Mapping[int, Word]]


class _Range(NamedTuple):
    first: int
    last: int
    word: Word


class LeaderSession:
    """The session of one member with one leader. Whoever sends a request says what came of it: by
    `advance`, or by `reset` where the session is over."""

    __slots__ = ("_epoch", "_group", "_member", "_named")

    def __init__(self, group: str, member: str) -> None:
        self._group = group
        self._member = member
        self._epoch = _INITIAL
        self._named: set[TopicIdPartition] = set()

    @property
    def is_open(self) -> bool:
        return self._epoch != _INITIAL

    def advance(self) -> None:
        """The last request was answered."""
        self._epoch = 1 if self._epoch == _LAST_EPOCH else self._epoch + 1

    def reset(self) -> None:
        """The leader knows nothing of the session any more, and has released all it gave."""
        self._epoch = _INITIAL
        self._named.clear()

    def fetch(self, wanted: set[TopicIdPartition], most: int, wait_ms: int) -> dict[str, Any]:
        """Return a ShareFetch of records from these partitions."""
        new, gone = wanted - self._named, self._named - wanted
        self._named = set(wanted)
        return {
            **self._identity(self._epoch),
            "max_wait": wait_ms,
            "min_bytes": 1,
            "max_bytes": _MOST_BYTES,
            "max_records": most,
            "batch_size": most,
            "share_acquire_mode": _EXACTLY,
            "topics": _topics(new, lambda place: {"partition_index": place[1]}),
            "forgotten_topics_data": _topics(gone, lambda place: place[1]),
        }

    def acknowledge(self, words: Words, *, is_last: bool = False) -> dict[str, Any]:
        """Return a ShareAcknowledge; the last one ends the session."""

        def partition(place: TopicIdPartition) -> dict[str, Any]:
            said = [
                {"first_offset": first, "last_offset": last, "acknowledge_types": [word]}
                for first, last, word in _ranges(words[place])
            ]
            return {"partition_index": place[1], "acknowledgement_batches": said}

        return {
            **self._identity(_FINAL if is_last else self._epoch),
            "is_renew_ack": any(Word.RENEW in said.values() for said in words.values()),
            "topics": _topics(words, partition),
        }

    def _identity(self, epoch: int) -> dict[str, Any]:
        return {
            "group_id": self._group,
            "member_id": self._member,
            "share_session_epoch": epoch,
        }


def _topics(places: Iterable[TopicIdPartition], partition: Any) -> list[dict[str, Any]]:
    topics: dict[UUID, list[Any]] = {}
    for place in sorted(places, key=lambda place: place[1]):
        topics.setdefault(place[0], []).append(partition(place))
    return [{"topic_id": id, "partitions": partitions} for id, partitions in topics.items()]


def _ranges(words: Mapping[int, Word]) -> Sequence[_Range]:
    """Join neighbours of which the same is said."""
    ranges: list[_Range] = []
    for offset, word in sorted(words.items()):
        if ranges and ranges[-1].last == offset - 1 and ranges[-1].word is word:
            ranges[-1] = ranges[-1]._replace(last=offset)
        else:
            ranges.append(_Range(offset, offset, word))
    return ranges
