"""Samples: a cluster at one moment, as the console itself sees it, and what changed since."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace

from moldau.console.sampling.groups import GroupLag, committed_offsets, lags, share_lags
from moldau.console.sampling.pipelines import TOPIC as PIPELINES
from moldau.console.sampling.pipelines import PipelineInfo, PipelineStatuses
from moldau.console.sampling.state import ClusterState, bounds, read_state, sizes
from moldau.console.sampling.transactions import HeldBack, read_held_back
from moldau.peer.cluster import Cluster
from moldau.peer.errors import PeerError, Refused
from moldau.peer.groups import Groups, ListedGroup
from moldau.peer.share_groups import SHARE, ShareGroupInfo, ShareGroups
from moldau.topic_partition import TopicPartition
from moldau.wire.errors import Error

# Of more groups, only some are looked at in each sample, in turn.
_GROUPS_AT_ONCE = 200
# Kept for the trend of each partition that a group reads.
_TREND_STEPS = 12
_MOST_TRENDS = 20_000
# A transaction is open for long after minutes, so that seconds more or less do not matter.
_TRANSACTIONS_EVERY_S = 30.0
_DENIED = (Error.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, Error.TOPIC_AUTHORIZATION_FAILED)


@dataclass(frozen=True, slots=True)
class Sample:
    """The cluster at one moment. Sizes are of leaders, by partition."""

    at_ms: int
    state: ClusterState
    bounds: dict[TopicPartition, tuple[int, int]]
    sizes: dict[TopicPartition, int]
    groups: dict[str, ListedGroup]
    lags: dict[str, GroupLag]
    pipelines: list[PipelineInfo] = field(default_factory=list)
    transactions: HeldBack = field(default_factory=HeldBack)
    # Messages a second, by topic; bytes a second of all.
    rates: dict[str, float] = field(default_factory=dict)
    in_msgs: float | None = None
    in_bytes: float | None = None


class Sampler:
    """Takes samples, each with what changed since the one before. For one thread."""

    def __init__(self) -> None:
        self._before: Sample | None = None
        self._lags: dict[str, GroupLag] = {}
        self._turn = 0
        self._statuses = PipelineStatuses()
        self._held_back = HeldBack()
        self._look_at = 0.0
        # By group and partition: when, committed up to where, lag.
        self._trends: dict[tuple[str, TopicPartition], deque[tuple[float, int, int]]] = {}

    def take(self, cluster: Cluster) -> Sample:
        """PeerError if the cluster does not answer."""
        state = read_state(cluster)
        places = state.places()
        known = bounds(cluster, state, places)
        by_broker = sizes(cluster, state)
        led = {
            place: by_broker[leader][place]
            for place in places
            if (leader := state.topics[place[0]].partitions[place[1]].leader) in by_broker
            and place in by_broker[leader]
        }
        groups = {each.name: each for each in Groups(cluster).listed()}
        self._take_groups(cluster, state, groups)
        sample = Sample(
            int(time.time() * 1000), state, known, led, groups, dict(self._lags),
            self._pipelines(cluster, state), self._transactions(cluster, state, known),
        )  # fmt: skip
        sample = self._with_rates(sample)
        self._before = sample
        return sample

    def trend(self, group: str, place: TopicPartition) -> float | None:
        """Return how much the lag of a partition grows a second, over the last two minutes."""
        steps = list(self._trends.get((group, place), ()))
        if len(steps) < 2 or steps[-1][0] <= steps[0][0]:
            return None
        return round((steps[-1][2] - steps[0][2]) / (steps[-1][0] - steps[0][0]), 3)

    def read_rate(self, group: str, place: TopicPartition) -> float | None:
        """Return how many messages of a partition a group commits a second, over the same time."""
        steps = list(self._trends.get((group, place), ()))
        if len(steps) < _TREND_STEPS or steps[-1][0] <= steps[0][0]:
            return None
        return max(0.0, round((steps[-1][1] - steps[0][1]) / (steps[-1][0] - steps[0][0]), 3))

    def _take_groups(
        self, cluster: Cluster, state: ClusterState, groups: dict[str, ListedGroup]
    ) -> None:
        names = sorted(groups)
        first = self._turn % max(len(names), 1)
        chosen = (names[first:] + names[:first])[:_GROUPS_AT_ONCE]
        self._turn = first + len(chosen)
        share = {name for name in chosen if groups[name].kind == SHARE}
        committed = committed_offsets(cluster, [name for name in chosen if name not in share])
        self._lags = {name: lag for name, lag in self._lags.items() if name in groups}
        found = lags(cluster, state, committed)
        found |= share_lags(cluster, state, _shared(cluster, share))
        self._lags |= found
        now = time.monotonic()
        for group, lag in found.items():
            for place, part in lag.partitions.items():
                has_room = len(self._trends) < _MOST_TRENDS or (group, place) in self._trends
                if has_room and part.lag is not None and part.committed is not None:
                    # A share group finishes messages behind its first one, too.
                    read = part.end - part.lag if group in share else part.committed
                    steps = self._trends.setdefault((group, place), deque(maxlen=_TREND_STEPS))
                    steps.append((now, read, part.lag))
        for key in [each for each in self._trends if each[0] not in groups]:
            del self._trends[key]

    def _transactions(
        self,
        cluster: Cluster,
        state: ClusterState,
        known: Mapping[TopicPartition, tuple[int, int]],
    ) -> HeldBack:
        now = time.monotonic()
        if now >= self._look_at:
            self._look_at = now + _TRANSACTIONS_EVERY_S
            try:
                self._held_back = read_held_back(cluster, state, known)
            except Refused as refused:
                is_denied = refused.code in _DENIED
                self._held_back = HeldBack(unseen=str(refused) if is_denied else "")
            except PeerError:
                self._held_back = HeldBack()
        return self._held_back

    def _pipelines(self, cluster: Cluster, state: ClusterState) -> list[PipelineInfo]:
        if PIPELINES not in state.topics:
            return []
        try:
            return self._statuses.read(cluster)
        except PeerError:
            return []

    def _with_rates(self, sample: Sample) -> Sample:
        before = self._before
        if before is None or sample.at_ms <= before.at_ms:
            return sample
        seconds = (sample.at_ms - before.at_ms) / 1000
        rates: dict[str, float] = {}
        for place, (_, end) in sample.bounds.items():
            if place in before.bounds:
                grown = max(0, end - before.bounds[place][1])
                rates[place[0]] = rates.get(place[0], 0.0) + grown / seconds
        grown_bytes = [
            max(0, size - before.sizes[place])
            for place, size in sample.sizes.items()
            if place in before.sizes
        ]
        hidden = {name for name, topic in sample.state.topics.items() if topic.is_internal}
        total = sum(rate for name, rate in rates.items() if name not in hidden)
        return replace(
            sample,
            rates=rates,
            in_msgs=total,
            in_bytes=sum(grown_bytes) / seconds if sample.sizes else None,
        )


def _shared(cluster: Cluster, names: Iterable[str]) -> Iterator[ShareGroupInfo]:
    for name in names:
        with suppress(PeerError):
            found = ShareGroups(cluster).find(name)
            if found is not None:
                yield found


def numbers_of(sample: Sample) -> dict[str, float | None]:
    """Return what the ring keeps of a sample, by the names of series."""
    state = sample.state
    numbers: dict[str, float | None] = {
        "cluster.in_msgs": sample.in_msgs,
        "cluster.in_bytes": sample.in_bytes,
    }
    for name, rate in sample.rates.items():
        numbers[f"topic:{name}.in_msgs"] = rate
    total: dict[str, int] = {}
    for (name, _), size in sample.sizes.items():
        total[name] = total.get(name, 0) + size
    for name, size in total.items():
        numbers[f"topic:{name}.bytes"] = size
    for name, lag in sample.lags.items():
        numbers[f"group:{name}.lag"] = lag.lag
        numbers[f"group:{name}.lag_s"] = lag.lag_s
    leaders = dict.fromkeys(state.brokers, 0)
    for topic in state.topics.values():
        for part in topic.partitions.values():
            if part.leader in leaders:
                leaders[part.leader] += 1
    for id, count in leaders.items():
        numbers[f"broker:{id}.leaders"] = count
    return numbers
