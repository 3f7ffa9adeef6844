"""Requests on their way to the handlers of their API, but for Produce and Fetch."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING

from moldau.broker.handlers import HANDLERS, Answer, Request
from moldau.wire.apis import VERSIONS, Api
from moldau.wire.headers import RequestHeader
from moldau.wire.messages import decode_request, encode_response
from moldau.wire.primitives import MalformedRequest

if TYPE_CHECKING:
    from moldau.broker.server import Broker


def dispatch(
    broker: Broker,
    header: RequestHeader,
    client_id: str,
    raw: bytes,
    local: tuple[str, int],
    peer_host: str,
) -> Answer | Awaitable[Answer]:
    """The answer of whoever handles the API; MalformedRequest where nobody does."""
    api, version = header.api, header.version
    handler = HANDLERS.get(api)
    if handler is None and api not in (Api.PRODUCE, Api.FETCH):
        raise MalformedRequest(f"no API has the key {api}")
    versions = VERSIONS[Api(api)]
    if handler is None or not versions.first <= version <= versions.last:
        raise MalformedRequest(f"{Api(api).name} has no version {version} here")
    body = decode_request(api, version, memoryview(raw))
    return handler(broker, Request(api, version, client_id, body, raw, *local, peer_host))


def encoded(header: RequestHeader, answer: Answer) -> bytes:
    """The body of an answer."""
    if isinstance(answer, dict):
        return encode_response(header.api, header.version, answer)
    return answer
