"""Diagnosis: why a group is behind, in sentences, from what is known of it. Without I/O."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec

from moldau.topic_partition import TopicPartition

# So many rebalances in so many minutes are too many.
_MANY = 3
_RECENT_MS = 10 * 60_000
_MOST_OF_IT = 0.8


class Reason(msgspec.Struct):
    """One reason, and what to do about it."""

    what: str
    hint: str = ""


@dataclass(frozen=True, slots=True)
class PartitionFacts:
    """What is known of a partition that a group reads: growth is a second, None if unknown."""

    lag: int | None
    lag_s: float | None
    member: str | None
    lag_growth: float | None = None
    read_rate: float | None = None
    # Messages up to here are shown to who reads committed ones only; None if that is all.
    held_at: int | None = None
    committed: int | None = None
    held_by: str = ""


@dataclass(frozen=True, slots=True)
class GroupFacts:
    name: str
    state: str
    members: int
    partitions: Mapping[TopicPartition, PartitionFacts]
    # When, why: the newest first.
    rebalances: list[tuple[int, str]] = field(default_factory=list)
    now_ms: int = 0
    # Members of a share group read every partition.
    is_share: bool = False

    @property
    def lag(self) -> int:
        return sum(each.lag or 0 for each in self.partitions.values())


def diagnose(group: GroupFacts) -> tuple[str, list[Reason]]:
    """Say how far a group is behind, and return the reasons, the weightiest first."""
    if not group.lag:
        return f"{group.name} is not behind", []
    seconds = [each.lag_s for each in group.partitions.values() if each.lag_s is not None]
    since = f", the oldest for {in_words(max(seconds))}" if seconds else ""
    summary = f"{group.name} is {group.lag} messages behind{since}"
    found = [
        *_of_members(group),
        *_of_transactions(group),
        *_of_rebalances(group),
        *_of_partitions(group),
        *_of_rates(group),
    ]
    if not found:
        found = [
            Reason("its members are reading, and nothing seems to hold them up", "check again soon")
        ]
    return summary, found


def _of_members(group: GroupFacts) -> list[Reason]:
    if group.members == 0:
        return [Reason("it has no members, so nobody reads", "start its consumers")]
    if group.is_share:
        return []
    idle = group.members - len(group.partitions)
    without = [place for place, each in group.partitions.items() if each.member is None]
    found = []
    if without and group.state == "stable":
        what = f"nobody reads {_named(without)}"
        found.append(Reason(what, "its members may have subscribed to something else"))
    if idle > 0:
        what = f"{idle} of its {group.members} members have no partition"
        found.append(Reason(what, "more members than partitions do not help; add partitions"))
    return found


def _of_transactions(group: GroupFacts) -> list[Reason]:
    held = {
        place: each
        for place, each in group.partitions.items()
        if each.held_at is not None and each.committed is not None and each.lag
        if each.committed >= each.held_at
    }
    if not held:
        return []
    whose = sorted({each.held_by for each in held.values() if each.held_by})
    by = f" of {', '.join(whose)}" if whose else ""
    return [
        Reason(
            f"an open transaction{by} hides the messages after it in {_named(list(held))}",
            "end it, or wait for its time-out; `moldau transactions` shows it",
        )
    ]


def _of_rebalances(group: GroupFacts) -> list[Reason]:
    if group.state not in ("stable", "empty", "dead"):
        why = f": {group.rebalances[0][1]}" if group.rebalances else ""
        return [Reason(f"it is rebalancing now ({group.state}){why}", "wait until it is stable")]
    recent = [each for each in group.rebalances if group.now_ms - each[0] < _RECENT_MS]
    if len(recent) >= _MANY:
        what = (
            f"it rebalanced {len(recent)} times in ten minutes, most recently because "
            f"{recent[0][1]}"
        )
        hint = "check whether members take too long between polls, or restart"
        return [Reason(what, hint)]
    return []


def _of_partitions(group: GroupFacts) -> list[Reason]:
    """Find a partition that has most of the lag, and those that stand still."""
    found = []
    still = [
        place
        for place, each in group.partitions.items()
        if each.lag and each.member is not None and each.read_rate == 0
    ]
    if still and group.is_share and group.members:
        what = f"nothing was finished in {_named(still)} for two minutes"
        hint = "its members may be stuck on a message, or do not acknowledge"
        found.append(Reason(what, hint))
    elif still and not group.is_share:
        members = sorted({str(group.partitions[place].member) for place in still})
        what = f"nothing was committed in {_named(still)} for two minutes, by {', '.join(members)}"
        hint = "these members may be stuck on a message, or do not commit"
        found.append(Reason(what, hint))
    if len(group.partitions) >= 3:
        place, worst = max(group.partitions.items(), key=lambda each: each[1].lag or 0)
        if (worst.lag or 0) > _MOST_OF_IT * group.lag:
            what = f"most of the lag is in {_named([place])}, read by {worst.member or 'nobody'}"
            found.append(
                Reason(what, "a few keys may have most of the messages, or that member is slow")
            )
    return found


def _of_rates(group: GroupFacts) -> list[Reason]:
    growths = [each.lag_growth for each in group.partitions.values() if each.lag_growth is not None]
    if not growths or group.members == 0:
        return []
    growth = sum(growths)
    reads = sum(each.read_rate or 0.0 for each in group.partitions.values())
    if growth > 0:
        done = "finish" if group.is_share else "commit"
        what = (
            f"producers write faster than its members read: they {done} {reads:.1f} messages a "
            f"second, and the lag grows by {growth:.1f}"
        )
        if group.is_share:
            return [Reason(what, "add members, or make each faster")]
        room = len(group.partitions) - group.members
        hint = (
            f"up to {room} more members can share the work"
            if room > 0
            else "make each member faster, or add partitions and members"
        )
        return [Reason(what, hint)]
    if growth < 0:
        left = in_words(group.lag / -growth)
        return [
            Reason(f"it is catching up: the lag shrinks by {-growth:.1f} a second", f"{left} left")
        ]
    return []


def _named(places: list[TopicPartition]) -> str:
    names = [f"{topic}-{index}" for topic, index in sorted(places)]
    if len(names) > 5:
        return f"{', '.join(names[:5])} and {len(names) - 5} more partitions"
    return ", ".join(names)


def in_words(seconds: float) -> str:
    """Return a time as people say it."""
    for unit, size in (("days", 86400), ("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"
