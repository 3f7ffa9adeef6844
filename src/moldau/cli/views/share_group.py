"""A share group on the screen: for people as text and tables, for programs as JSON."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from moldau.cli.views.group import duration, or_dash
from moldau.cli.views.output import table_lines
from moldau.peer.share_groups import ShareGroupInfo
from moldau.topic_partition import TopicPartition

if TYPE_CHECKING:
    from rich.text import Text

# The age of the oldest message of a partition that is not finished, in seconds.
Ages = Mapping[TopicPartition, float]


def ages(group: ShareGroupInfo, bootstrap: str) -> dict[TopicPartition, float]:
    """Look up how old the oldest messages are that are not finished."""
    from moldau.client.connection import librdkafka_settings
    from moldau.client.consumer.message_times import MessageTimes

    starts = {
        (each.topic, each.partition): each.start
        for each in group.partitions
        if each.start >= 0 and each.lag > 0
    }
    times = MessageTimes(librdkafka_settings(bootstrap, {}))
    try:
        found = times.at(starts)
    finally:
        times.close()
    return {place: max(time.time() - stamp / 1000, 0.0) for place, stamp in found.items()}


def share_summary(group: ShareGroupInfo, oldest: Ages) -> str:
    members = f"{len(group.members)} member{'s' if len(group.members) != 1 else ''}"
    left = sum(max(each.lag, 0) for each in group.partitions)
    flying = sum(each.in_flight or 0 for each in group.partitions)
    text = f"{group.name}: share group, {group.state.lower()}, {members}, {left} left"
    text += f", {flying} in flight"
    return f"{text}, the oldest {duration(max(oldest.values()))} old" if oldest else text


def share_lines(group: ShareGroupInfo, oldest: Ages) -> list[Text | str]:
    from rich.text import Text

    lines: list[Text | str] = [Text(share_summary(group, oldest), "bold")]
    if group.members:
        lines += table_lines(
            ("MEMBER", "CLIENT", "HOST", "PARTITIONS", "ID"),
            [
                (number, each.client_id, each.host, len(each.partitions), each.id)
                for number, each in enumerate(group.members, 1)
            ],
        )
    if group.partitions:
        heads = ("TOPIC", "PARTITION", "START", "LEFT", "IN FLIGHT", "RETRY", "REDELIVERED")
        lines += table_lines(
            (*heads, "DEAD", "OLDEST"),
            [
                (
                    each.topic,
                    each.partition,
                    or_dash(each.start if each.start >= 0 else None),
                    or_dash(each.lag if each.lag >= 0 else None),
                    or_dash(each.in_flight),
                    or_dash(each.waiting),
                    or_dash(each.redelivered),
                    or_dash(each.dead),
                    duration(oldest[each.topic, each.partition])
                    if (each.topic, each.partition) in oldest
                    else "-",
                )
                for each in group.partitions
            ],
        )
    return lines


def share_as_json(group: ShareGroupInfo, oldest: Ages) -> dict[str, Any]:
    found: dict[str, Any] = msgspec.to_builtins(group)
    found["group"] = found.pop("name")
    for each in found["partitions"]:
        each["oldest_s"] = oldest.get((each["topic"], each["partition"]))
    return {"kind": "share", **found}
