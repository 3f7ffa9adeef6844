"""Groups: members, committed offsets and lag of those that this broker coordinates."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from moldau.broker.slices import Slices
from moldau.http.metrics.families import Families, labels
from moldau.http.metrics.lag import Ends
from moldau.wire.errors import Error

if TYPE_CHECKING:
    from moldau.broker.server import Broker

# How many offsets are written down before the loop serves others again.
_AT_A_TIME = 200
_MANAGER = "kafka_coordinator_group_groupmetadatamanager_"
_GROUP = "kafka_consumergroup_"


class Groups:
    """The groups of one broker. Event loop only."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._ends = Ends(broker)

    async def add_to(self, families: Families, slices: Slices, *, one_by_one: bool) -> None:
        """Add the families to those of a scrape; nothing while groups are still being loaded."""
        held = self._broker.groups.list_groups()
        if isinstance(held, Error):
            return
        committed: dict[str, dict[tuple[str, int], int]] = {}
        states: Counter[str] = Counter()
        members = families.family(f"{_GROUP}members", "gauge", "Members of a group.")
        for number, each in enumerate(held, 1):
            group = each.group
            states[group.state_name] += 1
            members.add(len(group.members), labels(consumergroup=group.id))
            committed[group.id] = {key: at.offset for key, at in each.offsets}
            if number % _AT_A_TIME == 0:
                await slices.rest()
        families.gauge(f"{_MANAGER}numgroups", "Groups that this broker coordinates.", len(held))
        families.gauge(
            f"{_MANAGER}numoffsets", "Offsets that they have committed.",
            sum(map(len, committed.values())),
        )  # fmt: skip
        for state in ("PreparingRebalance", "CompletingRebalance", "Stable", "Dead", "Empty"):
            families.gauge(
                f"{_MANAGER}numgroups{state.lower()}", f"Groups in state {state}.", states[state]
            )
        ends = await self._ends.high_watermarks(
            {key for each in committed.values() for key in each}
        )
        for group_id, offsets in committed.items():
            await self._add_group(group_id, offsets, ends, families, slices, one_by_one)
        self._ends.forget_others(committed)
        await self._add_seconds(committed, ends, families, slices, one_by_one)

    async def _add_group(
        self,
        group_id: str,
        offsets: dict[tuple[str, int], int],
        ends: dict[tuple[str, int], int],
        families: Families,
        slices: Slices,
        one_by_one: bool,
    ) -> None:
        at = families.family(f"{_GROUP}current_offset", "gauge", "Offset committed by a group.")
        behind = families.family(f"{_GROUP}lag", "gauge", "Messages that a group has yet to read.")
        of_topics: Counter[str] = Counter()
        lags: Counter[str] = Counter()
        for number, ((topic, index), offset) in enumerate(offsets.items(), 1):
            of_topics[topic] += offset
            end = ends.get((topic, index))
            where = labels(consumergroup=group_id, topic=topic, partition=index)
            if end is not None:
                lags[topic] += max(0, end - offset)
            if one_by_one:
                at.add(offset, where)
                if end is not None:
                    behind.add(max(0, end - offset), where)
            if number % _AT_A_TIME == 0:
                await slices.rest()
        for name, about, sums in (
            ("current_offset_sum", "Sum of the offsets that a group committed.", of_topics),
            ("lag_sum", "Messages of a topic that a group has yet to read.", lags),
        ):
            families.gauges(
                _GROUP + name, about,
                ((labels(consumergroup=group_id, topic=each), sums[each]) for each in sums),
            )  # fmt: skip

    async def _add_seconds(
        self,
        committed: dict[str, dict[tuple[str, int], int]],
        ends: dict[tuple[str, int], int],
        families: Families,
        slices: Slices,
        one_by_one: bool,
    ) -> None:
        """Add how long ago the first message was written that a group has yet to read."""
        now_ms = self._broker.node.now_ms()
        each_of = families.family(
            "moldau_consumergroup_lag_seconds", "gauge",
            "Age of the first message that a group has yet to read; 0 if there is none.",
        )  # fmt: skip
        largest = families.family(
            "moldau_consumergroup_lag_seconds_max",
            "gauge",
            "The same, for the oldest message of a topic.",
        )
        for group_id, offsets in committed.items():
            lagging = {key: at for key, at in offsets.items() if at < ends.get(key, -1)}
            times = await self._ends.times(lagging, group_id)
            oldest: dict[str, float] = {}
            for number, (key, at) in enumerate(offsets.items(), 1):
                if key in times:
                    seconds = max(0, now_ms - times[key]) / 1000
                elif at >= ends.get(key, at + 1):
                    seconds = 0.0
                else:
                    continue
                topic, index = key
                oldest[topic] = max(seconds, oldest.get(topic, 0.0))
                if one_by_one:
                    where = labels(consumergroup=group_id, topic=topic, partition=index)
                    each_of.add(seconds, where)
                if number % _AT_A_TIME == 0:
                    await slices.rest()
            for topic, seconds in oldest.items():
                largest.add(seconds, labels(consumergroup=group_id, topic=topic))
