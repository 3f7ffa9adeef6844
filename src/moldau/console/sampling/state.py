"""The state of a cluster: brokers, topics, replicas, as one answer to Metadata tells them."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from moldau.cluster.state.internal_topics import is_internal_name
from moldau.peer.cluster import EARLIEST, LATEST, Cluster
from moldau.peer.errors import PeerError, Refused
from moldau.peer.view import Node
from moldau.topic_partition import TopicPartition
from moldau.wire.acls import Operation, in_words
from moldau.wire.apis import Api
from moldau.wire.errors import Error

# What a broker says where it does not tell of rights.
NOT_TOLD = -(1 << 31)


@dataclass(frozen=True, slots=True)
class Broker:
    id: int
    host: str
    port: int
    rack: str | None


@dataclass(frozen=True, slots=True)
class Partition:
    """`leader` is -1 for none."""

    leader: int
    epoch: int
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]

    @property
    def is_under_replicated(self) -> bool:
        return len(self.in_sync) < len(self.replicas)


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic; `error` is why a broker does not show it, `operations` what we may do with it."""

    name: str
    id: str
    is_internal: bool
    partitions: dict[int, Partition]
    error: int = 0
    operations: int = NOT_TOLD


@dataclass(frozen=True, slots=True)
class ClusterState:
    at_ms: int
    cluster_id: str
    controller: int
    brokers: dict[int, Broker]
    topics: dict[str, Topic]

    def places(self, topics: Iterable[str] | None = None) -> list[TopicPartition]:
        """Return the partitions of these topics, or of all."""
        names = self.topics if topics is None else [name for name in topics if name in self.topics]
        return [(name, index) for name in names for index in self.topics[name].partitions]

    @property
    def under_replicated(self) -> int:
        return sum(
            each.is_under_replicated
            for topic in self.topics.values()
            for each in topic.partitions.values()
        )

    @property
    def offline(self) -> int:
        return sum(
            each.leader not in self.brokers
            for topic in self.topics.values()
            for each in topic.partitions.values()
        )


def read_state(
    cluster: Cluster, topics: Collection[str] | None = None, *, with_rights: bool = False
) -> ClusterState:
    """Ask for the cluster with these topics, or with all that we may see."""
    values = {
        "topics": None if topics is None else [{"name": name} for name in topics],
        "allow_auto_topic_creation": False,
        "include_topic_authorized_operations": with_rights,
        "include_cluster_authorized_operations": False,
    }
    answer = cluster.insist(lambda: cluster.some_broker().ask(Api.METADATA, values))
    return ClusterState(
        int(time.time() * 1000),
        str(getattr(answer, "cluster_id", "") or ""),
        int(getattr(answer, "controller_id", -1)),
        {
            int(each.node_id): Broker(
                int(each.node_id), str(each.host), int(each.port), getattr(each, "rack", None)
            )
            for each in answer.brokers
        },
        {str(each.name): _topic(each) for each in answer.topics},
    )


def read_topic(cluster: Cluster, name: str) -> tuple[ClusterState, Topic]:
    """Ask for one topic; Refused if it does not exist, or if we may not see it."""
    state = read_state(cluster, [name], with_rights=True)
    topic = state.topics[name]
    if topic.error not in (Error.NONE, Error.LEADER_NOT_AVAILABLE):
        raise Refused(topic.error, f"topic {name!r}")
    return state, topic


def _topic(each: Any) -> Topic:
    name = str(each.name)
    return Topic(
        name,
        str(getattr(each, "topic_id", None) or ""),
        bool(getattr(each, "is_internal", False)) or is_internal_name(name),
        {
            int(part.partition_index): Partition(
                int(part.leader_id),
                int(getattr(part, "leader_epoch", -1)),
                tuple(map(int, part.replica_nodes)),
                tuple(map(int, part.isr_nodes)),
            )
            for part in sorted(each.partitions, key=lambda part: int(part.partition_index))
        },
        int(each.error_code),
        int(getattr(each, "topic_authorized_operations", NOT_TOLD)),
    )


def operation_names(bits: int) -> list[str] | None:
    """Return the operations of a bit field in Kafka's words; None if we were not told."""
    if bits == NOT_TOLD:
        return None
    return [in_words(each) for each in Operation if each > Operation.ANY and bits >> each & 1]


def offsets_at(
    cluster: Cluster,
    state: ClusterState,
    wanted: Mapping[TopicPartition, int],
    *,
    read_committed: bool = False,
) -> dict[TopicPartition, int]:
    """Ask leaders once for the offsets at these times; what has no answer is left out."""
    by_leader: dict[int, dict[str, list[dict[str, Any]]]] = {}
    for (topic, index), when in wanted.items():
        known = state.topics.get(topic)
        if known is None or index not in known.partitions:
            continue
        leader = known.partitions[index].leader
        if leader in state.brokers:
            entry = {"partition_index": index, "current_leader_epoch": -1, "timestamp": when}
            by_leader.setdefault(leader, {}).setdefault(topic, []).append(entry)
    found: dict[TopicPartition, int] = {}
    for leader, topics in by_leader.items():
        values = {
            "replica_id": -1,
            "isolation_level": int(read_committed),
            "topics": [{"name": name, "partitions": parts} for name, parts in topics.items()],
            "timeout": int(cluster.settings.request_timeout_s * 1000),
        }
        try:
            answer = cluster.to(node_of(state, leader)).ask(Api.LIST_OFFSETS, values)
        except PeerError:
            continue
        for topic in answer.topics:
            for part in topic.partitions:
                if not part.error_code:
                    found[str(topic.name), int(part.partition_index)] = int(part.offset)
    return found


def bounds(
    cluster: Cluster, state: ClusterState, places: Collection[TopicPartition]
) -> dict[TopicPartition, tuple[int, int]]:
    """Return the first offset of partitions and the one that comes next, where leaders answer."""
    first = offsets_at(cluster, state, dict.fromkeys(places, EARLIEST))
    following = offsets_at(cluster, state, dict.fromkeys(first, LATEST))
    return {place: (first[place], end) for place, end in following.items()}


def sizes(cluster: Cluster, state: ClusterState) -> dict[int, dict[TopicPartition, int]]:
    """Return the bytes of each replica by broker; of brokers that do not tell, nothing."""
    found: dict[int, dict[TopicPartition, int]] = {}
    for id in state.brokers:
        try:
            answer = cluster.to(node_of(state, id)).ask(Api.DESCRIBE_LOG_DIRS, {"topics": None})
        except PeerError:
            continue
        if getattr(answer, "error_code", 0):
            continue
        found[id] = {
            (str(topic.name), int(part.partition_index)): int(part.partition_size)
            for folder in answer.results
            for topic in folder.topics
            for part in topic.partitions
            if not part.is_future_key
        }
    return found


def node_of(state: ClusterState, id: int) -> Node:
    broker = state.brokers[id]
    return Node(id, broker.host, broker.port)
