"""A cluster for a blocking client: finds leaders and retries failures."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self, TypeVar

from moldau.peer.connection import Connection
from moldau.peer.errors import (
    ConnectionLost,
    NotAuthenticated,
    PeerError,
    Refused,
    UnknownTopic,
    Unreachable,
)
from moldau.peer.retries import PeerSettings, attempts
from moldau.peer.view import ClusterView, Node
from moldau.security.client_config import client_security
from moldau.topic_partition import TopicPartition
from moldau.wire.apis import Api
from moldau.wire.errors import Error

T = TypeVar("T")

EARLIEST = -2
LATEST = -1
# The kinds of coordinators.
GROUP = 0
TRANSACTION = 1


@dataclass(frozen=True, slots=True)
class ListedOffset:
    """An answer to ListOffsets; `offset` is -1 when no record is as late as was asked for."""

    offset: int
    timestamp_ms: int
    leader_epoch: int


class Cluster:
    """Connections to the brokers of one cluster, for one thread.

    A method returns its answer, raises what the broker refused for good (Refused, UnknownTopic),
    or after `retry_within_s` what was wrong last. Before any broker has answered, the shorter
    `reach_within_s` holds and the error is Unreachable.
    """

    def __init__(
        self, bootstrap: Sequence[tuple[str, int]], settings: PeerSettings | None = None
    ) -> None:
        self.settings = settings or PeerSettings(security=client_security())
        self._bootstrap = list(bootstrap)
        self._nodes: dict[int, Node] = {}
        self._open: dict[tuple[str, int], Connection] = {}
        self._was_reached = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *problem: object) -> None:
        self.close()

    def close(self) -> None:
        for connection in self._open.values():
            connection.close()
        self._open.clear()

    def metadata(
        self, topics: Iterable[str] | None = None, *, creates: bool = False
    ) -> ClusterView:
        """Return the cluster with these topics, or with all; a topic's own error is left to the
        caller.

        With `creates`, brokers that create topics on demand do so.
        """
        names = None if topics is None else [{"name": name} for name in topics]
        values = {"topics": names, "allow_auto_topic_creation": creates}

        def ask() -> ClusterView:
            view = ClusterView.of(self.some_broker().ask(Api.METADATA, values))
            self._nodes = view.nodes
            for topic in view.topics.values():
                if topic.error == Error.LEADER_NOT_AVAILABLE:
                    raise Refused(topic.error, f"topic {topic.name!r}")
            return view

        return self.insist(ask)

    def list_offsets(
        self, wanted: Mapping[TopicPartition, int], *, read_committed: bool = False
    ) -> dict[TopicPartition, ListedOffset]:
        """Return the offsets at these timestamps in milliseconds, or at EARLIEST or LATEST.

        LATEST is where a consumer's reading ends: the high watermark, or the last stable offset.
        """
        found: dict[TopicPartition, ListedOffset] = {}

        def ask() -> dict[TopicPartition, ListedOffset]:
            missing = {key: when for key, when in wanted.items() if key not in found}
            by_node = self._by_leader(missing)
            refused: Refused | None = None
            for node, keys in by_node.items():
                some = {key: missing[key] for key in keys}
                refused = self._list_offsets_of(node, some, read_committed, found) or refused
            if refused is not None:
                raise refused
            return found

        return self.insist(ask) if wanted else found

    def leader_of(self, topic: str, partition: int) -> tuple[Node, int, ClusterView]:
        """Return the leader's address and epoch as of now, asked once; Refused when
        there is none."""
        view = ClusterView.of(self.some_broker().ask(Api.METADATA, _one_topic(topic)))
        self._nodes = view.nodes
        described = view.topics[topic]
        described.check()
        leader = described.leaders.get(partition)
        if leader is None:
            raise UnknownTopic(topic, partition)
        if leader.node_id not in view.nodes:
            raise Refused(Error.LEADER_NOT_AVAILABLE, f"{topic}-{partition}")
        return view.nodes[leader.node_id], leader.epoch, view

    def commit_offsets(
        self, group: str, offsets: Mapping[TopicPartition, int], within_s: float | None = None
    ) -> None:
        """Store offsets for a group that nobody is a member of."""
        topics: dict[str, list[dict[str, Any]]] = {}
        for (topic, partition), offset in offsets.items():
            entry = {"partition_index": partition, "committed_offset": offset}
            topics.setdefault(topic, []).append(entry)
        values = {
            "group_id": group,
            "generation_id_or_member_epoch": -1,
            "member_id": "",
            "topics": [{"name": name, "partitions": entries} for name, entries in topics.items()],
        }

        def ask() -> None:
            # v10 wants topic ids; what it adds is of no use here.
            response = self.to(self.coordinator(group)).ask(Api.OFFSET_COMMIT, values, at_most=9)
            for topic in response.topics:
                for partition in topic.partitions:
                    _check(
                        partition.error_code,
                        f"commit of {topic.name}-{partition.partition_index} for {group!r}",
                    )

        if offsets:
            self.insist(ask, within_s)

    def coordinator(self, key: str, kind: int = GROUP) -> Node:
        """Return the coordinator of a group or a transactional id, asked once; Refused if there is
        none."""
        values = {"key": key, "key_type": kind, "coordinator_keys": [key]}
        response = self.some_broker().ask(Api.FIND_COORDINATOR, values)
        found = response.coordinators[0] if hasattr(response, "coordinators") else response
        _check(found.error_code, f"coordinator of {key!r}")
        return Node(int(found.node_id), str(found.host), int(found.port))

    def to(self, node: Node) -> Connection:
        """Return the connection to a broker, opened if necessary; ConnectionLost if that fails."""
        return self._connect(node.host, node.port)

    def _connect(self, host: str, port: int) -> Connection:
        connection = self._open.get((host, port))
        if connection is None or not connection.is_open or connection.unanswered:
            if connection is not None:
                connection.close()
            connection = Connection(
                host,
                port,
                self.settings.client_id,
                timeout_s=self.settings.request_timeout_s,
                connect_timeout_s=self.settings.connect_timeout_s,
                local_receive_bytes=self.settings.local_receive_bytes,
                security=self.settings.security,
                origin="" if self.settings.origin is None else self.settings.origin(),
            )
            self._open[host, port] = connection
            self._was_reached = True
        return connection

    def some_broker(self) -> Connection:
        """Return a connection to some broker: one that is open, else the first that answers."""
        for connection in self._open.values():
            if connection.is_open and not connection.unanswered:
                return connection
        known = [(node.host, node.port) for node in self._nodes.values()]
        tried: dict[str, str] = {}
        for host, port in dict.fromkeys([*known, *self._bootstrap]):
            try:
                return self._connect(host, port)
            except NotAuthenticated:
                raise
            except ConnectionLost as lost:
                tried[lost.address] = lost.reason
        raise Unreachable(tried, 0)

    def _by_leader(self, wanted: Iterable[TopicPartition]) -> dict[Node, list[TopicPartition]]:
        view = self.metadata(dict.fromkeys(topic for topic, _ in wanted))
        by_node: dict[Node, list[TopicPartition]] = {}
        for topic, partition in wanted:
            described = view.topics[topic]
            described.check()
            if partition not in described.leaders:
                raise UnknownTopic(topic, partition)
            leader = described.leaders[partition].node_id
            if leader not in view.nodes:
                raise Refused(Error.LEADER_NOT_AVAILABLE, f"{topic}-{partition}")
            by_node.setdefault(view.nodes[leader], []).append((topic, partition))
        return by_node

    def _list_offsets_of(
        self,
        node: Node,
        wanted: Mapping[TopicPartition, int],
        read_committed: bool,
        found: dict[TopicPartition, ListedOffset],
    ) -> Refused | None:
        topics: dict[str, list[dict[str, Any]]] = {}
        for (topic, partition), timestamp in wanted.items():
            entry = {
                "partition_index": partition,
                "current_leader_epoch": -1,
                "timestamp": timestamp,
            }
            topics.setdefault(topic, []).append(entry)
        values = {
            "replica_id": -1,
            "isolation_level": int(read_committed),
            "topics": [{"name": name, "partitions": entries} for name, entries in topics.items()],
            "timeout": int(self.settings.request_timeout_s * 1000),
        }
        refused = None
        for answer in self.to(node).ask(Api.LIST_OFFSETS, values).topics:
            for partition in answer.partitions:
                key = (str(answer.name), int(partition.partition_index))
                if partition.error_code:
                    refused = Refused(int(partition.error_code), f"offsets of {key[0]}-{key[1]}")
                    continue
                epoch = int(getattr(partition, "leader_epoch", -1))
                found[key] = ListedOffset(int(partition.offset), int(partition.timestamp), epoch)
        return refused

    def insist(self, ask: Callable[[], T], within_s: float | None = None) -> T:
        """Return what `ask` does, however often it has to be called because of passing errors."""
        tries = attempts(self.settings, within_s)
        tried: dict[str, str] = {}
        while True:
            try:
                return ask()
            except NotAuthenticated:
                raise
            except Unreachable as problem:
                tried |= problem.tried
                last: PeerError = problem
            except ConnectionLost as problem:
                tried[problem.address] = problem.reason
                last = problem
            except Refused as problem:
                if not problem.is_retriable:
                    raise
                last = problem
            if not self._was_reached:
                tries.within_s = self.settings.reach_within_s
            if isinstance(last, Refused) and last.code == Error.UNKNOWN_TOPIC_OR_PARTITION:
                tries.within_s = min(tries.within_s, self.settings.unknown_topic_within_s)
            if not tries.pause():
                if isinstance(last, Unreachable):
                    raise Unreachable(tried, tries.within_s) from None
                raise last


def _one_topic(topic: str) -> dict[str, Any]:
    return {"topics": [{"name": topic}], "allow_auto_topic_creation": False}


def _check(code: int, what: str) -> None:
    if code:
        raise Refused(int(code), what)
