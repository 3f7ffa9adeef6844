"""Dead letters: which topics hold them, what each letter says, and which were moved back.

pipelines       headers moldau.origin.*, moldau.reason; moved ones are in `__moldau_redrives`
share groups    headers __dlq.errors.*; how far they were moved, and which ones behind that, is
                committed for a group
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import NamedTuple

from moldau.client.letters.ahead import offsets_in
from moldau.client.pipelines.letters import Origin, letter_of
from moldau.client.pipelines.redrive import TOPIC as REDRIVES
from moldau.client.queue.redrive import PREFIX
from moldau.console.records import read_all
from moldau.console.sampling.groups import committed_texts
from moldau.console.sampling.state import ClusterState, bounds, read_state
from moldau.peer.cluster import Cluster
from moldau.peer.errors import Refused
from moldau.records.record import Record

PIPELINE, SHARE = "pipeline", "share"
_LIKE_LETTERS = re.compile(r"(^|[-._])(dlq|dead[-._]?letters?)($|[-._])", re.IGNORECASE)


class LetterView(NamedTuple):
    """What a letter says of itself."""

    kind: str
    origin: Origin
    reason: str
    # The share group that gave it up, or the source of the pipeline.
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
        return LetterView(PIPELINE, found.origin, found.reason, found.source)
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


def letter_topics(state: ClusterState, named: Iterable[str]) -> list[str]:
    """Return the topics that hold dead letters, by what pipelines say and by their names."""
    wanted = {name for name in named if name in state.topics}
    wanted.update(
        name
        for name, topic in state.topics.items()
        if _LIKE_LETTERS.search(name) and not topic.is_internal
    )
    return sorted(wanted)


class Moved:
    """Which letters of a topic were moved back. For one thread."""

    def __init__(self, cluster: Cluster, topic: str) -> None:
        self._topic = topic
        self._cluster = cluster
        self._keys: frozenset[bytes] | None = None
        # By share group and partition: how far, and which ones behind that.
        self._groups: dict[str, dict[int, tuple[int, set[int]]]] = {}

    def has(self, view: LetterView, partition: int, offset: int) -> bool:
        if view.kind == PIPELINE:
            if self._keys is None:
                self._keys = frozenset(_redriven(self._cluster))
            return view.origin.key() in self._keys
        if view.of not in self._groups:
            self._groups[view.of] = self._of_group(view.of)
        position, ahead = self._groups[view.of].get(partition, (0, set()))
        return offset < position or offset in ahead

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
