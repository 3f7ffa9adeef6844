"""Groups at one moment: members, committed offsets, lag in messages and in seconds."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass

from moldau.console.sampling.state import NOT_TOLD, ClusterState, bounds, operation_names
from moldau.peer.cluster import Cluster
from moldau.peer.errors import PeerError, Refused
from moldau.peer.fetcher import FetchSettings, PartitionFetcher
from moldau.peer.groups import CLASSIC, CONSUMER, Groups, ListedGroup
from moldau.peer.share_groups import SHARE, ShareGroupInfo, ShareGroups
from moldau.records.batch import HEADER_SIZE, read_header
from moldau.records.record import decode_records, payload_of
from moldau.topic_partition import TopicPartition
from moldau.wire.apis import Api
from moldau.wire.errors import Error

# So many first uncommitted messages are looked at in one go; the lag of further partitions is
# known in messages only.
MOST_LOOKS = 200
# By the kind of a group, what describes it, and the field for its name.
_DESCRIBED_BY = {
    CLASSIC: (Api.DESCRIBE_GROUPS, "groups"),
    CONSUMER: (Api.CONSUMER_GROUP_DESCRIBE, "group_ids"),
    SHARE: (Api.SHARE_GROUP_DESCRIBE, "group_ids"),
}


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
    wanted = {group: _unread(known, offsets) for group, offsets in committed.items()}
    ages = _ages(cluster, wanted.values(), most_looks)
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
            age = 0.0 if following == end else ages.get((place, following))
            parts[place] = PartitionLag(offsets[place], end, end - following, age)
        found[group] = GroupLag(parts)
    return found


def share_lags(
    cluster: Cluster,
    state: ClusterState,
    groups: Iterable[ShareGroupInfo],
    *,
    most_looks: int = MOST_LOOKS,
) -> dict[str, GroupLag]:
    """Return how far share groups are behind: what they have yet to finish, and how old the first
    of it is."""
    groups = list(groups)
    starts = {
        group.name: {
            (each.topic, each.partition): each.start
            for each in group.partitions
            if each.start >= 0 and each.lag
        }
        for group in groups
    }
    places = {(each.topic, each.partition) for group in groups for each in group.partitions}
    known = bounds(cluster, state, places)
    ages = _ages(cluster, (_unread(known, each) for each in starts.values()), most_looks)
    found = {}
    for group in groups:
        parts: dict[TopicPartition, PartitionLag] = {}
        for each in group.partitions:
            place = (each.topic, each.partition)
            if place not in known:
                continue
            start, end = known[place]
            if each.start < 0 or each.lag < 0:
                # Nobody has begun to read, or the broker tells of no lag.
                begun = each.start if each.start >= 0 else None
                parts[place] = PartitionLag(begun, end, None, None)
                continue
            first = min(max(each.start, start), end)
            age = 0.0 if not each.lag else ages.get((place, first))
            parts[place] = PartitionLag(each.start, end, each.lag, age)
        found[group.name] = GroupLag(parts)
    return found


def _unread(
    known: Mapping[TopicPartition, tuple[int, int]], offsets: Mapping[TopicPartition, int]
) -> list[tuple[TopicPartition, int]]:
    """Return where the first message is that a group has yet to read, in each partition."""
    return [
        (place, max(at, known[place][0]))
        for place, at in offsets.items()
        if place in known and at < known[place][1]
    ]


def _ages(
    cluster: Cluster, wanted: Iterable[Iterable[tuple[TopicPartition, int]]], most: int
) -> dict[tuple[TopicPartition, int], float | None]:
    """Return the ages of messages by partition and offset, of so many at most."""
    looks: dict[TopicPartition, dict[int, float | None]] = {}
    for some in wanted:
        for place, at in some:
            looks.setdefault(place, {})[at] = None
    _look(cluster, looks, most)
    return {(place, at): age for place, found in looks.items() for at, age in found.items()}


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
    share: ShareGroupInfo | None = None


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
    if listed.kind == CONSUMER:
        info = Groups(cluster).consumer_group(listed.name)
        if info is not None:
            members = tuple(
                Member(each.id, each.client_id, each.host, each.instance_id, each.partitions)
                for each in info.members
            )
            coordinator = cluster.insist(lambda: cluster.coordinator(listed.name)).id
            return Described(
                listed.name, CONSUMER, info.state, coordinator, info.assignor, info.epoch,
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
            name, CLASSIC, str(told.group_state), node.id, str(told.protocol_data), None, members
        )

    return cluster.insist(ask)


def operations_on(cluster: Cluster, group: Described) -> list[str] | None:
    """Return what we may do with a group, in Kafka's words; None where brokers do not tell.

    It is asked for by itself, so that samples, which need no rights, cost brokers no look at them.
    """
    api, names = _DESCRIBED_BY[group.kind]

    def ask() -> list[str] | None:
        to = cluster.to(cluster.coordinator(group.name))
        (told,) = to.ask(api, {names: [group.name], "include_authorized_operations": True}).groups
        if told.error_code:
            return None
        return operation_names(int(getattr(told, "authorized_operations", NOT_TOLD)))

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
