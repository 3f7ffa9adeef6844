"""Departures: brokers that left a moment ago, which clients are still told the addresses of.

librdkafka (2.11 and newer) takes a broker down at once that is missing from a Metadata answer. If
the same answer names a new leader for partitions that the broker led, their move is lost with it,
and they wait for the next look at all topics, a second later: a producer whose leader died took two
such looks instead of one. So an answer about topics lists who left for a while longer. Answers
about the cluster (Metadata without topics, DescribeCluster) never do, and no partition is ever said
to be led by such a broker.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from moldau.cluster.state.changes import AnyChange
from moldau.cluster.state.topics import BrokerInfo

# Longer than clients wait for a broker that fell silent before they ask others (30 s).
LISTED_S = 60.0


class Departures:
    """The brokers that left within the last minute. Event loop only.

    `brokers` is the cluster's own dict of who is there; `changed` is called whenever somebody is
    listed no longer.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        brokers: dict[int, BrokerInfo],
        changed: Callable[[], None],
    ) -> None:
        self._loop = loop
        self._present = brokers
        self._seen = dict(brokers)
        self._changed = changed
        self._left: dict[int, tuple[BrokerInfo, asyncio.TimerHandle]] = {}

    @property
    def brokers(self) -> dict[int, BrokerInfo]:
        """Who left, by id, at the address of old."""
        return {id: info for id, (info, _) in self._left.items()}

    def apply(self, changes: Sequence[AnyChange]) -> None:
        """Notice who came and who went; the state has taken the changes in."""
        if self._seen == self._present:
            return
        for id in self._present.keys() & self._left.keys():
            self._left.pop(id)[1].cancel()
        for id in self._seen.keys() - self._present.keys():
            timer = self._loop.call_later(LISTED_S, self._forget, id)
            self._left[id] = self._seen[id], timer
        self._seen = dict(self._present)

    def close(self) -> None:
        for _, timer in self._left.values():
            timer.cancel()

    def _forget(self, id: int) -> None:
        del self._left[id]
        self._changed()
