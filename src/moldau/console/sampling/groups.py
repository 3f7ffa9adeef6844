"""Groups at one moment: members, committed offsets, lag in messages and in seconds."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from moldau.console.sampling.state import ClusterState, bounds
from moldau.peer.cluster import Cluster
from moldau.peer.errors import PeerError, Refused
from moldau.peer.fetcher import FetchSettings, PartitionFetcher
from moldau.peer.groups import Groups, ListedGroup
from moldau.peer.share_groups import SHARE, ShareGroups
from moldau.records.batch import HEADER_SIZE, read_header
from moldau.records.record import decode_records, payload_of
from moldau.topic_partition import TopicPartition
from moldau.wire.apis import Api
from moldau.wire.errors import Error

# So many first uncommitted messages are looked at in one go; the lag of further partitions is
# known in messages only.
MOST_LOOKS = 200


@dataclass(frozen=True, slots=True)
class PartitionLag:
    """How far a group is behind in a partition; None where it has committed nothing."""

    committed: int | None
    end: int
    lag: int | None
    lag_s: float | None


@dataclass(frozen=True, slots=True)
class GroupLag:
    """A group's lag: that of its partitions, in messages in sum and in seconds at most."""

    partitions: dict[TopicPartition, PartitionLag]

    @property
    def lag(self) -> int:
        return sum(each.lag or 0 for each in self.partitions.values())

    @property
    def lag_s(self) -> float | None:
        known = [each.lag_s for each in self.partitions.values() if each.lag_s is not None]
        if not known and any(each.lag for each in self.partitions.values()):
            return None
        return max(known, default=0.0)


def committed_offsets(
    cluster: Cluster, groups: Collection[str]
) -> dict[str, dict[TopicPartition, int]]:
    """Return what groups have committed; groups that we may not see are left out."""
    found: dict[str, dict[TopicPartition, int]] = {}
    for name in groups:
        with suppress(Refused):
            found[name] = _committed(cluster, name)
    return found


def _committed(cluster: Cluster, group: str) -> dict[TopicPartition, int]:
    return {place: offset for place, (offset, _) in committed_texts(cluster, group).items()}


def committed_texts(cluster: Cluster, group: str) -> dict[TopicPartition, tuple[int, str]]:
    """Return what a group has committed, with the text of each commit; Refused if we may not."""
    asked = {"group_id": group, "member_id": None, "member_epoch": -1, "topics": None}
    values = {"group_id": group, "topics": None, "groups": [asked], "require_stable": False}

    def ask() -> dict[TopicPartition, tuple[int, str]]:
        # v10 names topics by their ids; names are what we show.
        to = cluster.to(cluster.coordinator(group))
        answer = to.ask(Api.OFFSET_FETCH, values, at_most=9)
        (told,) = answer.groups if hasattr(answer, "groups") else (answer,)
        if told.error_code:
            raise Refused(int(told.error_code), f"group {group!r}")
        return {
            (str(topic.name), int(part.partition_index)): (
                int(part.committed_offset),
                str(part.metadata or ""),
            )
            for topic in told.topics
            for part in topic.partitions
            if part.committed_offset >= 0 and not part.error_code
        }

    return cluster.insist(ask)


def lags(
    cluster: Cluster,
    state: ClusterState,
    committed: Mapping[str, Mapping[TopicPartition, int]],
    assigned: Mapping[str, Collection[TopicPartition]] | None = None,
    *,
    most_looks: int = MOST_LOOKS,
) -> dict[str, GroupLag]:
    """Return how far groups are behind where they have committed, or where members read."""
    assigned = assigned or {}
    places = {place for offsets in committed.values() for place in offsets}
    places.update(place for some in assigned.values() for place in some)
    known = bounds(cluster, state, places)
    looks: dict[TopicPartition, dict[int, float | None]] = {}
    for offsets in committed.values():
        for place, at in offsets.items():
            if place in known and at < known[place][1]:
                looks.setdefault(place, {})[max(at, known[place][0])] = None
    _look(cluster, looks, most_looks)
    found = {}
    for group, offsets in committed.items():
        parts: dict[TopicPartition, PartitionLag] = {}
        for place in sorted({*offsets, *assigned.get(group, ())}):
            if place not in known:
                continue
            start, end = known[place]
            if place not in offsets:
                parts[place] = PartitionLag(None, end, None, None)
                continue
            following = min(max(offsets[place], start), end)
            age = 0.0 if following == end else looks.get(place, {}).get(following)
            parts[place] = PartitionLag(offsets[place], end, end - following, age)
        found[group] = GroupLag(parts)
    return found


def _look(
    cluster: Cluster, looks: dict[TopicPartition, dict[int, float | None]], most: int
) -> None:
    """Fill in the age of the messages at these offsets, of so many at most."""
    for (topic, index), offsets in looks.items():
        # Brokers send whole batches whatever we ask for, so this is one batch.
        fetcher = PartitionFetcher(cluster, topic, index, None, FetchSettings(1, 0))
        try:
            for offset in offsets:
                most -= 1
                if most < 0:
                    return
                with suppress(PeerError):
                    offsets[offset] = _age_s(fetcher, offset)
        finally:
            fetcher.close()


def _age_s(fetcher: PartitionFetcher, offset: int) -> float | None:
    stream = fetcher.fetch(offset)
    buffer = bytearray(stream.size)
    stream.fill(memoryview(buffer))
    position = 0
    while position + HEADER_SIZE <= len(buffer):
        header = read_header(buffer, position)
        if header.size < HEADER_SIZE or position + header.size > len(buffer):
            return None
        if header.last_offset >= offset and not header.is_control:
            written = header.max_timestamp
            if not header.uses_append_time:
                body = payload_of(buffer, position, header)
                for record in decode_records(body, header, position):
                    if record.offset >= offset:
                        written = record.timestamp
                        break
            if written < 0:
                return None
            return round(max(0.0, time.time() - written / 1000), 3)
        position += header.size
    return None


@dataclass(frozen=True, slots=True)
class Member:
    id: str
    client_id: str
    host: str
    instance_id: str | None
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class Described:
    """A group and who is in it."""

    name: str
    kind: str
    state: str
    coordinator: int
    assignor: str
    epoch: int | None
    members: tuple[Member, ...]
    share: Any = None


def describe(cluster: Cluster, listed: ListedGroup) -> Described:
    """Ask a group's coordinator; Refused if it does not know it."""
    if listed.kind == SHARE:
        shared = ShareGroups(cluster).find(listed.name)
        if shared is None:
            raise Refused(Error.GROUP_ID_NOT_FOUND, f"group {listed.name!r}")
        members = tuple(
            Member(each.id, each.client_id, each.host, None, each.partitions)
            for each in shared.members
        )
        coordinator = cluster.insist(lambda: cluster.coordinator(listed.name)).id
        return Described(
            listed.name, listed.kind, shared.state, coordinator, shared.assignor, shared.epoch,
            members, shared,
        )  # fmt: skip
    if listed.kind == "consumer":
        info = Groups(cluster).consumer_group(listed.name)
        if info is not None:
            members = tuple(
                Member(each.id, each.client_id, each.host, each.instance_id, each.partitions)
                for each in info.members
            )
            coordinator = cluster.insist(lambda: cluster.coordinator(listed.name)).id
            return Described(
                listed.name, listed.kind, info.state, coordinator, info.assignor, info.epoch,
                members,
            )  # fmt: skip
    return _classic(cluster, listed.name)


def _classic(cluster: Cluster, name: str) -> Described:
    values = {"groups": [name], "include_authorized_operations": False}

    def ask() -> Described:
        node = cluster.coordinator(name)
        (told,) = cluster.to(node).ask(Api.DESCRIBE_GROUPS, values).groups
        if told.error_code:
            raise Refused(int(told.error_code), f"group {name!r}")
        if told.group_state == "Dead":
            raise Refused(Error.GROUP_ID_NOT_FOUND, f"group {name!r}")
        members = tuple(
            Member(
                str(each.member_id),
                str(each.client_id),
                str(each.client_host).removeprefix("/"),
                getattr(each, "group_instance_id", None),
                tuple(assignment_of(bytes(each.member_assignment or b""))),
            )
            for each in told.members
        )
        return Described(
            name, "classic", str(told.group_state), node.id, str(told.protocol_data), None, members
        )

    return cluster.insist(ask)


def assignment_of(data: bytes) -> list[TopicPartition]:
    """Return the partitions of a member's assignment; none where it is not a consumer's.

    version (2), count of topics (4), each: name (2 + n), count of partitions (4), partitions (4)
    """
    found: list[TopicPartition] = []
    try:
        at = 6
        for _ in range(int.from_bytes(data[2:6], "big")):
            size = int.from_bytes(data[at : at + 2], "big")
            name = data[at + 2 : at + 2 + size].decode()
            at += 2 + size
            count = int.from_bytes(data[at : at + 4], "big")
            at += 4
            if at + 4 * count > len(data):
                return []
            for index in range(count):
                place = at + 4 * index
                found.append((name, int.from_bytes(data[place : place + 4], "big")))
            at += 4 * count
            if at > len(data):
                return []
    except UnicodeDecodeError:
        return []
    return sorted(found)
