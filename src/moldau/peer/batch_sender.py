"""Batch senders: take record batches of a transaction to the leaders of their partitions.

One batch of a partition is under way at a time, so that one which has to be sent again cannot be
overtaken, and brokers know it by its sequence number. Meanwhile the caller prepares the next.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from moldau.peer.cluster import Cluster
from moldau.peer.connection import Connection
from moldau.peer.coordinators import TRANSIENT, PreparedTransaction
from moldau.peer.dialogue import Asked
from moldau.peer.errors import ConnectionLost, NotAuthenticated, PeerError, Refused, Unreachable
from moldau.peer.retries import attempts
from moldau.peer.view import Node
from moldau.records.batch import TRANSACTIONAL_BIT, BatchHeader
from moldau.records.compression import Codec, compress
from moldau.records.record import assemble
from moldau.topic_partition import TopicPartition
from moldau.wire.apis import Api
from moldau.wire.errors import Error

# The last version that names topics by name; the first that adds partitions to the transaction.
PRODUCE_VERSION = 12
_ALL_REPLICAS = -1
_LAST_SEQUENCE = 0x7FFF_FFFF

# After these the same batch may be taken.
_LATER = TRANSIENT | {Error.NOT_ENOUGH_REPLICAS, Error.NOT_ENOUGH_REPLICAS_AFTER_APPEND}


class Section(NamedTuple):
    """The records of a batch to be: `size` of them, encoded with a timestamp delta of 0."""

    records: bytes
    size: int
    timestamp_ms: int


class _UnderWay(NamedTuple):
    connection: Connection
    asked: Asked
    partitions: list[TopicPartition]


class BatchSender:
    """The batches of one open transaction, for one thread.

    `send` returns when the batches before have arrived; `flush` when all have. Both raise what the
    broker refused for good, or after `retry_within_s` what was wrong last. Nobody else may ask
    brokers by the same `cluster` between the two.
    """

    def __init__(
        self, cluster: Cluster, transaction: PreparedTransaction, codec: Codec = Codec.NONE
    ) -> None:
        self._cluster = cluster
        self._transaction = transaction
        self._codec = codec
        self._sequences: dict[TopicPartition, int] = {}
        self._leaders: dict[TopicPartition, Node] = {}
        self._unacknowledged: dict[TopicPartition, bytes] = {}
        self._under_way: list[_UnderWay] = []
        self._timeout_ms = int(cluster.settings.request_timeout_s * 1000)

    @property
    def partitions(self) -> list[TopicPartition]:
        """The partitions that belong to the transaction."""
        return sorted(self._sequences)

    def know_leaders(self, topics: Iterable[str]) -> dict[str, int]:
        """Return how many partitions each topic has; topics may be created on demand."""
        view = self._cluster.metadata(topics, creates=True)
        counts = {}
        for name, topic in view.topics.items():
            topic.check()
            counts[name] = len(topic.leaders)
            for partition, leader in topic.leaders.items():
                if leader.node_id in view.nodes:
                    self._leaders[name, partition] = view.nodes[leader.node_id]
        return counts

    def send(self, sections: dict[TopicPartition, Section]) -> None:
        """Send one batch to each of these partitions."""
        batches = {key: self._batch(key, section) for key, section in sections.items()}
        self.flush()
        self._unacknowledged = batches
        try:
            self._ask(list(batches))
        except PeerError:
            # What was not sent is sent by `flush`.
            self._forget()

    def flush(self) -> None:
        """Wait until everything has arrived."""
        tries = attempts(self._cluster.settings)
        while self._unacknowledged:
            last: PeerError
            try:
                missing = set(self._unacknowledged).difference(
                    key for each in self._under_way for key in each.partitions
                )
                if missing:
                    self._ask(sorted(missing))
                refused = self._settle()
                if refused is None:
                    continue
                last = refused
            except NotAuthenticated:
                raise
            except (ConnectionLost, Unreachable) as problem:
                last = problem
            except Refused as problem:
                if problem.code not in _LATER:
                    raise
                last = problem
            self._forget()
            if not tries.pause():
                raise last

    def _forget(self) -> None:
        for each in self._under_way:
            if each.connection.unanswered:
                each.connection.close()
        self._under_way = []
        self._leaders.clear()

    def _batch(self, key: TopicPartition, section: Section) -> bytes:
        sequence = self._sequences.get(key, 0)
        self._sequences[key] = (sequence + section.size) & _LAST_SEQUENCE
        header = BatchHeader(
            0, 0, -1, 2, 0, int(self._codec) | TRANSACTIONAL_BIT, section.size - 1,
            section.timestamp_ms, section.timestamp_ms, self._transaction.producer_id,
            self._transaction.epoch, sequence, section.size,
        )  # fmt: skip
        return bytes(assemble(header, compress(self._codec, section.records)))

    def _ask(self, keys: list[TopicPartition]) -> None:
        if any(key not in self._leaders for key in keys):
            self.know_leaders({topic for topic, _ in keys})
        by_node: dict[Node, list[TopicPartition]] = {}
        for key in keys:
            if key not in self._leaders:
                raise Refused(Error.LEADER_NOT_AVAILABLE, f"{key[0]}-{key[1]}")
            by_node.setdefault(self._leaders[key], []).append(key)
        for node, some in by_node.items():
            connection = self._cluster.to(node)
            asked = connection.send(Api.PRODUCE, self._request(some), PRODUCE_VERSION)
            self._under_way.append(_UnderWay(connection, asked, some))

    def _request(self, keys: list[TopicPartition]) -> dict[str, object]:
        topics: dict[str, list[dict[str, object]]] = {}
        for key in keys:
            entry = {"index": key[1], "records": self._unacknowledged[key]}
            topics.setdefault(key[0], []).append(entry)
        return {
            "transactional_id": self._transaction.id,
            "acks": _ALL_REPLICAS,
            "timeout": self._timeout_ms,
            "topic_data": [
                {"name": name, "partition_data": entries} for name, entries in topics.items()
            ],
        }

    def _settle(self) -> Refused | None:
        """Take all answers; return what has to be sent again for, if anything."""
        later: Refused | None = None
        while self._under_way:
            connection, asked, _ = self._under_way[0]
            answer = connection.receive(asked)
            del self._under_way[0]
            for topic in answer.responses:
                for partition in topic.partition_responses:
                    key = (str(topic.name), int(partition.index))
                    code = int(partition.error_code)
                    if code in (Error.NONE, Error.DUPLICATE_SEQUENCE_NUMBER):
                        self._unacknowledged.pop(key, None)
                        continue
                    what = f"{key[0]}-{key[1]}"
                    refused = Refused(code, what, partition.error_message)
                    if code not in _LATER:
                        raise refused
                    later = refused
        return later
