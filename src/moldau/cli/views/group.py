"""A group on the screen: for people as text and tables, for programs as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from moldau.cli.lag import GroupView
from moldau.cli.views.output import table_lines

if TYPE_CHECKING:
    from rich.text import Text


def summary(view: GroupView) -> str:
    members = f"{len(view.members)} member{'s' if len(view.members) != 1 else ''}"
    lag = f"{view.lag} message{'s' if view.lag != 1 else ''}"
    return f"{view.group}: {view.state}, {members}, {lag} and {duration(view.seconds)} behind"


def lines_of(view: GroupView, more: Sequence[str] = ()) -> list[Text | str]:
    from rich.text import Text

    numbers = {member.member_id: number for number, member in enumerate(view.members, 1)}
    lines: list[Text | str] = [Text(summary(view), "bold"), *(Text(each) for each in more)]
    if view.members:
        lines += table_lines(
            ("MEMBER", "CLIENT", "HOST", "PARTITIONS", "ID"),
            [
                (
                    numbers[member.member_id],
                    member.client_id,
                    member.host,
                    len(member.partitions),
                    member.member_id,
                )
                for member in view.members
            ],
        )
    if view.partitions:
        lines += table_lines(
            ("TOPIC", "PARTITION", "COMMITTED", "END", "LAG", "BEHIND", "MEMBER"),
            [
                (
                    partition.topic,
                    partition.partition,
                    or_dash(partition.committed),
                    partition.end,
                    or_dash(partition.lag),
                    "-" if partition.seconds is None else duration(partition.seconds),
                    numbers.get(partition.member or "", "-"),
                )
                for partition in view.partitions
            ],
        )
    return lines


def group_as_json(view: GroupView) -> dict[str, Any]:
    return {
        "group": view.group,
        "kind": view.described.kind,
        "state": view.state,
        "assignor": view.described.assignor,
        "lag": view.lag,
        "seconds_behind": view.seconds,
        "members": [
            {
                "id": member.member_id,
                "client_id": member.client_id,
                "host": member.host,
                "instance_id": member.instance_id,
                "partitions": [
                    {"topic": topic, "partition": index} for topic, index in member.partitions
                ],
            }
            for member in view.members
        ],
        "partitions": [
            {
                "topic": partition.topic,
                "partition": partition.partition,
                "committed": partition.committed,
                "start": partition.start,
                "end": partition.end,
                "lag": partition.lag,
                "seconds_behind": partition.seconds,
                "member": partition.member,
            }
            for partition in view.partitions
        ],
    }


def or_dash(value: int | None) -> str:
    return "-" if value is None else str(value)


def duration(seconds: float) -> str:
    """Seconds for people: `0.4 s`, `3 m 20 s`, `2 h 5 m`, `3 d 4 h`."""
    if seconds < 10:
        return f"{seconds:.1f} s" if seconds else "0 s"
    whole = round(seconds)
    for unit, size, smaller, smaller_size in (
        ("d", 86400, "h", 3600),
        ("h", 3600, "m", 60),
        ("m", 60, "s", 1),
    ):
        if whole >= size:
            return f"{whole // size} {unit} {whole % size // smaller_size} {smaller}"
    return f"{whole} s"
