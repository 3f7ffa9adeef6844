"""Redrives: dead letters moved back to where they came from, edited if need be, each once."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from moldau.client.errors import ClientError
from moldau.client.pipelines.letters import PipelineLetter
from moldau.client.pipelines.redrive import PipelineRedrive
from moldau.client.queue.redrive import Choose, Letter, Redrive
from moldau.console.api.dead_letters import has_reason
from moldau.console.browse import topic_bounds
from moldau.console.call import Call
from moldau.console.encoding import encoded
from moldau.console.endpoint import endpoint
from moldau.console.errors import ApiError, invalid, not_found
from moldau.console.letters import SHARE, LetterView, view_of
from moldau.console.records import PartitionReader, read_all
from moldau.console.sampling.state import read_topic
from moldau.records.record import Record
from moldau.security.client import ClientSecurity

_MOST = 1000

Place = tuple[int, int]
Encoding = Literal["text", "json", "hex", "schema"]


class ChosenLetter(msgspec.Struct):
    """A letter by its place; with a `key` or a `value`, it is moved with that one instead of its
    own. One with another key goes to that key's partition."""

    partition: Annotated[int, Meta(ge=0, le=(1 << 31) - 1)]
    offset: Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]
    value: Any = None
    value_encoding: Encoding = "text"
    schema_id: int | None = None
    key: Any = None
    key_encoding: Encoding = "text"
    key_schema_id: int | None = None


class RedriveOrder(msgspec.Struct):
    """Letters to move: these, or all of the topic. With a `reason`, all are those that have it as
    part of theirs."""

    letters: Annotated[list[ChosenLetter], Meta(max_length=_MOST)] = []
    all: bool = False
    reason: str = ""
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


def _at(call: Call, topic: str, places: Iterable[Place]) -> dict[Place, LetterView]:
    """Return the letters at these places, as far as there are any."""
    _, described = read_topic(call.cluster, topic)
    by_partition: dict[int, list[int]] = defaultdict(list)
    for partition, offset in sorted(places):
        if partition in described.partitions:
            by_partition[partition].append(offset)
    found = {}
    for partition, offsets in by_partition.items():
        reader = PartitionReader(call.cluster, topic, partition)
        try:
            records: dict[int, Record] = {}
            following = 0
            for offset in offsets:
                if offset >= following:
                    fetched = reader.read(offset)
                    records = {record.offset: record for record, _ in fetched.records}
                    following = fetched.following
                record = records.get(offset)
                view = None if record is None else view_of(partition, record)
                if view is not None:
                    found[partition, offset] = view
        finally:
            reader.close()
    return found


def _all_kinds(call: Call, topic: str, reason: str) -> set[tuple[str, str]]:
    """Return of what kinds the letters of a topic are, and whose: of all that have this reason."""
    state, described = read_topic(call.cluster, topic)
    known = topic_bounds(call.cluster, state, topic, None)
    found = set()
    for partition in described.partitions:
        start, _ = known.get(partition, (0, 0))
        for record, _ in read_all(call.cluster, topic, partition, start):
            view = view_of(partition, record)
            if view is None:
                continue
            shown = call.console.masks.reason(topic, view.origin.topic, view.reason)
            if has_reason(shown, reason):
                found.add((view.kind, view.of))
    return found


@endpoint("POST", "api/dead-letters/{topic}/redrive")
def redrive_letters(call: Call, asked: RedriveOrder) -> RedriveOutcome:
    """Move letters back to where they came from, each once; with `preview`, only count them."""
    topic = call.path["topic"]
    chosen = {(each.partition, each.offset): each for each in asked.letters}
    if not chosen and not asked.all:
        raise invalid("no letters were chosen", "name some, or all of them")
    if asked.reason and not asked.all:
        raise invalid("a reason chooses among all letters", "ask for all of them, too")
    places = _at(call, topic, chosen)
    missing = [place for place in chosen if place not in places]
    if missing:
        raise not_found("dead letter at partition {}, offset {}".format(*missing[0]))
    # Before anything is moved: what cannot be written is refused as a whole.
    edits = Edits(call, chosen)
    kinds = {(view.kind, view.of) for view in places.values()}
    if asked.all:
        kinds |= _all_kinds(call, topic, asked.reason)
    groups = sorted({of for kind, of in kinds if kind == SHARE})
    others = {place for place in chosen if places[place].kind != SHARE}
    outcome = RedriveOutcome(0, 0, {}, not asked.preview)
    try:
        for group in groups:
            mine = {place for place in chosen if places[place][::3] == (SHARE, group)}
            _redrive_group(call, topic, group, asked, mine, edits, outcome)
        if any(kind != SHARE for kind, _ in kinds):
            _redrive(call, topic, asked, others, edits, outcome)
    except ClientError as problem:
        raise _failure(problem) from None
    finally:
        if outcome.moved and not asked.preview:
            reason = {"reason": asked.reason} if asked.reason else {}
            call.note(
                "redrove letters", topic=topic, moved=outcome.moved, edited=len(edits),
                groups=groups, letters=[list(place) for place in sorted(chosen)][:100], **reason,
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
    """Move letters of pipelines and quarantines."""
    masks = call.console.masks
    values = {place: value for place, value in edits.values.items() if place in chosen}

    def rekey(letter: PipelineLetter) -> bytes | None:
        return edits.keys.get((letter.partition, letter.offset), letter.key)

    def edit(letters: Sequence[PipelineLetter]) -> list[bytes | None]:
        return [values[letter.partition, letter.offset] for letter in letters]

    def is_edited(letter: PipelineLetter) -> bool:
        return (letter.partition, letter.offset) in values

    def is_plain(letter: PipelineLetter) -> bool:
        place = (letter.partition, letter.offset)
        shown = masks.reason(topic, letter.origin.topic, letter.reason)
        is_meant = asked.all and has_reason(shown, asked.reason)
        return (is_meant or place in chosen) and place not in values

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
    masks = call.console.masks

    def with_reason(letter: Letter) -> Letter | None:
        shown = masks.reason(topic, letter.topic, letter.reason)
        return letter if letter.at in chosen or has_reason(shown, asked.reason) else None

    def choose(letter: Letter) -> Letter | None:
        if letter.at not in chosen:
            return None
        return letter._replace(
            key=edits.keys.get(letter.at, letter.key),
            value=edits.values.get(letter.at, letter.value),
        )

    rounds: list[Choose | None] = [choose] if chosen else []
    if asked.all:
        rounds.append(with_reason if asked.reason else None)
    for given in rounds:
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
            if given is choose:
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
