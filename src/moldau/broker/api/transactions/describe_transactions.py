"""DescribeTransactions: the state of transactions by their transactional ids (KIP-664)."""

from __future__ import annotations

from typing import Any

from moldau.broker.api.registry import Answer
from moldau.broker.api.rights import on_topics, on_transactional_ids
from moldau.broker.api.transactions.parts import TransactionParts, handles
from moldau.broker.coordination.transactions.transaction import Transaction
from moldau.broker.net.request import Request
from moldau.broker.security.authorizer import Operation, Resource
from moldau.wire.apis import Api
from moldau.wire.errors import Error


@handles(
    Api.DESCRIBE_TRANSACTIONS,
    (0, 0),
    on_transactional_ids(Operation.DESCRIBE),
    on_topics(Operation.DESCRIBE),
)
def describe_transactions(parts: TransactionParts, request: Request) -> Answer:
    """Return what is known of each id that this broker coordinates."""
    return {
        "transaction_states": [
            _describe(parts, request, id) for id in request.body.transactional_ids
        ]
    }


def _describe(parts: TransactionParts, request: Request, id: str) -> dict[str, Any]:
    if not request.may(Operation.DESCRIBE, Resource.TRANSACTIONAL_ID, id):
        found: Transaction | Error = Error.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    else:
        found = parts.transactions.find(id) if id else Error.INVALID_REQUEST
    if isinstance(found, Error):
        return {
            "error_code": found,
            "transactional_id": id,
            "transaction_state": "",
            "transaction_timeout": 0,
            "transaction_start_time": 0,
            "producer_id": 0,
            "producer_epoch": 0,
            "topics": [],
        }
    topics: dict[str, list[int]] = {}
    for topic, index in sorted(found.partitions):
        if not request.may(Operation.DESCRIBE, Resource.TOPIC, topic, quietly=True):
            continue
        topics.setdefault(topic, []).append(index)
    return {
        "error_code": Error.NONE,
        "transactional_id": id,
        "transaction_state": found.state.title,
        "transaction_timeout": found.timeout_ms,
        "transaction_start_time": found.started_ms,
        "producer_id": found.producer.producer_id,
        "producer_epoch": found.producer.epoch,
        "topics": [{"topic": topic, "partitions": indexes} for topic, indexes in topics.items()],
    }
