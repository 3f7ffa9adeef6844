"""ListTransactions: the transactions that this broker coordinates (KIP-664).

A pattern for transactional ids (KIP-1152) is RE2's, which takes time linear in the text, and is
compiled and applied by a thread: neither a clever pattern nor many ids hold the loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from moldau.broker.api.registry import Answer
from moldau.broker.api.rights import on_transactional_ids
from moldau.broker.api.transactions.parts import TransactionParts, handles
from moldau.broker.coordination.transactions.transaction import State, Transaction
from moldau.broker.net.request import Request
from moldau.broker.security.authorizer import Operation, Resource
from moldau.wire.apis import Api
from moldau.wire.errors import Error

_STATES = {state.title: state for state in State}
# RE2's own limit: a pattern that needs more memory is refused.
_PATTERN_BYTES = 1 << 20


class InvalidPattern(ValueError):
    """A pattern that RE2 does not take."""


@handles(Api.LIST_TRANSACTIONS, (0, 2), on_transactional_ids(Operation.DESCRIBE))
async def list_transactions(parts: TransactionParts, request: Request) -> Answer:
    """Return those that pass all filters, and the names of states that do not exist."""
    body = request.body
    found = parts.transactions.list_transactions()
    if isinstance(found, Error):
        return {"error_code": found, "transaction_states": []}
    states = {_STATES[name] for name in body.state_filters if name in _STATES}
    unknown = [name for name in body.state_filters if name not in _STATES]
    producer_ids = set(body.producer_id_filters)
    longer_ms = getattr(body, "duration_filter", -1)
    begun_before = parts.node.now_ms() - longer_ms
    listed = [
        each
        for each in found
        if (not body.state_filters or each.state in states)
        and (not producer_ids or each.producer.producer_id in producer_ids)
        and (longer_ms < 0 or 0 <= each.started_ms < begun_before)
        and request.may(Operation.DESCRIBE, Resource.TRANSACTIONAL_ID, each.id, quietly=True)
    ]
    pattern = getattr(body, "transactional_id_pattern", None)
    if pattern:
        try:
            listed = await asyncio.to_thread(_matching, pattern, listed)
        except InvalidPattern:
            return {"error_code": Error.INVALID_REGULAR_EXPRESSION, "transaction_states": []}
    return {
        "error_code": Error.NONE,
        "unknown_state_filters": unknown,
        "transaction_states": [
            {
                "transactional_id": each.id,
                "producer_id": each.producer.producer_id,
                "transaction_state": each.state.title,
            }
            for each in listed
        ],
    }


def _matching(pattern: str, transactions: Sequence[Transaction]) -> list[Transaction]:
    """Return those whose whole id the pattern matches. Any thread."""
    import re2

    options = re2.Options()
    options.max_mem = _PATTERN_BYTES
    options.log_errors = False
    try:
        compiled = re2.compile(pattern, options)
    except re2.error as problem:
        raise InvalidPattern(str(problem)) from None
    return [each for each in transactions if compiled.fullmatch(each.id)]
