"""Dead letters: browsed by reason, edited, and moved back to where they came from, once each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from moldau.client.errors import ClientError
from moldau.client.pipelines.letters import PipelineLetter
from moldau.client.pipelines.redrive import PipelineRedrive
from moldau.client.queue.redrive import Letter, Redrive
from moldau.console.api.messages import shower
from moldau.console.browse import Browser, Start, topic_bounds
from moldau.console.call import Call
from moldau.console.encoding import encoded
from moldau.console.endpoint import endpoint
from moldau.console.errors import ApiError, invalid, not_found
from moldau.console.letters import PIPELINE, SHARE, LetterView, Moved, letter_topics, view_of
from moldau.console.sampling.state import read_state, read_topic
from moldau.console.values.shown import Message
from moldau.peer.errors import PeerError
from moldau.records.record import Record
from moldau.security.client import ClientSecurity

# Letters whose reasons are counted, the newest.
_COUNTED = 5000
_MOST = 1000

Place = tuple[int, int]
Encoding = Literal["text", "json", "hex", "schema"]


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
    """`reason` is part of the reason; letters come newest first."""

    reason: str = ""
    limit: Annotated[int, Meta(ge=1, le=_MOST)] = 100


class OriginInfo(msgspec.Struct):
    topic: str
    partition: int
    offset: int


class LetterMessage(Message):
    """A dead letter as a message, and what it says of itself."""

    reason: str
    origin: OriginInfo
    redriven: bool
    kind: str
    of: str


class LetterPage(msgspec.Struct):
    letters: list[LetterMessage]
    scanned: int


class ChosenLetter(msgspec.Struct):
    """A letter by its place; with a `key` or a `value`, it is moved with that one instead of its
    own. One with another key goes to that key's partition."""

    partition: Annotated[int, Meta(ge=0)]
    offset: Annotated[int, Meta(ge=0)]
    value: Any = None
    value_encoding: Encoding = "text"
    schema_id: int | None = None
    key: Any = None
    key_encoding: Encoding = "text"
    key_schema_id: int | None = None


class RedriveOrder(msgspec.Struct):
    """Letters to move: these, or all of the topic."""

    letters: Annotated[list[ChosenLetter], Meta(max_length=_MOST)] = []
    all: bool = False
    preview: bool = False


class RedriveOutcome(msgspec.Struct):
    """How many letters were moved, or would be; `moved_before` are left where they are."""

    moved: int
    moved_before: int
    by_topic: dict[str, int]
    applied: bool

    def add(self, planned: Counter[tuple[str, str]], redrive: Redrive | PipelineRedrive) -> None:
        """Move what was planned, or only count it; what fails half-way has moved that much."""
        for (origin, _), count in planned.items():
            self.by_topic[origin] = self.by_topic.get(origin, 0) + count
        before = self.moved

        def tell(moved: int) -> None:
            self.moved = before + moved

        tell(redrive.move(tell) if self.applied else sum(planned.values()))


@endpoint("GET", "api/dead-letters")
def list_letter_topics(call: Call) -> LetterTopics:
    """List the topics of dead letters, with how many there are and why."""
    state = read_state(call.cluster)
    named = [
        str(source.get("dead_letters"))
        for each in call.pipelines()
        for source in each.more.get("sources") or ()
        if isinstance(source, dict)
    ]
    found = []
    for topic in letter_topics(state, named):
        with suppress(PeerError):
            letters, total, _ = _read(call, topic, _COUNTED)
            reasons = Counter(view.reason for _, _, view in letters)
            origins = sorted({view.origin.topic for _, _, view in letters})
            counts = [ReasonCount(reason, count) for reason, count in reasons.most_common(50)]
            found.append(LetterTopic(topic, origins, total, counts))
    return LetterTopics(found)


@endpoint("GET", "api/dead-letters/{topic}")
def list_letters(call: Call, asked: LetterQuery) -> LetterPage:
    """Show dead letters with their reasons, the newest first."""
    topic = call.path["topic"]
    wanted = asked.reason.lower()
    letters, _, scanned = _read(call, topic, _COUNTED if wanted else asked.limit)
    show = shower(call, topic)
    moved = Moved(call.cluster, topic)
    found = []
    for partition, (record, appended), view in reversed(letters):
        if wanted not in view.reason.lower():
            continue
        shown = show.message(partition, record, appended)
        found.append(
            LetterMessage(
                shown.partition, shown.offset, shown.timestamp, shown.timestamp_type, shown.key,
                shown.value, shown.headers, shown.size, view.reason,
                OriginInfo(view.origin.topic, view.origin.partition, view.origin.offset),
                moved.has(view, partition, record.offset), view.kind, view.of,
            )
        )  # fmt: skip
        if len(found) == asked.limit:
            break
    return LetterPage(found, scanned)


def _read(
    call: Call, topic: str, limit: int
) -> tuple[list[tuple[int, tuple[Record, bool], LetterView]], int, int]:
    """Return the newest letters of a topic, oldest first, and how many messages there are."""
    state, _ = read_topic(call.cluster, topic)
    known = topic_bounds(call.cluster, state, topic, None)
    ends = {index: end for index, (_, end) in known.items()}
    page = Browser(call.cluster, topic, known).page(Start(ends, backwards=True), limit)
    found = []
    for partition, record, appended in page.found:
        view = view_of(partition, record)
        if view is not None:
            found.append((partition, (record, appended), view))
    return found, sum(end - start for start, end in known.values()), page.scanned


@endpoint("POST", "api/dead-letters/{topic}/redrive")
def redrive_letters(call: Call, asked: RedriveOrder) -> RedriveOutcome:
    """Move letters back to where they came from, each once; with `preview`, only count them."""
    topic = call.path["topic"]
    letters, _, _ = _read(call, topic, _COUNTED)
    places = {(partition, record.offset): view for partition, (record, _), view in letters}
    chosen = {(each.partition, each.offset): each for each in asked.letters}
    if not chosen and not asked.all:
        raise invalid("no letters were chosen", "name some, or all of them")
    missing = [place for place in chosen if place not in places]
    if missing:
        raise not_found("dead letter at partition {}, offset {}".format(*missing[0]))
    # Before anything is moved: what cannot be written is refused as a whole.
    edits = Edits(call, chosen)
    kinds = {view.kind for view in places.values()}
    groups = sorted(
        {
            view.of
            for place, view in places.items()
            if view.kind == SHARE and (asked.all or place in chosen)
        }
    )
    of_pipelines = {place for place in chosen if places[place].kind == PIPELINE}
    outcome = RedriveOutcome(0, 0, {}, not asked.preview)
    try:
        for group in groups:
            mine = {place for place in chosen if places[place][::3] == (SHARE, group)}
            _redrive_group(call, topic, group, asked, mine, edits, outcome)
        if of_pipelines or (asked.all and kinds != {SHARE}):
            _redrive(call, topic, asked, of_pipelines, edits, outcome)
    except ClientError as problem:
        raise _failure(problem) from None
    finally:
        if outcome.moved and not asked.preview:
            call.note(
                "redrove letters", topic=topic, moved=outcome.moved, edited=len(edits),
                groups=groups, letters=[list(place) for place in sorted(chosen)][:100],
            )  # fmt: skip
    return outcome


class Edits:
    """The keys and values that letters are to have in place of their own."""

    def __init__(self, call: Call, chosen: dict[Place, ChosenLetter]) -> None:
        self.values = {
            place: encoded(call, each.value, each.value_encoding, each.schema_id)
            for place, each in chosen.items()
            if each.value is not None
        }
        self.keys = {
            place: encoded(call, each.key, each.key_encoding, each.key_schema_id)
            for place, each in chosen.items()
            if each.key is not None
        }

    def __len__(self) -> int:
        return len(self.values | self.keys)


def _redrive(
    call: Call,
    topic: str,
    asked: RedriveOrder,
    chosen: set[Place],
    edits: Edits,
    outcome: RedriveOutcome,
) -> None:
    """Move letters of pipelines."""
    values = {place: value for place, value in edits.values.items() if place in chosen}

    def rekey(letter: PipelineLetter) -> bytes | None:
        return edits.keys.get((letter.partition, letter.offset), letter.key)

    def edit(letters: Sequence[PipelineLetter]) -> list[bytes | None]:
        return [values[letter.partition, letter.offset] for letter in letters]

    def is_edited(letter: PipelineLetter) -> bool:
        return (letter.partition, letter.offset) in values

    def is_plain(letter: PipelineLetter) -> bool:
        place = (letter.partition, letter.offset)
        return (asked.all or place in chosen) and place not in values

    rounds: list[dict[str, Any]] = [{"choose": is_plain}, {"choose": is_edited, "edit": edit}]
    for given in rounds if values else rounds[:1]:
        with PipelineRedrive(
            topic,
            **given,
            rekey=rekey,
            by=call.visitor.name,
            bootstrap=call.console.settings.bootstrap,
            settings=librdkafka_login(call.visitor.security),
        ) as redrive:
            if not asked.preview:
                redrive.claim(call.cluster)
            plan = redrive.plan(call.cluster)
            outcome.moved_before += plan.moved_before
            outcome.add(plan.letters, redrive)


def _redrive_group(
    call: Call,
    topic: str,
    group: str,
    asked: RedriveOrder,
    chosen: set[Place],
    edits: Edits,
    outcome: RedriveOutcome,
) -> None:
    """Move letters that a share group has given up: the chosen ones, and then the others if all."""

    def choose(letter: Letter) -> Letter | None:
        if letter.at not in chosen:
            return None
        return letter._replace(
            key=edits.keys.get(letter.at, letter.key),
            value=edits.values.get(letter.at, letter.value),
        )

    rounds = [choose] if chosen else []
    for given in [*rounds, None] if asked.all else rounds:
        with Redrive(
            group,
            topic,
            choose=given,
            bootstrap=call.console.settings.bootstrap,
            settings=librdkafka_login(call.visitor.security),
        ) as redrive:
            if not asked.preview:
                redrive.claim()
            plan = redrive.plan()
            if given is not None:
                outcome.moved_before += len(chosen) - sum(plan.values())
                if asked.preview and asked.all:
                    # All of them are counted next.
                    continue
            outcome.add(plan, redrive)


def librdkafka_login(security: ClientSecurity | None) -> dict[str, str]:
    """Return a visitor's security for librdkafka.

    The name and password go where a login module has them: one of the environment's file, which is
    the console's own, would count for more than those beside it.
    """
    if security is None:
        return {}
    found = security.properties()
    if security.has_sasl and "sasl.username" in found:
        user, password = found.pop("sasl.username"), found.pop("sasl.password", "")
        quoted = [text.replace("\\", "\\\\").replace('"', '\\"') for text in (user, password)]
        found["sasl.jaas.config"] = 'login required username="{}" password="{}";'.format(*quoted)
    return found


def _failure(problem: ClientError) -> ApiError:
    name = (problem.name or "").lower()
    if "authorization" in name:
        return ApiError(403, name, str(problem))
    return ApiError(409, name or "redrive", str(problem))
