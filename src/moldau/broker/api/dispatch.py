"""Requests on their way to the handlers of their API, but for Produce and Fetch."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable
from typing import TYPE_CHECKING

from moldau.broker.api.registry import HANDLERS, Answer, Request
from moldau.broker.net.responses import Response
from moldau.wire.apis import VERSIONS, Api
from moldau.wire.headers import RequestHeader, response_frame
from moldau.wire.messages import decode_request, encode_response, is_loaded, load
from moldau.wire.primitives import MalformedRequest

if TYPE_CHECKING:
    from moldau.broker.net.connection import Connection
    from moldau.broker.server import Broker

# An answer about more things than this is encoded on a thread.
_LONG = 100


def handle(
    broker: Broker, connection: Connection, header: RequestHeader, frame: memoryview
) -> None:
    """Has the request answered, now or later; MalformedRequest where nobody handles its API."""
    api, version = header.api, header.version
    handler = HANDLERS.get(api)
    if handler is None and api not in (Api.PRODUCE, Api.FETCH):
        raise MalformedRequest(f"no API has the key {api}")
    versions = VERSIONS[Api(api)]
    if handler is None or not versions.first <= version <= versions.last:
        raise MalformedRequest(f"{Api(api).name} has no version {version} here")
    if not is_loaded(api, version):
        connection.put_aside(lambda frame: asyncio.to_thread(load, api, version))
        return
    raw = bytes(frame[header.body :])
    body = decode_request(api, version, memoryview(raw))
    client_id = header.client_id(frame)
    host, port = connection.local
    peer_host = connection.peer_host
    answer = handler(broker, Request(api, version, client_id, body, raw, host, port, peer_host))
    if inspect.isawaitable(answer) or _is_long(answer):
        response = Response(connection)
        connection.reserve(response, len(raw))
        broker.spawn(_answer_later(connection, header, response, answer))
    else:
        connection.answer(header, answer)


async def _answer_later(
    connection: Connection,
    header: RequestHeader,
    response: Response,
    answer: Answer | Awaitable[Answer],
) -> None:
    try:
        known = await answer if inspect.isawaitable(answer) else answer
        if _is_long(known):
            frame = await asyncio.to_thread(encoded, header, known)
        else:
            frame = encoded(header, known)
    except Exception as error:
        connection.fail(error, Api(header.api).name)
        return
    connection.respond(response, [frame])


def _is_long(answer: Answer) -> bool:
    """Whether encoding it takes longer than the loop may be held: a thread lets others in."""
    if not isinstance(answer, dict):
        return False
    return any(isinstance(each, list) and len(each) > _LONG for each in answer.values())


def encoded(header: RequestHeader, answer: Answer) -> bytes:
    """A whole answer as it is sent."""
    if isinstance(answer, dict):
        answer = encode_response(header.api, header.version, answer)
    return response_frame(header.api, header.version, header.correlation_id, answer)
