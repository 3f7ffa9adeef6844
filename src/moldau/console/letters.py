"""Dead letters: which topics hold them, what each letter says, and which were moved back.

pipelines       headers moldau.origin.*, moldau.reason; moved ones are in `__moldau_redrives`
quarantines     the same, without an offset: the check at the door let no record in
share groups    headers __dlq.errors.*; how far they were moved, and which ones behind that, is
                committed for a group
"""

from __future__ import annotations

import re
import time
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from typing import NamedTuple

from moldau.client.letters.ahead import offsets_in
from moldau.client.pipelines.letters import Origin, letter_of, quarantined_key
from moldau.client.pipelines.redrive import TOPIC as REDRIVES
from moldau.client.pipelines.redrive import topic_id_of
from moldau.client.queue.redrive import PREFIX
from moldau.console.records import read_all
from moldau.console.sampling.groups import committed_texts
from moldau.console.sampling.state import (
    ClusterState,
    Topic,
    bounds,
    operation_names,
    read_state,
)
from moldau.peer.cluster import Cluster
from moldau.peer.errors import Refused
from moldau.records.record import Record
from moldau.wire.apis import Api
from moldau.wire.errors import Error

PIPELINE, QUARANTINE, SHARE = "pipeline", "quarantine", "share"
# The setting of a topic that names where its quarantined records go.
_QUARANTINE = "moldau.schema.validation.quarantine"
_TOPIC_RESOURCE = 2
_FRESH_S = 60.0
_NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_LIKE_LETTERS = re.compile(r"(^|[-._])(dlq|dead[-._]?letters?)($|[-._])", re.IGNORECASE)


class LetterView(NamedTuple):
    """What a letter says of itself."""

    kind: str
    origin: Origin
    reason: str
    # The share group that gave it up, or the source of the pipeline; empty for a quarantine.
    of: str


class _AsMessage:
    """A record with the methods of confluent-kafka's messages."""

    def __init__(self, partition: int, record: Record) -> None:
        self._partition, self._record = partition, record

    def headers(self) -> list[tuple[str, bytes | None]]:
        return [
            (name, None if value is None else bytes(value)) for name, value in self._record.headers
        ]

    def key(self) -> bytes | None:
        return None if self._record.key is None else bytes(self._record.key)

    def value(self) -> bytes | None:
        return None if self._record.value is None else bytes(self._record.value)

    def partition(self) -> int:
        return self._partition

    def offset(self) -> int:
        return self._record.offset

    def timestamp(self) -> tuple[int, int]:
        return 1, self._record.timestamp


def view_of(partition: int, record: Record) -> LetterView | None:
    """Return what a letter says; None for what is none."""
    found = letter_of(_AsMessage(partition, record))
    if found is not None:
        kind = QUARANTINE if found.is_quarantined else PIPELINE
        return LetterView(kind, found.origin, found.reason, found.source)
    told = {
        name.removeprefix(PREFIX): bytes(value or b"").decode(errors="replace")
        for name, value in record.headers
        if name.startswith(PREFIX)
    }
    index, offset = told.get("partition", ""), told.get("offset", "")
    if not told.get("topic") or not index.isdecimal() or not offset.isdecimal():
        return None
    origin = Origin(told["topic"], "", int(index), int(offset))
    return LetterView(SHARE, origin, told.get("message", ""), told.get("group", ""))


class Quarantines:
    """Which topics are quarantines of others, as far as somebody may see their settings.

    Brokers take a while to describe thousands of topics: each is asked for again after a minute.
    Any thread.
    """

    def __init__(self) -> None:
        # By topic: its quarantine, and when we heard of it.
        self._known: dict[str, tuple[str, float]] = {}

    def of(self, cluster: Cluster, state: ClusterState) -> set[str]:
        known = self._known
        since = time.monotonic() - _FRESH_S
        names = [name for name, topic in state.topics.items() if not topic.is_internal]
        old = [name for name in names if name not in known or known[name][1] < since]
        now = time.monotonic()
        found = _quarantines(cluster, old)
        known = {name: known[name] for name in names if name in known}
        known |= {name: (found.get(name, ""), now) for name in old}
        self._known = known
        return {aside for aside, _ in known.values() if aside}


def _quarantines(cluster: Cluster, topics: Collection[str]) -> dict[str, str]:
    """Ask for the quarantines of these topics; those that have none are left out."""
    if not topics:
        return {}
    resources = [
        {
            "resource_type": _TOPIC_RESOURCE,
            "resource_name": name,
            "configuration_keys": [_QUARANTINE],
        }
        for name in topics
    ]
    values = {"resources": resources}
    answer = cluster.insist(lambda: cluster.some_broker().ask(Api.DESCRIBE_CONFIGS, values))
    return {
        str(one.resource_name): str(each.value)
        for one in answer.results
        if not one.error_code
        for each in one.configs
        if each.name == _QUARANTINE and each.value
    }


def letter_topics(state: ClusterState, named: Iterable[str]) -> list[str]:
    """Return the topics that hold dead letters, by what pipelines and settings say and by their
    names."""
    wanted = {name for name in named if name in state.topics}
    wanted.update(
        name
        for name, topic in state.topics.items()
        if _LIKE_LETTERS.search(name) and not topic.is_internal
    )
    return sorted(wanted)


def may_move(cluster: Cluster, views: Iterable[LetterView]) -> dict[tuple[str, str], bool]:
    """Return by kind and origin whether we may move letters back, as far as brokers tell.

    They do not tell of transactional ids, nor who may create `__moldau_redrives`.
    """
    wanted = {(view.kind, view.origin.topic) for view in views}
    if not wanted:
        return {}
    # Anybody can write headers: a name that no topic can have is not asked about.
    topics = {topic for _, topic in wanted if _NAME.fullmatch(topic)} | {REDRIVES}
    state = read_state(cluster, topics, with_rights=True)
    writable = {name: _is_writable(topic) for name, topic in state.topics.items()}
    return {
        (kind, topic): writable.get(topic, True) and (kind == SHARE or writable[REDRIVES])
        for kind, topic in wanted
    }


def _is_writable(topic: Topic) -> bool:
    if topic.error == Error.TOPIC_AUTHORIZATION_FAILED:
        return False
    names = operation_names(topic.operations)
    # That a topic is gone is said to who tries.
    return not topic.partitions or names is None or "Write" in names


class Moved:
    """Which letters of a topic were moved back. For one thread."""

    def __init__(self, cluster: Cluster, topic: str) -> None:
        self._topic = topic
        self._cluster = cluster
        self._keys: frozenset[bytes] | None = None
        self._topic_id: str | None = None
        # By share group and partition: how far, and which ones behind that.
        self._groups: dict[str, dict[int, tuple[int, set[int]]]] = {}

    def has(self, view: LetterView, partition: int, offset: int) -> bool:
        if view.kind != SHARE:
            if self._keys is None:
                self._keys = frozenset(_redriven(self._cluster))
            return self._key(view, partition, offset) in self._keys
        if view.of not in self._groups:
            self._groups[view.of] = self._of_group(view.of)
        position, ahead = self._groups[view.of].get(partition, (0, set()))
        return offset < position or offset in ahead

    def _key(self, view: LetterView, partition: int, offset: int) -> bytes:
        if view.kind == PIPELINE:
            return view.origin.key()
        if self._topic_id is None:
            self._topic_id = topic_id_of(self._cluster, self._topic)
        return quarantined_key(self._topic, self._topic_id, partition, offset)

    def _of_group(self, group: str) -> dict[int, tuple[int, set[int]]]:
        found: dict[int, tuple[int, set[int]]] = {}
        # Nothing is known to be moved by a group that we may not see.
        with suppress(Refused):
            committed = committed_texts(self._cluster, f"moldau-redrive.{group}")
            for (topic, index), (offset, text) in committed.items():
                if topic == self._topic:
                    found[index] = offset, offsets_in(offset, text)
        return found


def _redriven(cluster: Cluster) -> Iterator[bytes]:
    state = read_state(cluster, [REDRIVES])
    for (topic, index), (start, _) in bounds(cluster, state, state.places()).items():
        for record, _ in read_all(cluster, topic, index, start):
            if record.key is not None:
                yield bytes(record.key)
