"""Share groups: what is in flight of the partitions that this broker leads, and the lag of groups
whose states it keeps."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from moldau.broker.coordination.share.batches import ACQUIRED, AVAILABLE
from moldau.broker.slices import Slices
from moldau.http.metrics.families import Families, Kind, labels
from moldau.http.metrics.lag import Ends
from moldau.topic_partition import TopicPartition

if TYPE_CHECKING:
    from moldau.broker.server import Broker

_AT_A_TIME = 200
_KAFKA = "kafka_server_sharepartitionmetrics_"
_GROUP = "moldau_sharegroup_"
_SERIES: tuple[tuple[str, Kind, str], ...] = (
    (f"{_KAFKA}inflightmessagecount", "gauge", "Messages that members of a share group hold."),
    (f"{_KAFKA}acquisitionlocktimeout_total", "counter", "Messages whose locks ran out."),
    (f"{_GROUP}waiting", "gauge", "Messages waiting to be delivered again."),
    (f"{_GROUP}redelivered_total", "counter", "Deliveries after the first."),
    (f"{_GROUP}dead_total", "counter", "Messages that were rejected or delivered too often."),
)


class Shares:
    """The share groups of one broker. Event loop only."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._ends = Ends(broker)

    async def add_to(self, families: Families, slices: Slices, *, one_by_one: bool) -> None:
        """Add the families of share groups to those of a scrape."""
        await self._add_flight(families, slices, one_by_one)
        await self._add_lag(families, slices, one_by_one)

    async def _add_flight(self, families: Families, slices: Slices, one_by_one: bool) -> None:
        """Add what is in flight, as the leaders of partitions know it.

        Counts begin when this broker begins to lead a partition, or its group to read.
        """
        shares = self._broker.shares_in_use
        totals: dict[tuple[str, str], Counter[str]] = {}
        each_of = {name: families.family(name, kind, about) for name, kind, about in _SERIES}
        for number, shared in enumerate(shares or (), 1):
            machine = shared.machine
            if machine is not None:
                figures = (
                    machine.count(ACQUIRED), machine.expired, machine.count(AVAILABLE),
                    machine.redelivered, machine.dead,
                )  # fmt: skip
                place = (shared.key.group, shared.partition.topic)
                total = totals.setdefault(place, Counter())
                for (name, _, _), figure in zip(_SERIES, figures, strict=True):
                    total[name] += figure
                if one_by_one:
                    group, topic = place
                    where = labels(group=group, topic=topic, partition=shared.partition.index)
                    for (name, _, _), figure in zip(_SERIES, figures, strict=True):
                        each_of[name].add(figure, where)
            if number % _AT_A_TIME == 0:
                await slices.rest()
        if not one_by_one:
            for (group, topic), total in totals.items():
                for name, family in each_of.items():
                    family.add(total[name], labels(group=group, topic=topic))
        families.counter(
            "moldau_dead_letters_total", "Dead letters of share groups that were written.",
            0 if shares is None else shares.dead_letters.buried,
        )  # fmt: skip
        families.counter(
            "moldau_dead_letters_failed_total", "Times that dead letters could not be written.",
            0 if shares is None else shares.dead_letters.failed,
        )  # fmt: skip

    async def _add_lag(self, families: Families, slices: Slices, one_by_one: bool) -> None:
        """Add what is not finished, as it is written down: of groups that nobody is in, too."""
        lag = families.family(
            f"{_GROUP}lag", "gauge", "Messages that a share group has yet to finish."
        )
        age = families.family(
            f"{_GROUP}lag_seconds", "gauge",
            "Age of the first message that a share group has yet to finish; 0 if there is none.",
        )  # fmt: skip
        oldest = families.family(
            f"{_GROUP}lag_seconds_max", "gauge", "The same, for the oldest message of a topic."
        )
        groups = await self._starts(slices)
        ends = await self._ends.high_watermarks({key for each in groups.values() for key in each})
        self._ends.forget_others(groups)
        now_ms = self._broker.node.now_ms()
        for group, starts in groups.items():
            left = {
                key: max(ends[key] - start - finished, 0)
                for key, (start, finished) in starts.items()
                if key in ends
            }
            times = await self._ends.times(
                {key: starts[key][0] for key, count in left.items() if count}, group
            )
            lags: Counter[str] = Counter()
            ages: dict[str, float] = {}
            for number, ((topic, index), count) in enumerate(left.items(), 1):
                where = labels(group=group, topic=topic, partition=index)
                lags[topic] += count
                if one_by_one:
                    lag.add(count, where)
                if not count or (topic, index) in times:
                    since_ms = times.get((topic, index), now_ms)
                    seconds = max(0, now_ms - since_ms) / 1000
                    ages[topic] = max(seconds, ages.get(topic, 0.0))
                    if one_by_one:
                        age.add(seconds, where)
                if number % _AT_A_TIME == 0:
                    await slices.rest()
            for topic, seconds in ages.items():
                oldest.add(seconds, labels(group=group, topic=topic))
            if not one_by_one:
                for topic, count in lags.items():
                    lag.add(count, labels(group=group, topic=topic))

    async def _starts(self, slices: Slices) -> dict[str, dict[TopicPartition, tuple[int, int]]]:
        """Return, by group, the first offsets that are not finished, and how many are after."""
        broker = self._broker
        groups: dict[str, dict[TopicPartition, tuple[int, int]]] = {}
        shares = broker.shares_in_use
        if shares is None:
            return groups
        states = [each for shard in shares.states.shards for each in shard.by_key.items()]
        for number, (key, state) in enumerate(states, 1):
            topic = broker.state.topics_by_id.get(key.topic_id)
            if topic is not None and state.start >= 0:
                place = (topic.name, key.partition)
                groups.setdefault(key.group, {})[place] = (state.start, max(state.finished, 0))
            if number % _AT_A_TIME == 0:
                await slices.rest()
        return groups
