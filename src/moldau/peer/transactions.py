"""Transactions as brokers tell of them: coordinators by transactional id, partitions by producer.

KIP-664. A coordinator knows which transactions there are, and the partitions of each. A partition
knows which producers have a transaction open in it, and where each began.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from typing import Any, TypeVar
from uuid import uuid4

from moldau.peer.cluster import TRANSACTION, Cluster
from moldau.peer.errors import Refused
from moldau.peer.view import ClusterView, Node
from moldau.topic_partition import TopicPartition
from moldau.wire.apis import Api
from moldau.wire.errors import Error
from moldau.wire.messages import milliseconds

T = TypeVar("T")

STATE_TOPIC = "__transaction_state"
# The beginning of every transactional id of the Spark sink; rights can be given for it as a whole.
SINK_PREFIX = "moldau-sink/"
# States in which the records of a transaction wait for their markers.
OPEN_STATES = ("Ongoing", "PrepareCommit", "PrepareAbort", "PrepareEpochFence")
# Stored as the timeout of a transaction that no timeout ends (KIP-939).
NO_TIMEOUT_MS = (1 << 31) - 1
# The feature whose level says which dialect of transactions a cluster speaks (KIP-890).
_DIALECT, _TV2 = "transaction.version", 2
_PATTERN_VERSION = 2
_DURATION_VERSION = 1


@dataclass(frozen=True, slots=True)
class ListedTransaction:
    """A transactional id, and the broker that coordinates it."""

    id: str
    state: str
    producer_id: int
    coordinator: Node


@dataclass(frozen=True, slots=True)
class DescribedTransaction:
    """All that a coordinator knows; `started_ms` is None for one that never began."""

    id: str
    state: str
    producer_id: int
    epoch: int
    timeout_ms: int
    started_ms: int | None
    partitions: tuple[TopicPartition, ...]
    coordinator: Node

    @property
    def is_open(self) -> bool:
        return self.state in OPEN_STATES

    @property
    def is_of_sink(self) -> bool:
        """Whether the Spark sink knows if it is decided, which its state does not tell."""
        return self.id.startswith(SINK_PREFIX)


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """A transaction that is open in a partition: two are the same if they began at one offset."""

    place: TopicPartition
    producer_id: int
    start_offset: int
    epoch: int = field(compare=False)
    coordinator_epoch: int = field(compare=False)
    # The timestamp of the producer's last record there.
    written_ms: int = field(compare=False)


@dataclass(frozen=True, slots=True)
class Filters:
    """Which transactions to list: those that pass all of these."""

    states: Collection[str] = ()
    producer_ids: Collection[int] = ()
    # RE2's, for the whole transactional id.
    pattern: str | None = None
    longer_than_ms: int = -1


class Transactions:
    """Asks coordinators and leaders, for one thread. PeerError as from `Cluster`."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def listed(self, filters: Filters | None = None) -> list[ListedTransaction]:
        """Return the transactions of all coordinators, by transactional id."""
        wanted = filters or Filters()

        def ask() -> list[ListedTransaction]:
            nodes = _coordinators(self._cluster.metadata((STATE_TOPIC,)))
            found = (each for node in nodes for each in self._list_of(node, wanted))
            # While a coordinator moves, two brokers may tell of the same one.
            return sorted({each.id: each for each in found}.values(), key=lambda each: each.id)

        return self._cluster.insist(ask)

    def of_producers(self, producer_ids: Collection[int]) -> list[DescribedTransaction]:
        """Return all open transactions of these producers: what is missing, no coordinator knows.

        Refused if we may not see every transactional id: what is hidden from us looks as if it were
        not there.
        """
        wanted = Filters(OPEN_STATES, producer_ids)

        def ask() -> list[DescribedTransaction]:
            view = self._cluster.metadata((STATE_TOPIC,))
            topic = view.topics[STATE_TOPIC]
            if not topic.exists:
                return []
            topic.check()
            self._check_sight()
            return self.of_all(lambda node: self._describe_listed(self._list_of(node, wanted)))

        return self._cluster.insist(ask)

    def of_all(self, ask: Callable[[Node], list[T]]) -> list[T]:
        """Return what all coordinators say, asked once; Refused, to come again, if one is missing.

        A broker tells only of the partitions of the state topic that it leads, so all of them must
        have a leader that says so itself, before and after. If we may not see the topic, all
        brokers are asked, and nobody can tell whether one is missing.
        """
        view = self._cluster.metadata((STATE_TOPIC,))
        topic = view.topics[STATE_TOPIC]
        if not topic.exists:
            return []
        is_hidden = topic.error == Error.TOPIC_AUTHORIZATION_FAILED
        found: list[T] = []
        seen: set[int] = set()
        for node in _coordinators(view):
            before = set() if is_hidden else self._led_by(node)
            found += ask(node)
            if not is_hidden:
                seen.update(index for index, _ in before & self._led_by(node))
        unseen = topic.leaders.keys() - seen
        if unseen:
            what = f"partition {min(unseen)} of {STATE_TOPIC}"
            raise Refused(Error.COORDINATOR_NOT_AVAILABLE, what)
        return found

    def describe(self, id: str) -> DescribedTransaction:
        """Return what the coordinator knows; Refused if it knows no such transactional id."""

        def ask() -> DescribedTransaction:
            node = self._cluster.coordinator(id, TRANSACTION)
            (found,) = self.describe_at(node, (id,))
            if isinstance(found, Refused):
                raise found
            return found

        return self._cluster.insist(ask)

    def describe_listed(self, listed: Iterable[ListedTransaction]) -> list[DescribedTransaction]:
        """Return what their coordinators know; without those that are gone or moved by now."""
        return self._describe_listed(listed, (Error.NOT_COORDINATOR,))

    def open_in(self, places: Collection[TopicPartition]) -> list[OpenTransaction]:
        """Return the transactions that are open in these partitions, as their leaders know them."""

        def ask() -> list[OpenTransaction]:
            view = self._cluster.metadata(dict.fromkeys(topic for topic, _ in places))
            by_node: dict[Node, dict[str, list[int]]] = {}
            for topic, index in places:
                node = leader_in(view, topic, index)
                by_node.setdefault(node, {}).setdefault(topic, []).append(index)
            return [
                each
                for node, topics in by_node.items()
                for each in self._producers_at(node, topics)
                if each.start_offset >= 0
            ]

        return self._cluster.insist(ask) if places else []

    def fence(self, id: str) -> None:
        """Abort what is open under a transactional id, and refuse its producer from now on.

        Returns when the markers are written: until then the coordinator says to come again.
        """
        values = {
            "transactional_id": id,
            # Whoever uses the id next says how long its transactions may take.
            "transaction_timeout": 1,
            "producer_id": -1,
            "producer_epoch": -1,
        }

        def ask() -> None:
            node = self._cluster.coordinator(id, TRANSACTION)
            code = int(self._cluster.to(node).ask(Api.INIT_PRODUCER_ID, values).error_code)
            if code == Error.CONCURRENT_TRANSACTIONS:
                raise Refused(Error.COORDINATOR_LOAD_IN_PROGRESS, f"the markers of {id!r}")
            if code:
                raise Refused(code, f"transactional id {id!r}")

        self._cluster.insist(ask)

    def may_fence(self, id: str) -> bool | None:
        """Return whether we may `fence` an id; None if the broker does not tell.

        Kafka's protocol tells nobody what they may do with a transactional id. So we ask for the
        same with a timeout that brokers do not accept: they look at the right first, and change
        nothing. Of other brokers than Kafka's and ours we do not know that (Redpanda takes a
        timeout of 0), so only those are asked that have the newer dialect of transactions.
        """
        values = {
            "transactional_id": id,
            "transaction_timeout": 0,
            "producer_id": -1,
            "producer_epoch": -1,
        }
        try:
            node = self._cluster.coordinator(id, TRANSACTION)
            connection = self._cluster.to(node)
            if connection.level_of(_DIALECT) < _TV2:
                return None
            code = int(connection.ask(Api.INIT_PRODUCER_ID, values).error_code)
        except Refused as refused:
            code = refused.code
        if code == Error.TRANSACTIONAL_ID_AUTHORIZATION_FAILED:
            return False
        return True if code == Error.INVALID_TRANSACTION_TIMEOUT else None

    def write_abort(self, open: OpenTransaction) -> None:
        """Write the marker that aborts a transaction in one partition, behind its coordinator's
        back: only for one that no coordinator knows."""
        topic, index = open.place
        marker = {
            "producer_id": open.producer_id,
            "producer_epoch": open.epoch,
            # The leader fences lower ones, and has none of a producer's first transaction.
            "coordinator_epoch": max(open.coordinator_epoch, 0),
            "transaction_result": False,
            "topics": [{"name": topic, "partition_indexes": [index]}],
        }

        def ask() -> None:
            node = leader_in(self._cluster.metadata((topic,)), topic, index)
            answer = self._cluster.to(node).ask(Api.WRITE_TXN_MARKERS, {"markers": [marker]})
            code = int(answer.markers[0].topics[0].partitions[0].error_code)
            if code:
                raise Refused(code, f"{topic}-{index}")

        self._cluster.insist(ask)

    def _led_by(self, node: Node) -> set[tuple[int, int]]:
        """Return the partitions of the state topic that a broker says it leads, with the epochs."""
        values = {"topics": [{"name": STATE_TOPIC}], "allow_auto_topic_creation": False}
        view = ClusterView.of(self._cluster.to(node).ask(Api.METADATA, values))
        leaders = view.topics[STATE_TOPIC].leaders
        return {(index, each.epoch) for index, each in leaders.items() if each.node_id == node.id}

    def _list_of(self, node: Node, filters: Filters) -> list[ListedTransaction]:
        connection = self._cluster.to(node)
        needed = _DURATION_VERSION if filters.longer_than_ms >= 0 else 0
        needed = _PATTERN_VERSION if filters.pattern else needed
        if connection.version_of(Api.LIST_TRANSACTIONS) < needed:
            raise Refused(Error.UNSUPPORTED_VERSION, f"this filter at broker {node.id}")
        values = {
            "state_filters": list(filters.states),
            "producer_id_filters": list(filters.producer_ids),
            "duration_filter": filters.longer_than_ms,
            "transactional_id_pattern": filters.pattern,
        }
        answer = connection.ask(Api.LIST_TRANSACTIONS, values)
        if answer.error_code:
            raise Refused(int(answer.error_code), f"transactions of broker {node.id}")
        if answer.unknown_state_filters:
            names = ", ".join(answer.unknown_state_filters)
            raise Refused(Error.INVALID_REQUEST, f"states of transactions: {names}")
        return [
            ListedTransaction(
                str(each.transactional_id), each.transaction_state, int(each.producer_id), node
            )
            for each in answer.transaction_states
        ]

    def _describe_listed(
        self, listed: Iterable[ListedTransaction], passing: Collection[Error] = ()
    ) -> list[DescribedTransaction]:
        by_node: dict[Node, list[str]] = {}
        for each in listed:
            by_node.setdefault(each.coordinator, []).append(each.id)
        found = []
        for node, ids in by_node.items():
            for answer in self.describe_at(node, ids):
                if isinstance(answer, DescribedTransaction):
                    found.append(answer)
                elif answer.code not in (Error.TRANSACTIONAL_ID_NOT_FOUND, *passing):
                    raise answer
        return found

    def _check_sight(self) -> None:
        """Refused unless we may see transactional ids whatever they are, such as a random one."""
        try:
            self._cluster.coordinator(f"moldau-{uuid4()}", TRANSACTION)
        except Refused as refused:
            if refused.code == Error.TRANSACTIONAL_ID_AUTHORIZATION_FAILED:
                raise Refused(refused.code, "not all transactional ids can be seen") from None
            raise

    def describe_at(self, node: Node, ids: Collection[str]) -> list[DescribedTransaction | Refused]:
        """Return what a coordinator knows of these ids, or why nothing, asked once."""
        values = {"transactional_ids": list(ids)}
        answer = self._cluster.to(node).ask(Api.DESCRIBE_TRANSACTIONS, values)
        return [_described(each, node) for each in answer.transaction_states]

    def _producers_at(self, node: Node, topics: dict[str, list[int]]) -> list[OpenTransaction]:
        wanted = [{"name": name, "partition_indexes": all} for name, all in topics.items()]
        answer = self._cluster.to(node).ask(Api.DESCRIBE_PRODUCERS, {"topics": wanted})
        found = []
        for topic in answer.topics:
            for partition in topic.partitions:
                place = (str(topic.name), int(partition.partition_index))
                if partition.error_code:
                    what = f"producers of {place[0]}-{place[1]}"
                    raise Refused(int(partition.error_code), what, partition.error_message)
                found += [_open(each, place) for each in partition.active_producers]
        return found


def _coordinators(view: ClusterView) -> list[Node]:
    """Return the brokers that coordinate transactions, or all if we may not see which do.

    Brokers that are gone are still named for a while, and coordinate nothing.
    """
    topic = view.topics[STATE_TOPIC]
    if topic.error == Error.TOPIC_AUTHORIZATION_FAILED:
        return list(view.nodes.values())
    leaders = {each.node_id for each in topic.leaders.values()}
    missing = leaders - view.nodes.keys()
    if missing:
        raise Refused(Error.COORDINATOR_NOT_AVAILABLE, f"a partition of {STATE_TOPIC}")
    return [view.nodes[id] for id in sorted(leaders)]


def leader_in(view: ClusterView, topic: str, index: int) -> Node:
    """Return the leader of a partition; Refused if there is none."""
    described = view.topics[topic]
    described.check()
    leader = described.leaders.get(index)
    if leader is None or leader.node_id not in view.nodes:
        raise Refused(Error.LEADER_NOT_AVAILABLE, f"{topic}-{index}")
    return view.nodes[leader.node_id]


def _described(answer: Any, node: Node) -> DescribedTransaction | Refused:
    id = str(answer.transactional_id)
    if answer.error_code:
        return Refused(int(answer.error_code), f"transactional id {id!r}")
    started = answer.transaction_start_time
    return DescribedTransaction(
        id=id,
        state=str(answer.transaction_state),
        producer_id=int(answer.producer_id),
        epoch=int(answer.producer_epoch),
        timeout_ms=milliseconds(answer.transaction_timeout),
        started_ms=None if started is None else round(started.timestamp() * 1000),
        partitions=tuple(
            (str(each.topic), int(index)) for each in answer.topics for index in each.partitions
        ),
        coordinator=node,
    )


def _open(answer: Any, place: TopicPartition) -> OpenTransaction:
    return OpenTransaction(
        place,
        int(answer.producer_id),
        int(answer.current_txn_start_offset),
        int(answer.producer_epoch),
        int(answer.coordinator_epoch),
        int(answer.last_timestamp),
    )
