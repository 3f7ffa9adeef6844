"""InitProducerId: an identity for an idempotent producer."""

from __future__ import annotations

import logging

from moldau.broker.api.records.parts import RecordParts, handles
from moldau.broker.api.registry import Answer
from moldau.broker.api.rights import on_cluster, on_transactional_ids
from moldau.broker.net.request import Request
from moldau.broker.security.authorizer import Operation
from moldau.cluster.store import StoreError
from moldau.wire.apis import Api
from moldau.wire.errors import Error

logger = logging.getLogger("moldau.broker")


def _transactional_ids(request: Request) -> tuple[str, ...]:
    named = request.body.transactional_id
    return () if named is None else (named,)


@handles(
    Api.INIT_PRODUCER_ID,
    (0, 5),
    on_transactional_ids(Operation.WRITE, _transactional_ids),
    on_cluster(Operation.IDEMPOTENT_WRITE, lambda request: not _transactional_ids(request)),
)
async def init_producer_id(parts: RecordParts, request: Request) -> Answer:
    """Return a new producer id with epoch 0.

    A producer that names the id it had (KIP-360) gets a new one too: without a transactional id
    nobody else can have it, and old sequence numbers mean nothing under the new one.
    """
    body = request.body
    producer_id, epoch = getattr(body, "producer_id", -1), getattr(body, "producer_epoch", -1)
    if (producer_id == -1) != (epoch == -1) or body.transactional_id == "":
        return _refused(Error.INVALID_REQUEST)
    if body.transactional_id is not None:
        logger.warning(
            "client %s asked for transactions (transactional.id=%s), which "
            "this broker does not support",
            request.client_id,
            body.transactional_id,
        )
        return _refused(Error.UNSUPPORTED_VERSION)
    try:
        return {"producer_id": await parts.producer_ids.next(), "producer_epoch": 0}
    except StoreError as error:
        logger.error("could not allocate a producer id: %s", error)
        return _refused(Error.KAFKA_STORAGE_ERROR)


def _refused(error: Error) -> Answer:
    return {"error_code": error, "producer_id": -1, "producer_epoch": -1}
