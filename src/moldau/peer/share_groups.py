"""Share groups as brokers tell of them: their coordinators, and the leaders of what they read."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import msgspec

from moldau.peer.cluster import Cluster
from moldau.peer.errors import Refused
from moldau.topic_partition import TopicPartition
from moldau.wire.apis import Api
from moldau.wire.errors import Error

SHARE = "share"
_GROUP_RESOURCE = 32
_SHARING = "moldau.sharing"


class ShareMember(msgspec.Struct, frozen=True):
    """A member of a share group, and the partitions that it fetches from."""

    id: str
    client_id: str
    host: str
    epoch: int
    partitions: tuple[TopicPartition, ...]


class SharedPartitionInfo(msgspec.Struct, frozen=True):
    """How far a group has come in a partition; None where only a leader that shares it knows.

    `in_flight` are with members now, `waiting` were and are to be delivered again. `redelivered`
    and `dead` count since the leader began.
    """

    topic: str
    partition: int
    start: int
    lag: int
    in_flight: int | None = None
    waiting: int | None = None
    redelivered: int | None = None
    dead: int | None = None


class ShareGroupInfo(msgspec.Struct, frozen=True):
    """A share group with its members and partitions."""

    name: str
    state: str
    epoch: int
    assignor: str
    members: tuple[ShareMember, ...]
    partitions: tuple[SharedPartitionInfo, ...]


class ShareGroups:
    """Asks brokers about share groups, for one thread. PeerError as from `Cluster`."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def find(self, name: str) -> ShareGroupInfo | None:
        """Return a share group; None if there is none of that kind and name."""

        def ask() -> ShareGroupInfo | None:
            to = self._cluster.to(self._cluster.coordinator(name))
            values = {"group_ids": [name], "include_authorized_operations": False}
            try:
                [found] = to.ask(Api.SHARE_GROUP_DESCRIBE, values).groups
            except Refused as refused:
                if refused.code == Error.UNSUPPORTED_VERSION:
                    return None
                raise
            if found.error_code in (Error.GROUP_ID_NOT_FOUND, Error.UNSUPPORTED_VERSION):
                return None
            _check(found.error_code, f"group {name}")
            wanted = [{"group_id": name, "topics": None}]
            [offsets] = to.ask(Api.DESCRIBE_SHARE_GROUP_OFFSETS, {"groups": wanted}).groups
            _check(offsets.error_code, f"the offsets of group {name}")
            return _described(found, offsets, self._shared(name))

        return self._cluster.insist(ask)

    def alter_offsets(self, name: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Have a group without members begin anew at these offsets: what it has finished after
        them is delivered again."""
        topics: dict[str, list[dict[str, int]]] = {}
        for (topic, index), offset in offsets.items():
            entry = {"partition_index": index, "start_offset": offset}
            topics.setdefault(topic, []).append(entry)
        values = {
            "group_id": name,
            "topics": [
                {"topic_name": topic, "partitions": entries} for topic, entries in topics.items()
            ],
        }

        def ask() -> None:
            to = self._cluster.to(self._cluster.coordinator(name))
            answer = to.ask(Api.ALTER_SHARE_GROUP_OFFSETS, values)
            _check(answer.error_code, f"the offsets of group {name}")
            for topic in answer.responses:
                for each in topic.partitions:
                    _check(each.error_code, f"{topic.topic_name}-{each.partition_index}")

        if offsets:
            self._cluster.insist(ask)

    def _shared(self, name: str) -> dict[TopicPartition, dict[str, int]]:
        """Return what the leaders of partitions know of them, by partition."""
        resource = {
            "resource_type": _GROUP_RESOURCE,
            "resource_name": name,
            "configuration_keys": [_SHARING],
        }
        shared: dict[TopicPartition, dict[str, int]] = {}
        for node in self._cluster.metadata(()).nodes.values():
            answer = self._cluster.to(node).ask(Api.DESCRIBE_CONFIGS, {"resources": [resource]})
            for each in answer.results[0].configs:
                if each.name == _SHARING:
                    for told in json.loads(each.value or "[]"):
                        shared[told.pop("topic"), told.pop("partition")] = told
        return shared


def _described(
    found: Any, offsets: Any, shared: Mapping[TopicPartition, dict[str, int]]
) -> ShareGroupInfo:
    members = tuple(
        ShareMember(
            each.member_id,
            each.client_id,
            each.client_host.removeprefix("/"),
            each.member_epoch,
            tuple(
                (topic.topic_name, index)
                for topic in each.assignment.topic_partitions
                for index in topic.partitions
            ),
        )
        for each in sorted(found.members, key=lambda each: (each.client_id, each.member_id))
    )
    partitions = tuple(
        SharedPartitionInfo(
            topic.topic_name,
            each.partition_index,
            each.start_offset,
            getattr(each, "lag", -1),
            **shared.get((topic.topic_name, each.partition_index), {}),
        )
        for topic in sorted(offsets.topics, key=lambda topic: topic.topic_name)
        for each in topic.partitions
    )
    return ShareGroupInfo(
        found.group_id, found.group_state, found.group_epoch, found.assignor_name, members,
        partitions,
    )  # fmt: skip


def _check(code: int, what: str) -> None:
    if code:
        raise Refused(code, what)
