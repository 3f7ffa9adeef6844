"""EndTxn: commits or aborts a producer's transaction."""

from __future__ import annotations

from moldau.broker.api.registry import Answer
from moldau.broker.api.rights import on_transactional_ids
from moldau.broker.api.transactions.errors import fenced_as
from moldau.broker.api.transactions.parts import TransactionParts, handles
from moldau.broker.coordination.transactions.machine import TV2, End
from moldau.broker.coordination.transactions.transaction import Identity
from moldau.broker.net.request import Request
from moldau.broker.security.authorizer import Operation
from moldau.wire.apis import Api
from moldau.wire.errors import Error

_FIRST_WITH_FENCED = 2
# Every end raises the producer's epoch (KIP-890).
_FIRST_OF_TV2 = 5


@handles(
    Api.END_TXN,
    (0, 5),
    on_transactional_ids(Operation.WRITE, lambda request: (request.body.transactional_id,)),
    refused=lambda request, error: {"error_code": error.error},
)
async def end_txn(parts: TransactionParts, request: Request) -> Answer:
    """Answered once the decision is on every in-sync replica; the markers are written after."""
    body = request.body
    if not body.transactional_id:
        return {"error_code": Error.INVALID_REQUEST}
    version = TV2 if request.version >= _FIRST_OF_TV2 else 0
    producer = Identity(body.producer_id, body.producer_epoch)
    outcome = await parts.transactions.end(
        body.transactional_id, End(producer, bool(body.committed), version)
    )
    if outcome.error:
        return {"error_code": fenced_as(outcome.error, request, _FIRST_WITH_FENCED)}
    producer_id, epoch = outcome.producer
    return {"producer_id": producer_id, "producer_epoch": epoch}
