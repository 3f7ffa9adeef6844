"""AddOffsetsToTxn: the offsets of a group are to be committed with a transaction."""

from __future__ import annotations

from moldau.broker.api.registry import Answer
from moldau.broker.api.rights import on_groups, on_transactional_ids, the_group
from moldau.broker.api.transactions.errors import fenced_as
from moldau.broker.api.transactions.parts import TransactionParts, handles
from moldau.broker.coordination.transactions.transaction import Identity
from moldau.broker.net.request import Request
from moldau.broker.security.authorizer import Operation
from moldau.wire.apis import Api
from moldau.wire.errors import Error

_FIRST_WITH_FENCED = 2


@handles(
    Api.ADD_OFFSETS_TO_TXN,
    (0, 4),
    on_transactional_ids(Operation.WRITE, lambda request: (request.body.transactional_id,)),
    on_groups(Operation.READ, the_group),
    refused=lambda request, error: {"error_code": error.error},
)
async def add_offsets_to_txn(parts: TransactionParts, request: Request) -> Answer:
    """Add the partition that keeps the group's offsets to the transaction."""
    body = request.body
    if not body.transactional_id:
        return {"error_code": Error.INVALID_REQUEST}
    offsets = parts.groups.shards
    refusal = await offsets.ensure_topic()
    if refusal is not None:
        return {"error_code": Error.COORDINATOR_NOT_AVAILABLE}
    partition = (offsets.topic.name, offsets.partition_of(body.group_id))
    producer = Identity(body.producer_id, body.producer_epoch)
    error = await parts.transactions.add(body.transactional_id, producer, [partition], 0)
    return {"error_code": fenced_as(error, request, _FIRST_WITH_FENCED)}
