"""Verification: asks the coordinator of a transaction whether partitions belong to it (KIP-890).

The coordinator may be this broker. Others are asked with AddPartitionsToTxn, for all writes that
wait at the moment in one request.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from moldau.broker.coordination.host import Host
from moldau.broker.coordination.transactions.outbox import Outbox
from moldau.broker.coordination.transactions.transaction import Identity
from moldau.peer.aio import AsyncConnection
from moldau.peer.errors import PeerError
from moldau.peer.peers import Peers, Purpose
from moldau.topic_partition import TopicPartition
from moldau.wire.apis import Api
from moldau.wire.errors import Error
from moldau.wire.primitives import MalformedRequest

if TYPE_CHECKING:
    from moldau.broker.coordination.transactions.coordinator import TransactionCoordinator

logger = logging.getLogger("moldau.transactions")

VERIFYING = Purpose("moldau-verification")

Answers = Mapping[TopicPartition, Error]


class _Question(NamedTuple):
    id: str
    producer: Identity
    partitions: tuple[TopicPartition, ...]
    adds: bool


class Verification:
    """Asks whichever broker coordinates a transaction. Event loop only."""

    def __init__(
        self, host: Host, me: int, peers: Peers, coordinator: Callable[[], TransactionCoordinator]
    ) -> None:
        self._host = host
        self._me = me
        self._peers = peers
        self._coordinator = coordinator
        self._outboxes: dict[int, Outbox[_Question, Answers]] = {}

    async def verify(
        self,
        transactional_id: str,
        producer_id: int,
        epoch: int,
        partitions: Sequence[TopicPartition],
        *,
        adds: bool,
    ) -> Answers:
        """Ask whether the partitions belong to the producer's open transaction, or add them to it.

        Returns an error for each, under the names that AddPartitionsToTxn has for them, or those of
        a coordinator that cannot be asked.
        """
        if not adds and not self._host.settings.transaction_partition_verification_enable:
            return dict.fromkeys(partitions, Error.NONE)
        producer = Identity(producer_id, epoch)
        leader = self._coordinator().shards.leader_of(transactional_id)
        if leader == self._me:
            return await answer_here(
                self._coordinator(), transactional_id, producer, partitions, adds
            )
        if leader < 0:
            return dict.fromkeys(partitions, Error.COORDINATOR_NOT_AVAILABLE)
        question = _Question(transactional_id, producer, tuple(partitions), adds)
        try:
            answers = await self._outbox(leader).put(question)
        except (PeerError, TimeoutError, MalformedRequest) as problem:
            logger.warning("could not ask broker %d about a transaction: %s", leader, problem)
            return dict.fromkeys(partitions, Error.NETWORK_EXCEPTION)
        return {each: answers.get(each, Error.UNKNOWN_SERVER_ERROR) for each in partitions}

    def _outbox(self, broker: int) -> Outbox[_Question, Answers]:
        outbox = self._outboxes.get(broker)
        if outbox is None:
            lane = self._peers.lane(broker, VERIFYING)
            outbox = Outbox(self._host, lane, lambda question: question.id, _ask)
            self._outboxes[broker] = outbox
        return outbox


async def answer_here(
    coordinator: TransactionCoordinator,
    id: str,
    producer: Identity,
    partitions: Sequence[TopicPartition],
    adds: bool,
) -> dict[TopicPartition, Error]:
    """Return the answers of this broker, as the coordinator of a transaction."""
    from moldau.broker.coordination.transactions.machine import TV2

    if adds:
        return dict.fromkeys(partitions, await coordinator.add(id, producer, partitions, TV2))
    return {each: coordinator.verify(id, producer, each) for each in partitions}


async def _ask(connection: AsyncConnection, questions: Sequence[_Question]) -> list[Answers]:
    transactions = [_encoded(question) for question in questions]
    response = await connection.ask(Api.ADD_PARTITIONS_TO_TXN, {"transactions": transactions})
    if response.error_code:
        error = _error(response.error_code)
        return [dict.fromkeys(question.partitions, error) for question in questions]
    by_id = {each.transactional_id: _decoded(each) for each in response.results_by_transaction}
    return [by_id.get(question.id, {}) for question in questions]


def _encoded(question: _Question) -> dict[str, Any]:
    topics: dict[str, list[int]] = {}
    for topic, index in question.partitions:
        topics.setdefault(topic, []).append(index)
    return {
        "transactional_id": question.id,
        "producer_id": question.producer.producer_id,
        "producer_epoch": question.producer.epoch,
        "verify_only": not question.adds,
        "topics": [{"name": name, "partitions": indexes} for name, indexes in topics.items()],
    }


def _decoded(result: Any) -> dict[TopicPartition, Error]:
    return {
        (str(topic.name), int(each.partition_index)): _error(each.partition_error_code)
        for topic in result.topic_results
        for each in topic.results_by_partition
    }


def _error(code: int) -> Error:
    try:
        return Error(int(code))
    except ValueError:
        return Error.UNKNOWN_SERVER_ERROR
