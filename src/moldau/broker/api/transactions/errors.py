"""Errors of transactions, in the words that older versions of requests have for them."""

from __future__ import annotations

from moldau.broker.net.request import Request
from moldau.wire.errors import Error


def fenced_as(error: Error, request: Request, first_version: int) -> Error:
    """Return the error; before `first_version` clients know PRODUCER_FENCED by another name."""
    if error is Error.PRODUCER_FENCED and request.version < first_version:
        return Error.INVALID_PRODUCER_EPOCH
    return error
