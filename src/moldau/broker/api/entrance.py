"""The entrance: every request comes in here, whatever its API, and is handed to its handler."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable
from typing import TYPE_CHECKING

from moldau.broker.api import registry
from moldau.broker.api.registry import Answer, Handler
from moldau.broker.net.request import Request
from moldau.broker.net.responses import Response
from moldau.wire.apis import Api
from moldau.wire.headers import CLIENT_ID, read_request_header, response_frame
from moldau.wire.messages import decode_request, encode_response, is_loaded, load
from moldau.wire.primitives import MalformedRequest

if TYPE_CHECKING:
    from moldau.broker.net.connection import Connection
    from moldau.broker.server import Broker

# An answer about more things than this is encoded on a thread.
_LONG = 100


class Entrance:
    """The one way in, for all connections of a broker. Event loop only."""

    __slots__ = ("_apis", "_broker")

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._apis = registry.load()

    def handle(self, connection: Connection, frame: memoryview) -> None:
        """Has the request answered, now or later; MalformedRequest where nobody can."""
        api, version, correlation_id, end, start = read_request_header(frame)
        if frame[CLIENT_ID:end] != connection.client_name:
            connection.rename(frame[CLIENT_ID:end])
        declared = self._apis.get(api)
        if declared is None:
            raise MalformedRequest(f"no API has the key {api}")
        if not declared.first <= version <= declared.last and not declared.any_version:
            raise MalformedRequest(f"{declared.api.name} has no version {version} here")
        request = Request(
            api, version, correlation_id, connection.client_id, connection.context,
            start, len(frame), connection.received_at,
        )  # fmt: skip
        if connection.staged and not declared.stages:
            # Whoever writes and then reads on the same connection finds what it wrote.
            connection.commit()
        read = declared.reader
        if read is not None:
            answer = read(self._broker, connection, request, frame)
            if answer is not None:
                connection.answer(encoded(request, answer))
        else:
            assert declared.handler is not None
            self._handle_decoded(declared.handler, connection, request, frame)

    def _handle_decoded(
        self, handler: Handler, connection: Connection, request: Request, frame: memoryview
    ) -> None:
        api, version = request.api, request.version
        if not is_loaded(api, version):
            connection.put_aside(lambda frame: asyncio.to_thread(load, api, version))
            return
        request.raw = raw = bytes(frame[request.start :])
        request.body = decode_request(api, version, memoryview(raw))
        answer = handler(self._broker, request)
        if inspect.isawaitable(answer) or _is_long(answer):
            response = Response(connection)
            connection.reserve(response, len(raw))
            self._broker.spawn(_answer_later(request, response, answer))
        else:
            connection.answer(encoded(request, answer))


async def _answer_later(
    request: Request, response: Response, answer: Answer | Awaitable[Answer]
) -> None:
    try:
        known = await answer if inspect.isawaitable(answer) else answer
        if _is_long(known):
            frame = await asyncio.to_thread(encoded, request, known)
        else:
            frame = encoded(request, known)
    except Exception as error:
        response.connection.fail(error, Api(request.api).name)
        return
    response.connection.respond(response, [frame])


def _is_long(answer: Answer) -> bool:
    """Whether encoding it takes longer than the loop may be held: a thread lets others in."""
    if not isinstance(answer, dict):
        return False
    return any(isinstance(each, list) and len(each) > _LONG for each in answer.values())


def encoded(request: Request, answer: Answer) -> bytes:
    """A whole answer as it is sent."""
    if isinstance(answer, dict):
        answer = encode_response(request.api, request.version, answer)
    return response_frame(request.api, request.version, request.correlation_id, answer)
