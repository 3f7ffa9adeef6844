"""The history of a group, as its coordinator knows it: its epochs, and why it rebalanced."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec

from moldau.cli.lag import GroupView
from moldau.cli.requests import connect_cluster
from moldau.cli.views.group import duration
from moldau.cli.views.output import Failure, show, show_json, show_table
from moldau.peer.errors import Refused
from moldau.peer.groups import CONSUMER, ConsumerGroupInfo, Groups, History, Rebalance


@dataclass(frozen=True, slots=True)
class Past:
    """A group's kind, its epochs if it has them, and its last rebalance if that is known."""

    kind: str
    info: ConsumerGroupInfo | None
    last: Rebalance | None

    @property
    def late(self) -> list[str]:
        """The members that have not come to the last assignment, for which others may wait."""
        info = self.info
        if info is None:
            return []
        return [each.id for each in info.members if each.epoch != info.assignment_epoch]

    def lines(self) -> list[str]:
        info = self.info
        lines = [f"kind: {self.kind}"]
        if info is not None:
            lines[0] += (
                f", group epoch {info.epoch}, assigned for epoch {info.assignment_epoch} by "
                f"{info.assignor}"
            )
        if self.late:
            lines.append(f"still on an older assignment: {', '.join(self.late)}")
        if self.last is not None:
            when = f"{_time(self.last.ended_ms)}, in {duration(self.last.took_ms / 1000)}"
            lines.append(f"last rebalance: {when}, because {self.last.why}")
        return lines

    def as_json(self) -> dict[str, Any]:
        info = self.info
        return {
            "epoch": None if info is None else info.epoch,
            "assignment_epoch": None if info is None else info.assignment_epoch,
            "not_there_yet": self.late,
            "last_rebalance": None if self.last is None else msgspec.to_builtins(self.last),
        }


def last_of(bootstrap: str, view: GroupView) -> Past:
    """Ask a group's coordinator; Kafka's does not know why groups rebalanced."""
    info, last = None, None
    with connect_cluster(bootstrap) as cluster:
        groups = Groups(cluster)
        if view.described.kind == CONSUMER:
            info = groups.consumer_group(view.group)
        with contextlib.suppress(Refused):
            past = groups.history(view.group).rebalances
            last = past[-1] if past else None
    return Past(view.described.kind, info, last)


def show_history(bootstrap: str, names: Sequence[str], *, as_json: bool) -> None:
    """Show the last rebalances of groups, the oldest first."""
    with connect_cluster(bootstrap) as cluster:
        found = {name: _history(Groups(cluster), name) for name in names}
    if as_json:
        for name, past in found.items():
            rebalances = msgspec.to_builtins(past.rebalances)
            show_json({"group": name, "since_ms": past.since_ms, "history": rebalances})
        return
    for name, past in found.items():
        since = "" if past.since_ms is None else f" since {_time(past.since_ms)}"
        if not past.rebalances:
            show(f"{name}: no rebalances{since}", "dim", stderr=True)
            continue
        show(name, "bold")
        show_table(
            ("WHEN", "TOOK", "EPOCH", "MEMBERS", "BY", "WHY"),
            [
                (
                    _time(each.ended_ms),
                    duration(each.took_ms / 1000),
                    each.epoch,
                    each.members,
                    each.assignor or "-",
                    each.why,
                )
                for each in past.rebalances
            ],
        )
        if since:
            show(f"kept{since}, when this coordinator took over", "dim", stderr=True)


def _history(groups: Groups, name: str) -> History:
    try:
        return groups.history(name)
    except Refused as problem:
        raise Failure(
            f"the history of {name} is not known: {problem}", "see `moldau groups list`"
        ) from None


def _time(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000).strftime("%Y-%m-%d %H:%M:%S")
