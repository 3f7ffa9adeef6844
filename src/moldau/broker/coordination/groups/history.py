"""History: the last changes of a group, each with its cause and how long it took."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

from moldau.broker.coordination.groups.report import Rebalanced

_KEPT = 100


class PastRebalance(NamedTuple):
    """A rebalance that is over: when it ended, by the wall clock, and what led to it."""

    ended_at_ms: int
    kind: str
    rebalanced: Rebalanced


class History:
    """The last hundred rebalances of a group, the oldest first.

    It is the coordinator's own and is not written down: it begins at `since_ms`, by the wall clock,
    when this broker became the coordinator.
    """

    __slots__ = ("_past", "since_ms")

    def __init__(self, since_ms: int) -> None:
        self.since_ms = since_ms
        self._past: deque[PastRebalance] = deque(maxlen=_KEPT)

    def __iter__(self) -> Iterator[PastRebalance]:
        return iter(self._past)

    @property
    def last(self) -> PastRebalance | None:
        return self._past[-1] if self._past else None

    def add(self, ended_at_ms: int, kind: str, rebalanced: Rebalanced) -> None:
        self._past.append(PastRebalance(ended_at_ms, kind, rebalanced))

    def as_json(self) -> str:
        """Return it for tools: the oldest first, times in milliseconds of the wall clock."""
        return json.dumps(
            [
                {
                    "ended_ms": past.ended_at_ms,
                    "took_ms": past.rebalanced.took_ms,
                    "kind": past.kind,
                    "epoch": past.rebalanced.generation,
                    "members": past.rebalanced.members,
                    "assignor": past.rebalanced.protocol,
                    "why": past.rebalanced.why,
                    "needs_action": past.rebalanced.needs_action,
                }
                for past in self._past
            ]
        )
