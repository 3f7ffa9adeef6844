"""Groups: how far each is behind and whether that grows, who reads what, and resets."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from moldau.console.call import Call
from moldau.console.endpoint import Done, endpoint
from moldau.console.errors import ApiError, check, invalid, not_found
from moldau.console.sampling.groups import (
    Described,
    GroupLag,
    PartitionLag,
    committed_offsets,
    describe,
    lags,
    operations_on,
    share_lags,
)
from moldau.console.sampling.state import ClusterState, bounds, offsets_at, read_state
from moldau.peer.errors import PeerError, Refused
from moldau.peer.groups import Groups, ListedGroup
from moldau.peer.share_groups import SHARE, SharedPartitionInfo, ShareGroups
from moldau.topic_partition import TopicPartition
from moldau.wire.apis import Api
from moldau.wire.errors import Error

# Of so few groups, coordinators are asked each time; of more, the last sample is shown.
_FEW = 50


class GroupRow(msgspec.Struct):
    group: str
    kind: str
    state: str
    members: int | None
    topics: list[str]
    lag: int | None
    lag_s: float | None


class GroupList(msgspec.Struct):
    groups: list[GroupRow]


class GroupFilter(msgspec.Struct):
    """`q` is part of the name."""

    q: str = ""


class GroupMember(msgspec.Struct):
    id: str
    client_id: str
    host: str
    instance_id: str | None
    partitions: list[tuple[str, int]]


class GroupPartition(msgspec.Struct):
    """The lag grows by `trend_per_s`; if it shrinks, it is gone in `drain_s` seconds."""

    topic: str
    partition: int
    committed: int | None
    end: int
    lag: int | None
    lag_s: float | None
    member: str | None
    trend_per_s: float | None
    drain_s: float | None


class SharePartition(msgspec.Struct):
    """How far a share group has come: `lag` messages are not finished, the first is `start`.

    `in_flight` are with members now, `waiting` were and are to be delivered again; `redelivered`
    and `dead` count since the leader began. Null where a broker does not tell.
    """

    topic: str
    partition: int
    start: int | None
    end: int | None
    lag: int | None
    lag_s: float | None
    in_flight: int | None
    waiting: int | None
    redelivered: int | None
    dead: int | None
    trend_per_s: float | None
    drain_s: float | None


class ShareInfo(msgspec.Struct):
    partitions: list[SharePartition]


class PastRebalance(msgspec.Struct):
    at_ms: int
    cause: str
    duration_ms: int
    members: int
    epoch: int


class GroupInfo(msgspec.Struct):
    """A group. `history` has its last rebalances, the newest first, where brokers tell them.

    `operations` are what one may do with it: Read, Delete and so on; null where brokers do not
    tell.
    """

    group: str
    kind: str
    state: str
    coordinator: int
    assignor: str
    epoch: int | None
    members: list[GroupMember]
    partitions: list[GroupPartition]
    history: list[PastRebalance]
    share: ShareInfo | None
    lag: int
    lag_s: float | None
    operations: list[str] | None


class Reset(msgspec.Struct):
    """Where a group shall go on. `to` is beginning, end, offset:N, time:MS or shift:N."""

    topic: str
    to: Annotated[str, Meta(pattern="^(beginning|end|offset:[0-9]+|time:[0-9]+|shift:-?[0-9]+)$")]
    partitions: list[int] | None = None
    preview: bool = False


class Move(msgspec.Struct, rename={"from_": "from"}):
    topic: str
    partition: int
    from_: int | None
    to: int


class Moves(msgspec.Struct):
    changes: list[Move]
    applied: bool


@endpoint("GET", "api/groups")
def list_groups(call: Call, asked: GroupFilter) -> GroupList:
    """List groups with their lag."""
    wanted = asked.q.lower()
    listed = [each for each in Groups(call.cluster).listed() if wanted in each.name.lower()]
    sample = call.console.watch.fresh()
    if len(listed) <= _FEW or sample is None:
        return GroupList(_looked_at(call, listed))
    known = sample.lags
    if not call.is_own:
        seen = read_state(call.cluster).topics
        known = {
            name: GroupLag({at: one for at, one in lag.partitions.items() if at[0] in seen})
            for name, lag in known.items()
        }
    return GroupList([_row(each, known.get(each.name), None) for each in listed])


def _looked_at(call: Call, listed: list[ListedGroup]) -> list[GroupRow]:
    cluster = call.cluster
    described: dict[str, Described] = {}
    for each in listed:
        with suppress(Refused):
            described[each.name] = describe(cluster, each)
    committed = committed_offsets(cluster, [each.name for each in listed if each.kind != SHARE])
    shared = [each.share for each in described.values() if each.share is not None]
    topics = {place[0] for offsets in committed.values() for place in offsets}
    topics.update(part.topic for group in shared for part in group.partitions)
    state = read_state(cluster, topics)
    found = lags(cluster, state, committed) | share_lags(cluster, state, shared)
    return [_row(each, found.get(each.name), described.get(each.name)) for each in listed]


def _row(each: ListedGroup, lag: GroupLag | None, known: Described | None) -> GroupRow:
    topics: set[str] = set()
    if lag is not None:
        topics = {topic for topic, _ in lag.partitions}
    if known is not None:
        topics.update(topic for member in known.members for topic, _ in member.partitions)
    return GroupRow(
        each.name,
        each.kind,
        (each.state if known is None else known.state).lower(),
        None if known is None else len(known.members),
        sorted(topics),
        None if lag is None else lag.lag,
        None if lag is None else lag.lag_s,
    )


@endpoint("GET", "api/groups/{group:path}")
def get_group(call: Call) -> GroupInfo:
    """Describe a group: members, lag by partition, its last rebalances."""
    name = call.path["group"]
    cluster = call.cluster
    known = describe(cluster, find_group(call, name))
    readers = {place: each.id for each in known.members for place in each.partitions}
    history: list[PastRebalance] = []
    with suppress(PeerError):
        history = [
            PastRebalance(each.ended_ms, each.why, each.took_ms, each.members, each.epoch)
            for each in reversed(Groups(cluster).history(name).rebalances)
        ]
    share: ShareInfo | None = None
    partitions: list[GroupPartition] = []
    if known.share is not None:
        state = read_state(cluster, {each.topic for each in known.share.partitions})
        found = share_lags(cluster, state, [known.share])[name]
        share = ShareInfo(
            [
                _share_partition(call, name, each, found.partitions)
                for each in known.share.partitions
            ]
        )
    else:
        committed = committed_offsets(cluster, [name])
        if name not in committed:
            raise Refused(Error.GROUP_AUTHORIZATION_FAILED, f"offsets of group {name!r}")
        topics = {place[0] for place in (*committed[name], *readers)}
        state = read_state(cluster, topics)
        found = lags(cluster, state, committed, {name: list(readers)})[name]
        for place, part in sorted(found.partitions.items()):
            partitions.append(
                GroupPartition(
                    *place, part.committed, part.end, part.lag, part.lag_s, readers.get(place),
                    *_trend_and_drain(call, name, place, part.lag),
                )
            )  # fmt: skip
    return GroupInfo(
        name,
        known.kind,
        known.state.lower(),
        known.coordinator,
        known.assignor,
        known.epoch,
        [
            GroupMember(each.id, each.client_id, each.host, each.instance_id, list(each.partitions))
            for each in known.members
        ],
        partitions,
        history,
        share,
        found.lag,
        found.lag_s,
        operations_on(cluster, known),
    )


def _share_partition(
    call: Call,
    group: str,
    told: SharedPartitionInfo,
    known: Mapping[TopicPartition, PartitionLag],
) -> SharePartition:
    place = (told.topic, told.partition)
    part = known.get(place)
    lag = told.lag if told.lag >= 0 else None
    return SharePartition(
        *place,
        told.start if told.start >= 0 else None,
        None if part is None else part.end,
        lag,
        None if part is None else part.lag_s,
        told.in_flight,
        told.waiting,
        told.redelivered,
        told.dead,
        *_trend_and_drain(call, group, place, lag),
    )


def _trend_and_drain(
    call: Call, group: str, place: TopicPartition, lag: int | None
) -> tuple[float | None, float | None]:
    """Return by how much the lag grows a second, and when it will be gone if it shrinks."""
    trend = call.console.watch.trend(group, place)
    drain = round(lag / -trend, 1) if lag and trend is not None and trend < 0 else None
    return trend, drain


def find_group(call: Call, name: str) -> ListedGroup:
    """Return a group with its kind; ApiError if there is none."""
    for each in Groups(call.cluster).listed():
        if each.name == name:
            return each
    raise not_found(f"group {name}")


@endpoint("POST", "api/groups/{group:path}/reset")
def reset_group(call: Call, asked: Reset) -> Moves:
    """Let a group without members go on elsewhere; with `preview`, only say what that means."""
    name = call.path["group"]
    cluster = call.cluster
    listed = next((each for each in Groups(cluster).listed() if each.name == name), None)
    is_share = listed is not None and listed.kind == SHARE
    committed = _starts(call, name) if is_share else committed_offsets(cluster, [name]).get(name)
    if committed is None:
        raise Refused(Error.GROUP_AUTHORIZATION_FAILED, f"offsets of group {name!r}")
    state = read_state(cluster, [asked.topic])
    described = state.topics[asked.topic]
    if described.error not in (Error.NONE, Error.LEADER_NOT_AVAILABLE):
        raise Refused(described.error, f"topic {asked.topic!r}")
    chosen = sorted(described.partitions) if asked.partitions is None else asked.partitions
    strange = [index for index in chosen if index not in described.partitions]
    if strange:
        raise not_found(f"partition {strange[0]} of {asked.topic}")
    changes = plan(call, state, asked, chosen, committed)
    if asked.preview:
        return Moves(changes, False)
    if listed is not None and listed.state.lower() not in ("empty", "dead"):
        raise ApiError(
            409, "group_not_empty", f"{name} has members, which would go on where they are",
            "stop its consumers first",
        )  # fmt: skip
    offsets = {(asked.topic, each.partition): each.to for each in changes}
    if is_share:
        ShareGroups(cluster).alter_offsets(name, offsets)
    else:
        cluster.commit_offsets(name, offsets)
    call.note("reset group", group=name, topic=asked.topic, to=asked.to, partitions=chosen)
    return Moves(changes, True)


def _starts(call: Call, name: str) -> dict[TopicPartition, int] | None:
    """Return the first offsets that a share group has not finished."""
    found = ShareGroups(call.cluster).find(name)
    if found is None:
        return None
    return {
        (each.topic, each.partition): each.start for each in found.partitions if each.start >= 0
    }


def plan(
    call: Call,
    state: ClusterState,
    asked: Reset,
    chosen: list[int],
    committed: dict[TopicPartition, int],
) -> list[Move]:
    """Return where each partition would go on: never where the log has nothing."""
    kind, _, number = asked.to.partition(":")
    places = [(asked.topic, index) for index in dict.fromkeys(chosen)]
    known = bounds(call.cluster, state, places)
    if any(place not in known for place in places):
        raise Refused(Error.LEADER_NOT_AVAILABLE, f"topic {asked.topic!r}")
    if number and abs(int(number)) >= 1 << 63:
        raise invalid(f"{number} is too large")
    at_time: dict[TopicPartition, int] = {}
    if kind == "time":
        at_time = offsets_at(call.cluster, state, dict.fromkeys(places, int(number)))
    changes = []
    for place in places:
        start, end = known[place]
        now = committed.get(place)
        match kind:
            case "beginning":
                to = start
            case "end":
                to = end
            case "offset":
                to = int(number)
            case "time":
                to = at_time.get(place, -1)
                to = end if to < 0 else to
            case _:
                if now is None:
                    continue
                to = now + int(number)
        changes.append(Move(*place, now, min(max(to, start), end)))
    return changes


@endpoint("DELETE", "api/groups/{group:path}")
def delete_group(call: Call) -> Done:
    """Delete a group without members, and what it has committed."""
    name = call.path["group"]
    cluster = call.cluster

    def ask() -> Any:
        to = cluster.to(cluster.coordinator(name))
        return to.ask(Api.DELETE_GROUPS, {"groups_names": [name]}).results[0]

    check(cluster.insist(ask).error_code, f"group {name!r}")
    call.note("deleted group", group=name)
    return Done()
