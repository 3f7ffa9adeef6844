"""A group at one moment: its members, its committed offsets and its lag."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from moldau.cli.views.output import Failure

if TYPE_CHECKING:
    from moldau.client.admin.admin import Admin
    from moldau.client.admin.infos import GroupDescription, GroupInfo, MemberInfo, PartitionLag


@dataclass(frozen=True, slots=True)
class GroupView:
    described: GroupDescription
    partitions: list[PartitionLag]

    @property
    def group(self) -> str:
        return self.described.name

    @property
    def state(self) -> str:
        return state_of(self.described)

    @property
    def members(self) -> tuple[MemberInfo, ...]:
        return self.described.members

    @property
    def lag(self) -> int:
        return sum(partition.lag or 0 for partition in self.partitions)

    @property
    def seconds(self) -> float:
        return max((partition.seconds or 0.0 for partition in self.partitions), default=0.0)


def look(admin: Admin, group: str) -> GroupView:
    """Failure when there is no such group."""
    view = GroupView(admin.group(group), admin.lag(group, seconds=True))
    if view.state == "dead" and not view.members and not view.partitions:
        raise Failure(f"there is no group {group}", "see `moldau groups list`")
    return view


def state_of(described: GroupDescription | GroupInfo) -> str:
    """Return a group's state in words: stable, empty, dead, preparing rebalancing."""
    return described.state.replace("_", " ")
