"""InitProducerId: an identity for a producer, idempotent or transactional."""

from __future__ import annotations

import logging
from typing import Any

from moldau.broker.api.registry import Answer
from moldau.broker.api.rights import Right, on_topics, on_transactional_ids
from moldau.broker.api.transactions.errors import fenced_as
from moldau.broker.api.transactions.parts import TransactionParts, handles
from moldau.broker.coordination.transactions.machine import Init
from moldau.broker.coordination.transactions.transaction import NO_TIMEOUT_MS, Identity
from moldau.broker.net.request import Request
from moldau.broker.security.authorizer import Operation, Resource
from moldau.cluster.decisions.features import transaction_version
from moldau.cluster.store import StoreError
from moldau.wire.apis import Api
from moldau.wire.errors import Error
from moldau.wire.messages import milliseconds

logger = logging.getLogger("moldau.broker")

_FIRST_WITH_FENCED = 4


def _transactional_ids(request: Request) -> tuple[str, ...]:
    named = request.body.transactional_id
    return () if named is None else (named,)


@handles(
    Api.INIT_PRODUCER_ID,
    (0, 6),
    on_transactional_ids(Operation.WRITE, _transactional_ids),
    on_transactional_ids(Operation.TWO_PHASE_COMMIT),
    Right(Operation.IDEMPOTENT_WRITE, Resource.CLUSTER),
    on_topics(Operation.WRITE),
    refused=lambda request, error: _refused(error.error),
)
async def init_producer_id(parts: TransactionParts, request: Request) -> Answer:
    """Return a producer id and an epoch.

    Without a transactional id both are new. A producer that names the id it had (KIP-360) gets a
    new one too: nobody else can have it, and old sequence numbers mean nothing under the new one.
    """
    body = request.body
    if body.transactional_id is None and not _may_write(request):
        return _refused(Error.CLUSTER_AUTHORIZATION_FAILED)
    producer_id, epoch = getattr(body, "producer_id", -1), getattr(body, "producer_epoch", -1)
    if (producer_id == -1) != (epoch == -1) or body.transactional_id == "":
        return _refused(Error.INVALID_REQUEST)
    if body.transactional_id is not None:
        if not transaction_version(parts.node.state):
            return _refused(Error.COORDINATOR_NOT_AVAILABLE)
        expected = None if producer_id == -1 else Identity(producer_id, epoch)
        return await _transactional(parts, request, expected)
    try:
        return {"producer_id": await parts.producer_ids.next(), "producer_epoch": 0}
    except StoreError as error:
        logger.error("could not allocate a producer id: %s", error)
        return _refused(Error.KAFKA_STORAGE_ERROR)


async def _transactional(
    parts: TransactionParts, request: Request, expected: Identity | None
) -> Answer:
    body, settings = request.body, parts.node.settings
    is_two_phase = getattr(body, "enable2_pc", False)
    keeps = getattr(body, "keep_prepared_txn", False)
    timeout_ms = milliseconds(body.transaction_timeout)
    if (is_two_phase or keeps) and not (
        settings.transaction_two_phase_commit_enable
        and request.may(
            Operation.TWO_PHASE_COMMIT, Resource.TRANSACTIONAL_ID, body.transactional_id
        )
    ):
        return _refused(Error.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    if keeps and not is_two_phase:
        return _refused(Error.INVALID_REQUEST)
    if is_two_phase:
        timeout_ms = NO_TIMEOUT_MS
    elif not 0 < timeout_ms <= settings.transaction_max_timeout_ms:
        return _refused(Error.INVALID_TRANSACTION_TIMEOUT)
    outcome = await parts.transactions.initialize(
        body.transactional_id, Init(timeout_ms, expected, keeps)
    )
    if outcome.error:
        return _refused(fenced_as(outcome.error, request, _FIRST_WITH_FENCED))
    return {
        "producer_id": outcome.producer.producer_id,
        "producer_epoch": outcome.producer.epoch,
        "ongoing_txn_producer_id": outcome.ongoing.producer_id,
        "ongoing_txn_producer_epoch": outcome.ongoing.epoch,
    }


def _may_write(request: Request) -> bool:
    """Return whether a plain producer may have an id: who may write to any topic may (KIP-679)."""
    if request.authorizer is None or request.may_on_cluster(
        Operation.IDEMPOTENT_WRITE, quietly=True
    ):
        return True
    context = request.context
    return request.authorizer.allows_any(
        context.principal, context.client_host, Operation.WRITE, Resource.TOPIC, request.api
    )


def _refused(error: Error) -> dict[str, Any]:
    return {"error_code": error, "producer_id": -1, "producer_epoch": -1}
