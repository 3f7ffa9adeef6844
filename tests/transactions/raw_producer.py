"""A producer of either dialect that finds leaders and coordinators, and tries again until they
answer, as real ones do; one request at a time. TV1 as librdkafka speaks it, TV2 (KIP-890) as Java
does."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

from moldau.peer.connection import Connection
from moldau.peer.errors import RETRIABLE, PeerError
from moldau.peer.view import ClusterView, Node
from moldau.records.record import Record, build_batch
from moldau.wire.apis import Api
from moldau.wire.errors import Error
from tests.broker.api.transactions.producing import TV2
from tests.broker.wire_client import produce_values
from tests.scenarios.ledger import TopicPartition

_TRANSACTION = 1
_GROUP = 0
_PAUSE_S = (0.02, 0.2)
_ANSWER_WITHIN_S = 3.0
_TO_BE_RETRIED = RETRIABLE | {
    Error.CONCURRENT_TRANSACTIONS,
    Error.NOT_ENOUGH_REPLICAS,
    Error.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
}
_FENCED = frozenset(
    (
        Error.PRODUCER_FENCED,
        Error.INVALID_PRODUCER_EPOCH,
        Error.INVALID_PRODUCER_ID_MAPPING,
    )
)


class Refused(Exception):
    """A broker said no, and would say so again.

    `is_fenced` if another producer has taken the transactional id, or the coordinator did.
    """

    def __init__(self, what: str, reason: str, *, is_fenced: bool) -> None:
        super().__init__(f"{what}: {reason}")
        self.reason = reason
        self.is_fenced = is_fenced


class RawProducer:
    """One producer, for one thread. TimeoutError if nobody answers within `patience_s`."""

    def __init__(
        self,
        bootstrap: str,
        id: str,
        dialect: int = TV2,
        *,
        timeout_ms: int = 60_000,
        patience_s: float = 60.0,
    ) -> None:
        self.id = id
        self.patience_s = patience_s
        self._dialect = dialect
        self._bootstrap = [_node(each) for each in bootstrap.split(",")]
        self._timeout_ms = timeout_ms
        self._open: dict[tuple[str, int], Connection] = {}
        self._coordinators: dict[tuple[str, int], Node] = {}
        self._view: ClusterView | None = None
        self._producer_id, self._epoch = -1, -1
        self._sequences: dict[TopicPartition, int] = {}
        # What TV1 has added to the open transaction.
        self._added: set[TopicPartition | str] = set()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *problem: object) -> None:
        self.close()

    def close(self) -> None:
        """Hang up, as a process that dies does; an open transaction stays open."""
        for connection in self._open.values():
            connection.close()
        self._open.clear()

    @property
    def who(self) -> dict[str, Any]:
        return {
            "transactional_id": self.id,
            "producer_id": self._producer_id,
            "producer_epoch": self._epoch,
        }

    def begin(self) -> None:
        """Become the producer of this transactional id, and fence any other."""
        values = {"transactional_id": self.id, "transaction_timeout": self._timeout_ms}
        values |= {"producer_id": -1, "producer_epoch": -1}

        def ask() -> tuple[Error, Any]:
            answer = self._at_coordinator(_TRANSACTION, self.id).ask(
                Api.INIT_PRODUCER_ID, values, 5
            )
            return Error(answer.error_code), answer

        self._become(self._insist("InitProducerId", ask))

    def write(
        self, place: TopicPartition, values: Sequence[tuple[bytes | None, bytes]]
    ) -> list[int]:
        """Write a batch of keys and values in the transaction; their offsets."""
        self.add(place)
        now_ms = time.time_ns() // 1_000_000
        sequence = self._sequences.get(place, 0)
        records = [Record(i, now_ms, key, value) for i, (key, value) in enumerate(values)]
        batch = build_batch(
            records,
            producer_id=self._producer_id,
            producer_epoch=self._epoch,
            base_sequence=sequence,
            is_transactional=True,
        )
        topic, index = place
        body = produce_values({topic: {index: batch}}) | {"transactional_id": self.id}

        def ask() -> tuple[Error, Any]:
            answer = self._at_leader(place).ask(
                Api.PRODUCE, body, 12 if self._dialect == TV2 else 10
            )
            result = answer.responses[0].partition_responses[0]
            return Error(result.error_code), result

        result = self._insist(f"Produce to {place}", ask)
        self._sequences[place] = sequence + len(values)
        first = int(result.base_offset)
        return list(range(first, first + len(values))) if first >= 0 else []

    def add(self, place: TopicPartition) -> None:
        """Add a partition to the transaction, if it is not in it; in TV2 its leader does."""
        if self._dialect == TV2 or place in self._added:
            return
        topics = [{"name": place.topic, "partitions": [place.partition]}]
        values = {f"v3_and_below_{key}": value for key, value in self.who.items()}

        def ask() -> tuple[Error, Any]:
            answer = self._at_coordinator(_TRANSACTION, self.id).ask(
                Api.ADD_PARTITIONS_TO_TXN, values | {"v3_and_below_topics": topics}, 0
            )
            result = answer.results_by_topic_v3_and_below[0].results_by_partition[0]
            return Error(result.partition_error_code), answer

        self._insist(f"AddPartitionsToTxn of {place}", ask)
        self._added.add(place)

    def _add_group(self, group: str) -> None:
        if self._dialect == TV2 or group in self._added:
            return

        def ask() -> tuple[Error, Any]:
            answer = self._at_coordinator(_TRANSACTION, self.id).ask(
                Api.ADD_OFFSETS_TO_TXN, self.who | {"group_id": group}, 0
            )
            return Error(answer.error_code), answer

        self._insist("AddOffsetsToTxn", ask)
        self._added.add(group)

    def stage(self, group: str, positions: Mapping[TopicPartition, int]) -> None:
        """Commit a group's offsets with the transaction."""
        self._add_group(group)
        topics: dict[str, list[dict[str, Any]]] = {}
        for (topic, index), offset in positions.items():
            each = {"partition_index": index, "committed_offset": offset, "committed_metadata": ""}
            topics.setdefault(topic, []).append(each)
        values = {"group_id": group, "generation_id": -1, "member_id": ""} | self.who
        values["topics"] = [{"name": name, "partitions": each} for name, each in topics.items()]

        def ask() -> tuple[Error, Any]:
            answer = self._at_coordinator(_GROUP, group).ask(
                Api.TXN_OFFSET_COMMIT, values, 5 if self._dialect == TV2 else 3
            )
            errors = [Error(p.error_code) for topic in answer.topics for p in topic.partitions]
            return max(errors, key=bool), answer

        self._insist("TxnOffsetCommit", ask)

    def end(self, *, commits: bool) -> None:
        values = self.who | {"committed": commits}

        def ask() -> tuple[Error, Any]:
            answer = self._at_coordinator(_TRANSACTION, self.id).ask(
                Api.END_TXN, values, 5 if self._dialect == TV2 else 1
            )
            return Error(answer.error_code), answer

        answer = self._insist("EndTxn", ask)
        self._added.clear()
        if self._dialect == TV2:
            self._become(answer)

    # --

    def _become(self, answer: Any) -> None:
        if (self._producer_id, self._epoch) != (answer.producer_id, answer.producer_epoch):
            self._producer_id, self._epoch = answer.producer_id, answer.producer_epoch
            self._sequences.clear()
            self._added.clear()

    def _insist(self, what: str, ask: Callable[[], tuple[Error, Any]]) -> Any:
        deadline = time.monotonic() + self.patience_s
        while True:
            problem = ""
            try:
                error, answer = ask()
            except PeerError as lost:
                problem = str(lost)
            else:
                if not error:
                    return answer
                if error not in _TO_BE_RETRIED:
                    raise Refused(what, error.name, is_fenced=error in _FENCED)
                problem = error.name
            if problem != Error.CONCURRENT_TRANSACTIONS.name:
                self._view = None
                self._coordinators.clear()
            if time.monotonic() > deadline:
                raise TimeoutError(f"{what} of {self.id}: {problem} for {self.patience_s:g} s")
            time.sleep(random.uniform(*_PAUSE_S))

    def _at_leader(self, place: TopicPartition) -> Connection:
        topic, index = place
        if self._view is None or topic not in self._view.topics:
            values = {"topics": [{"name": topic}], "allow_auto_topic_creation": False}
            found = ClusterView.of(self._any().ask(Api.METADATA, values))
            topics = self._view.topics if self._view is not None else {}
            self._view = ClusterView(found.nodes, topics | found.topics)
        leader = self._view.topics[topic].leaders.get(index)
        if leader is None or leader.node_id not in self._view.nodes:
            raise PeerError(f"{place} has no leader")
        return self._to(self._view.nodes[leader.node_id])

    def _at_coordinator(self, kind: int, key: str) -> Connection:
        node = self._coordinators.get((key, kind))
        if node is None:
            values = {"key": key, "key_type": kind}
            answer = self._any().ask(Api.FIND_COORDINATOR, values, 3)
            if answer.error_code:
                raise PeerError(f"no coordinator of {key}: {Error(answer.error_code).name}")
            node = Node(int(answer.node_id), str(answer.host), int(answer.port))
            self._coordinators[key, kind] = node
        return self._to(node)

    def _any(self) -> Connection:
        return self._to(random.choice(self._bootstrap))

    def _to(self, node: Node) -> Connection:
        address = (node.host, node.port)
        connection = self._open.get(address)
        if connection is None or not connection.is_open:
            connection = self._open[address] = Connection(
                node.host,
                node.port,
                self.id,
                timeout_s=_ANSWER_WITHIN_S,
                connect_timeout_s=_ANSWER_WITHIN_S,
            )
        return connection


def _node(address: str) -> Node:
    host, _, port = address.rpartition(":")
    return Node(-1, host, int(port))
