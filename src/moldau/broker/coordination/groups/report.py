"""Reports of rebalances: the reasons, gathered while they happen and logged in one line."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

import msgspec

from moldau.cluster.state.internal_topics import CONSUMER_OFFSETS

_SHOWN = 5


class Cause(Enum):
    """The causes of a rebalance: the words for each, and what to do about it."""

    JOINED = ("joined", "")
    LEFT = ("left", "")
    RESTARTED = ("came back under its group.instance.id", "")
    CHANGED = ("changed its subscription or handed partitions over", "")
    LEADER_ASKED = ("requested a rebalance as the leader", "")
    SHRUNK = ("had no room left under group.max.size", "")
    SILENT = (
        "sent no heartbeat within its session timeout",
        "check whether it still runs; if it only pauses for that long, raise its "
        "session.timeout.ms",
    )
    LATE = (
        "did not rejoin within the rebalance timeout",
        "check what delays it between polls, or raise its max.poll.interval.ms",
    )
    UNSYNCED = (
        "did not fetch its assignment",
        "check whether it still runs; it is out of the group until it rejoins",
    )
    RESUBSCRIBED = ("changed its subscription", "")
    TOPICS_CHANGED = ("sent a heartbeat after its topics had changed", "")
    MATCHED = ("matches other topics", "")
    CONVERTED = ("changed the protocol of the group", "")
    STUCK = (
        "did not give up its partitions within the rebalance timeout",
        "check what delays it between polls, or raise its max.poll.interval.ms",
    )
    UNSTORED = (
        "sent an assignment that could not be stored",
        f"check the broker's log for {CONSUMER_OFFSETS.name}",
    )

    def __init__(self, phrase: str, advice: str) -> None:
        self.phrase = phrase
        self.advice = advice


class Reasons(msgspec.Struct):
    """The events since a rebalance began; as small for a thousand members as for ten."""

    began: int
    members: dict[Cause, list[str]] = msgspec.field(default_factory=dict)
    counts: dict[Cause, int] = msgspec.field(default_factory=dict)

    def add(self, cause: Cause, member: str) -> None:
        self.counts[cause] = self.counts.get(cause, 0) + 1
        shown = self.members.setdefault(cause, [])
        if len(shown) < _SHOWN:
            shown.append(member)


class Rebalanced(msgspec.Struct, frozen=True):
    """A rebalance that is over."""

    group: str
    generation: int
    members: int
    protocol: str | None
    leader: str | None
    took_ms: int
    reasons: Reasons

    @property
    def needs_action(self) -> bool:
        return any(cause.advice for cause in self.reasons.counts)

    @property
    def why(self) -> str:
        """The causes in words."""
        # Names are the clients' own, so they are quoted: a line break in one must not make a line.
        told = "; ".join(
            f"{_names(shown, self.reasons.counts[cause])} {cause.phrase}"
            for cause, shown in self.reasons.members.items()
        )
        return told or "it was asked to"

    def __str__(self) -> str:
        if self.members:
            s = "" if self.members == 1 else "s"
            now = f"{self.members} member{s} by {self.protocol!r}"
            if self.leader is not None:
                now += f", led by {self.leader!r}"
        else:
            now = "it is empty"
        advice = [cause.advice for cause in self.reasons.counts if cause.advice]
        act = f"To do: {'; '.join(advice)}." if advice else "Nothing to do."
        return (
            f"group {self.group!r} rebalanced to generation {self.generation} in {self.took_ms} ms"
            f" because {self.why}. Now {now}. {act}"
        )


def _names(shown: Sequence[str], count: int) -> str:
    names = ", ".join(repr(name) for name in shown)
    more = count - len(shown)
    return f"{names} and {more} more" if more else names
