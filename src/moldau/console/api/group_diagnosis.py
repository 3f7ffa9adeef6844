"""Diagnoses of groups: why one is behind."""

from __future__ import annotations

import time
from contextlib import suppress

import msgspec

from moldau.console.api.groups import GroupInfo, get_group
from moldau.console.call import Call
from moldau.console.diagnosis import GroupFacts, PartitionFacts, Reason, diagnose
from moldau.console.endpoint import endpoint
from moldau.peer.cluster import LATEST
from moldau.peer.errors import PeerError
from moldau.peer.transactions import Transactions
from moldau.topic_partition import TopicPartition


class Diagnosis(msgspec.Struct):
    """How far a group is behind in one sentence, and why, the weightiest reason first."""

    group: str
    summary: str
    reasons: list[Reason]
    lag: int
    lag_s: float | None


@endpoint("GET", "api/groups/{group:path}/why")
def why_is_group_behind(call: Call) -> Diagnosis:
    """Say why a group is behind, and what to do."""
    found = get_group(call)
    summary, reasons = diagnose(_facts(call, found))
    return Diagnosis(found.group, summary, reasons, found.lag, found.lag_s)


def _facts(call: Call, found: GroupInfo) -> GroupFacts:
    watch = call.console.watch
    behind = [(each.topic, each.partition) for each in found.partitions if each.lag]
    held = _held(call, behind)
    partitions = {}
    for each in found.partitions:
        place = (each.topic, each.partition)
        at, by = held.get(place, (None, ""))
        partitions[place] = PartitionFacts(
            each.lag, each.lag_s, each.member, each.trend_per_s,
            watch.read_rate(found.group, place), at, each.committed, by,
        )  # fmt: skip
    for shared in found.share.partitions if found.share is not None else ():
        place = (shared.topic, shared.partition)
        partitions[place] = PartitionFacts(
            shared.lag, shared.lag_s, "all of them", shared.trend_per_s,
            watch.read_rate(found.group, place),
        )  # fmt: skip
    return GroupFacts(
        found.group,
        found.state,
        len(found.members),
        partitions,
        [(each.at_ms, each.cause) for each in found.history],
        int(time.time() * 1000),
        found.share is not None,
    )


def _held(call: Call, places: list[TopicPartition]) -> dict[TopicPartition, tuple[int | None, str]]:
    """Return where open transactions hide messages, and whose they are, as far as we may know."""
    found: dict[TopicPartition, tuple[int | None, str]] = {}
    with suppress(PeerError):
        wanted = dict.fromkeys(places, LATEST)
        ends = call.cluster.list_offsets(wanted)
        stable = call.cluster.list_offsets(wanted, read_committed=True)
        for place, at in stable.items():
            if at.offset < ends[place].offset:
                found[place] = (at.offset, "")
        transactions = Transactions(call.cluster)
        opened = transactions.open_in(list(found))
        known = {each.producer_id: each.id for each in transactions.listed()} if opened else {}
        for each in opened:
            if each.place in found:
                name = known.get(each.producer_id, f"producer {each.producer_id}")
                found[each.place] = (found[each.place][0], name)
    return found
