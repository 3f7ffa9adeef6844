"""The dead letters of pipelines, and the records of those that were redriven. Without I/O.

A letter is a record as it was, with headers that say where it comes from and what is wrong with it.
Records that brokers set aside, because they failed the check against their schemas, are such
letters, too: they have a topic and a partition of origin, but were never written there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

if TYPE_CHECKING:
    from moldau.client.letters.mover import Headers

ORIGIN_TOPIC = "moldau.origin.topic"
ORIGIN_TOPIC_ID = "moldau.origin.topic_id"
ORIGIN_PARTITION = "moldau.origin.partition"
ORIGIN_OFFSET = "moldau.origin.offset"
REASON = "moldau.reason"
# The offset of what was never written.
NEVER_WRITTEN = -1
SOURCE = "moldau.source"
_ADDED = frozenset((ORIGIN_TOPIC, ORIGIN_TOPIC_ID, ORIGIN_PARTITION, ORIGIN_OFFSET, REASON, SOURCE))


class Origin(NamedTuple):
    """The place of the record that a letter was made from.

    A topic that was created again has other records at the same offsets, so its id is part of it;
    it is empty where brokers have no ids, and in letters of earlier versions. The offset of what
    brokers have set aside is NEVER_WRITTEN.
    """

    topic: str
    topic_id: str
    partition: int
    offset: int

    def key(self) -> bytes:
        """Return the key of the record that says that it was redriven."""
        return msgspec.json.encode(self)


class PipelineLetter(NamedTuple):
    """A dead letter, with its own place and when it was written."""

    origin: Origin
    reason: str
    source: str
    key: bytes | None
    value: bytes | None
    headers: Headers
    partition: int
    offset: int
    timestamp_ms: int

    @property
    def is_quarantined(self) -> bool:
        return self.origin.offset == NEVER_WRITTEN

    def key_in(self, topic: str, topic_id: str) -> bytes:
        """Return the key of the record that says that this letter of a topic was redriven."""
        if self.is_quarantined:
            return quarantined_key(topic, topic_id, self.partition, self.offset)
        return self.origin.key()


def quarantined_key(topic: str, topic_id: str, partition: int, offset: int) -> bytes:
    """Return the key for a letter that has no place of origin: what tells it apart is its own.

    It is longer than that of an `Origin`, which could be the same place: a pipeline that reads the
    quarantine may have a dead letter of this one.
    """
    return msgspec.json.encode((topic, topic_id, partition, offset, "quarantined"))


class Redriven(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="redriven"):
    """A record of `__moldau_redrives`: the letter of an origin was moved back."""

    version: int = 1
    letters: str
    partition: int
    offset: int
    edited: bool = False
    by: str = ""
    at_ms: int = 0


def letter_of(message: Any) -> PipelineLetter | None:
    """Return the letter in a message; None for what is none."""
    told: dict[str, str] = {}
    kept: Headers = []
    for name, value in message.headers() or []:
        if name == ORIGIN_TOPIC:
            # It comes first: whatever was told before, the record had by itself.
            told.clear()
        if name in _ADDED:
            told[name] = (value or b"").decode(errors="replace")
        else:
            kept.append((name, value))
    topic = told.get(ORIGIN_TOPIC, "")
    partition, offset = told.get(ORIGIN_PARTITION, ""), told.get(ORIGIN_OFFSET)
    if offset is None and REASON in told:
        at = NEVER_WRITTEN
    elif offset is not None and offset.isdecimal():
        at = int(offset)
    else:
        return None
    if not topic or not partition.isdecimal():
        return None
    return PipelineLetter(
        origin=Origin(topic, told.get(ORIGIN_TOPIC_ID, ""), int(partition), at),
        reason=told.get(REASON, ""),
        source=told.get(SOURCE, ""),
        key=message.key(),
        value=message.value(),
        headers=kept,
        partition=int(message.partition() or 0),
        offset=int(message.offset() or 0),
        timestamp_ms=int(message.timestamp()[1]),
    )
