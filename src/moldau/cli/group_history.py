"""What a group's coordinator knows besides: its epochs, and why it rebalanced."""

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
from moldau.peer.groups import CONSUMER, ConsumerGroupInfo, Groups, Rebalance


@dataclass(frozen=True, slots=True)
class Past:
    """A group's kind, its epochs if it has them, and its last rebalance if that is known."""

    kind: str
    info: ConsumerGroupInfo | None
    last: Rebalance | None

    def lines(self) -> list[str]:
        info = self.info
        lines = [f"kind: {self.kind}"]
        if info is not None:
            lines[0] += (
                f", group epoch {info.epoch}, assigned for epoch {info.assignment_epoch} by "
                f"{info.assignor}"
            )
            late = [each.id for each in info.members if each.epoch != info.assignment_epoch]
            if late:
                lines.append(f"not there yet: {', '.join(late)}")
        if self.last is not None:
            when = f"{_when(self.last)}, in {duration(self.last.took_ms / 1000)}"
            lines.append(f"last rebalance: {when}, because {self.last.why}")
        return lines

    def as_json(self) -> dict[str, Any]:
        info = self.info
        return {
            "epoch": None if info is None else info.epoch,
            "assignment_epoch": None if info is None else info.assignment_epoch,
            "last_rebalance": None if self.last is None else msgspec.to_builtins(self.last),
        }


def last_of(bootstrap: str, view: GroupView) -> Past:
    """Ask a group's coordinator; Kafka's does not know why groups rebalanced."""
    info, past = None, []
    with connect_cluster(bootstrap) as cluster:
        groups = Groups(cluster)
        if view.described.kind == CONSUMER:
            info = groups.consumer_group(view.group)
        with contextlib.suppress(Refused):
            past = groups.history(view.group)
    return Past(view.described.kind, info, past[-1] if past else None)


def show_history(bootstrap: str, names: Sequence[str], *, as_json: bool) -> None:
    """Show the last rebalances of groups, the oldest first."""
    with connect_cluster(bootstrap) as cluster:
        found = {name: _history(Groups(cluster), name) for name in names}
    if as_json:
        for name, past in found.items():
            show_json({"group": name, "history": msgspec.to_builtins(past)})
        return
    for name, past in found.items():
        if not past:
            show(f"{name}: its coordinator has seen no rebalance", "dim", stderr=True)
            continue
        show(name, "bold")
        show_table(
            ("WHEN", "TOOK", "EPOCH", "MEMBERS", "BY", "WHY"),
            [
                (
                    _when(each),
                    duration(each.took_ms / 1000),
                    each.epoch,
                    each.members,
                    each.assignor or "-",
                    each.why,
                )
                for each in past
            ],
        )


def _history(groups: Groups, name: str) -> list[Rebalance]:
    try:
        return groups.history(name)
    except Refused as problem:
        raise Failure(
            f"the history of {name} is not known: {problem}", "see `moldau groups list`"
        ) from None


def _when(each: Rebalance) -> str:
    return datetime.fromtimestamp(each.ended_ms / 1000).strftime("%Y-%m-%d %H:%M:%S")
