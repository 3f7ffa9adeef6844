"""AddPartitionsToTxn: which partitions belong to a transaction.

Clients say so before they write (up to v3, transaction version 1). Brokers ask for their clients
(since v4): whether a partition belongs to a transaction, or that it be added (KIP-890).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any

from moldau.broker.api.registry import Answer
from moldau.broker.api.rights import Right, on_topics, on_transactional_ids
from moldau.broker.api.transactions.errors import fenced_as
from moldau.broker.api.transactions.parts import TransactionParts, handles
from moldau.broker.coordination.transactions.transaction import Identity
from moldau.broker.coordination.transactions.verification import answer_here
from moldau.broker.net.request import Request
from moldau.broker.security.authorizer import CLUSTER_NAME, Operation, Resource
from moldau.cluster.errors import ClusterError
from moldau.cluster.state.internal_topics import INTERNAL_TOPICS
from moldau.topic_partition import TopicPartition
from moldau.wire.apis import Api
from moldau.wire.errors import Error

_FIRST_WITH_FENCED = 2
_FIRST_OF_BROKERS = 4


def _transactional_ids(request: Request) -> Iterable[str]:
    if request.version >= _FIRST_OF_BROKERS:
        return ()
    return (request.body.v3_and_below_transactional_id,)


def _cluster(request: Request) -> Iterable[str]:
    return (CLUSTER_NAME,) if request.version >= _FIRST_OF_BROKERS else ()


def _refuse(request: Request, error: ClusterError) -> Answer:
    if request.version >= _FIRST_OF_BROKERS:
        return {"error_code": error.error}
    partitions = _partitions(request.body.v3_and_below_topics)
    return {"results_by_topic_v3_and_below": _by_topic(dict.fromkeys(partitions, error.error))}


@handles(
    Api.ADD_PARTITIONS_TO_TXN,
    (0, 5),
    Right(Operation.CLUSTER_ACTION, Resource.CLUSTER, _cluster),
    on_transactional_ids(Operation.WRITE, _transactional_ids),
    on_topics(Operation.WRITE),
    refused=_refuse,
)
async def add_partitions_to_txn(parts: TransactionParts, request: Request) -> Answer:
    """Answered once the partitions are on every in-sync replica as part of the transaction."""
    body = request.body
    if request.version >= _FIRST_OF_BROKERS:
        answers = await asyncio.gather(*(_ask(parts, request, each) for each in body.transactions))
        return {
            "results_by_transaction": [
                {"transactional_id": each.transactional_id, "topic_results": _by_topic(errors)}
                for each, errors in zip(body.transactions, answers, strict=True)
            ]
        }
    partitions = _partitions(body.v3_and_below_topics)
    id = body.v3_and_below_transactional_id
    producer = Identity(body.v3_and_below_producer_id, body.v3_and_below_producer_epoch)
    errors = _impossible(parts, request, partitions)
    if not errors:
        error = Error.INVALID_REQUEST
        if id:
            error = await parts.transactions.add(id, producer, partitions, 0)
        errors = dict.fromkeys(partitions, fenced_as(error, request, _FIRST_WITH_FENCED))
    return {"results_by_topic_v3_and_below": _by_topic(errors)}


async def _ask(
    parts: TransactionParts, request: Request, transaction: Any
) -> Mapping[TopicPartition, Error]:
    """Return the answers about one transaction that a broker asks for."""
    partitions = _partitions(transaction.topics)
    if not transaction.transactional_id:
        return dict.fromkeys(partitions, Error.INVALID_REQUEST)
    errors = _impossible(parts, request, partitions)
    if errors:
        return errors
    producer = Identity(transaction.producer_id, transaction.producer_epoch)
    return await answer_here(
        parts.transactions,
        transaction.transactional_id,
        producer,
        partitions,
        not transaction.verify_only,
    )


def _impossible(
    parts: TransactionParts, request: Request, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, Error]:
    """Return an error for each partition if one of them cannot be added; nothing if all can."""
    is_client = request.version < _FIRST_OF_BROKERS
    errors: dict[TopicPartition, Error] = {}
    for topic, index in partitions:
        if is_client and (
            topic in INTERNAL_TOPICS or not request.may_on_topic(Operation.WRITE, topic)
        ):
            errors[topic, index] = Error.TOPIC_AUTHORIZATION_FAILED
        elif parts.node.state.partition(topic, index) is None:
            errors[topic, index] = Error.UNKNOWN_TOPIC_OR_PARTITION
    if not errors:
        return errors
    return {each: errors.get(each, Error.OPERATION_NOT_ATTEMPTED) for each in partitions}


def _partitions(topics: Iterable[Any]) -> list[TopicPartition]:
    return [(topic.name, index) for topic in topics for index in topic.partitions]


def _by_topic(errors: Mapping[TopicPartition, Error]) -> list[dict[str, Any]]:
    topics: dict[str, list[dict[str, Any]]] = {}
    for (topic, index), error in errors.items():
        result = {"partition_index": index, "partition_error_code": error}
        topics.setdefault(topic, []).append(result)
    return [{"name": name, "results_by_partition": results} for name, results in topics.items()]
