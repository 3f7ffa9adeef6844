"""Dead letters: their topics, and browsing them by reason."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from typing import Annotated

import msgspec
from msgspec import Meta

from moldau.console.api.messages import shower
from moldau.console.browse import Browser, Start, cursor, parse_start, topic_bounds
from moldau.console.call import Call
from moldau.console.endpoint import endpoint
from moldau.console.errors import invalid
from moldau.console.letters import (
    LetterView,
    Moved,
    letter_topics,
    may_move,
    view_of,
)
from moldau.console.sampling.state import read_state, read_topic
from moldau.console.values.shown import Message
from moldau.peer.errors import PeerError
from moldau.records.record import Record

# Messages whose reasons are counted, the newest.
_COUNTED = 5000
_MOST = 1000


class ReasonCount(msgspec.Struct):
    reason: str
    count: int


class LetterTopic(msgspec.Struct):
    """A topic of dead letters; reasons are of the newest 5,000."""

    topic: str
    origin: list[str]
    count: int
    reasons: list[ReasonCount]


class LetterTopics(msgspec.Struct):
    topics: list[LetterTopic]


class LetterQuery(msgspec.Struct):
    """`reason` is part of the reason; letters come newest first. `before` is `older` of an earlier
    answer, for what is older than its letters."""

    reason: str = ""
    before: str = ""
    limit: Annotated[int, Meta(ge=1, le=_MOST)] = 100


class OriginInfo(msgspec.Struct):
    """Where a letter came from; `offset` is -1 for a record that brokers never let in."""

    topic: str
    partition: int
    offset: int


class LetterMessage(Message):
    """A dead letter as a message, and what it says of itself.

    `kind` is pipeline, share, or quarantine for what failed the check against its schema. With
    `may_redrive` false, brokers would not let the visitor move it back.
    """

    reason: str
    origin: OriginInfo
    redriven: bool
    kind: str
    of: str
    may_redrive: bool


class LetterPage(msgspec.Struct):
    """Letters, newest first. `older` is what `before` takes; null if nothing is older.

    There may be older ones, though none are here: a request looks at so many messages at most.
    """

    letters: list[LetterMessage]
    scanned: int
    older: str | None


@endpoint("GET", "api/dead-letters")
def list_letter_topics(call: Call) -> LetterTopics:
    """List the topics of dead letters, with how many there are and why."""
    state = read_state(call.cluster)
    named = {
        str(source.get("dead_letters"))
        for each in call.pipelines()
        for source in each.more.get("sources") or ()
        if isinstance(source, dict)
    }
    found = []
    for topic in letter_topics(state, named | call.quarantines(state)):
        with suppress(PeerError):
            views, total = _newest(call, topic)
            reasons = Counter(_shown_reason(call, topic, view) for view in views)
            origins = sorted({view.origin.topic for view in views})
            counts = [ReasonCount(reason, count) for reason, count in reasons.most_common(50)]
            found.append(LetterTopic(topic, origins, total, counts))
    return LetterTopics(found)


@endpoint("GET", "api/dead-letters/{topic}")
def list_letters(call: Call, asked: LetterQuery) -> LetterPage:
    """Show dead letters with their reasons, the newest first."""
    topic = call.path["topic"]
    state, _ = read_topic(call.cluster, topic)
    known = topic_bounds(call.cluster, state, topic, None)
    start = parse_start(asked.before or "end", call.cluster, state, topic, known)
    if not start.backwards:
        raise invalid(f"{asked.before!r} is not what `older` of an earlier answer said")

    def wants(partition: int, record: Record) -> bool:
        view = view_of(partition, record)
        return view is not None and has_reason(_shown_reason(call, topic, view), asked.reason)

    page = Browser(call.cluster, topic, known, wants).page(start, asked.limit)
    views = [view_of(partition, record) for partition, record, _ in page.found]
    may = may_move(call.cluster, [view for view in views if view is not None])
    show = shower(call, topic)
    moved = Moved(call.cluster, topic)
    found = []
    for (partition, record, appended), view in zip(
        reversed(page.found), reversed(views), strict=True
    ):
        assert view is not None
        shown = show.message(partition, record, appended)
        found.append(
            LetterMessage(
                shown.partition, shown.offset, shown.timestamp, shown.timestamp_type, shown.key,
                shown.value, shown.headers, shown.size, _shown_reason(call, topic, view),
                OriginInfo(view.origin.topic, view.origin.partition, view.origin.offset),
                moved.has(view, partition, record.offset), view.kind, view.of,
                may[view.kind, view.origin.topic],
            )
        )  # fmt: skip
    return LetterPage(found, page.scanned, cursor("before", page.preceding))


def _shown_reason(call: Call, topic: str, view: LetterView) -> str:
    return call.console.masks.reason(topic, view.origin.topic, view.reason)


def has_reason(reason: str, wanted: str) -> bool:
    """Return whether a reason contains what is asked for."""
    return wanted.lower() in reason.lower()


def _newest(call: Call, topic: str) -> tuple[list[LetterView], int]:
    """Return the newest letters of a topic, and how many messages there are."""
    state, _ = read_topic(call.cluster, topic)
    known = topic_bounds(call.cluster, state, topic, None)
    ends = {index: end for index, (_, end) in known.items()}
    page = Browser(call.cluster, topic, known).page(Start(ends, backwards=True), _COUNTED)
    found = [view_of(partition, record) for partition, record, _ in page.found]
    views = [view for view in found if view is not None]
    return views, sum(end - start for start, end in known.values())
