"""The entrance: every request comes in here, whatever its API, and is handed to its handler."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Iterator
from typing import TYPE_CHECKING, Any

from moldau.broker.api import registry, rights
from moldau.broker.api.registry import Answer, Declaration
from moldau.broker.net.request import Request
from moldau.broker.net.responses import Response
from moldau.broker.security.authorizer import Authorizer
from moldau.wire.apis import Api
from moldau.wire.headers import CLIENT_ID, read_request_header, response_frame
from moldau.wire.messages import decode_request, encode_response, is_loaded, load
from moldau.wire.primitives import MalformedRequest

if TYPE_CHECKING:
    from moldau.broker.net.connection import Connection
    from moldau.broker.server import Broker

# An answer about more things than this is encoded on a thread.
_LONG = 100


class DecodedResponse(Response):
    """The answer of a handler, by kio's schemas."""

    __slots__ = ("answer",)

    def __init__(self, connection: Connection, request: Request, answer: Answer) -> None:
        self.connection = connection
        self.request = request
        self.parts = None
        self.answer = answer

    @property
    def is_long(self) -> bool:
        """Whether encoding it takes longer than the loop may be held: a thread lets others in."""
        if isinstance(self.answer, dict):
            for each in self.answer.values():
                if isinstance(each, list) and len(each) > _LONG:
                    return True
        return False

    def encode(self, throttle_ms: int) -> list[Any]:
        request, answer = self.request, self.answer
        if isinstance(answer, dict):
            if throttle_ms:
                answer["throttle_time"] = throttle_ms
            answer = encode_response(request.api, request.version, answer)
        return [response_frame(request.api, request.version, request.correlation_id, answer)]

    def errors(self) -> Iterator[int]:
        return _errors(self.answer)


def _errors(answer: Any) -> Iterator[int]:
    if isinstance(answer, dict):
        if answer.get("error_code"):
            yield int(answer["error_code"])
        for each in answer.values():
            yield from _errors(each)
    elif isinstance(answer, (list, tuple)):
        for each in answer:
            yield from _errors(each)


class Entrance:
    """The one way in, for all connections of a broker. Event loop only."""

    __slots__ = ("_apis", "_broker", "authorizer")

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        # Without one everybody may do everything.
        self.authorizer: Authorizer | None = None
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
        if read is None:
            self._handle_decoded(declared, connection, request, frame)
            return
        if self.authorizer is not None and declared.decode is not None:
            request.body = declared.decode(version, frame, start)
            rights.check(self.authorizer, request, declared.rights, self._broker.topic_name)
            # It refers to the frame.
            request.body = None
        answer = read(self._broker, connection, request, frame)
        if answer is not None:
            response = DecodedResponse(connection, request, answer)
            connection.answer(response, connection.exit.leave(response)[0])

    def _handle_decoded(
        self, declared: Declaration, connection: Connection, request: Request, frame: memoryview
    ) -> None:
        api, version = request.api, request.version
        if not is_loaded(api, version):
            connection.put_aside(lambda frame: asyncio.to_thread(load, api, version))
            return
        request.raw = raw = bytes(frame[request.start :])
        request.body = decode_request(api, version, memoryview(raw))
        if self.authorizer is not None:
            rights.check(self.authorizer, request, declared.rights, self._broker.topic_name)
        assert declared.handler is not None
        answer = declared.handler(self._broker, request)
        if inspect.isawaitable(answer):
            response = DecodedResponse(connection, request, b"")
            connection.reserve(response, len(raw))
            self._broker.spawn(_answer_when_known(response, answer))
            return
        response = DecodedResponse(connection, request, answer)
        if answer.__class__ is dict and response.is_long:
            connection.reserve(response, len(raw))
            self._broker.spawn(_answer_later(response))
        else:
            connection.answer(response, connection.exit.leave(response)[0])


async def _answer_when_known(response: DecodedResponse, answer: Awaitable[Answer]) -> None:
    try:
        response.answer = await answer
    except Exception as error:
        response.connection.fail(error, Api(response.request.api).name)
        return
    await _answer_later(response)


async def _answer_later(response: DecodedResponse) -> None:
    connection = response.connection
    try:
        if response.is_long:
            parts = await connection.exit.leave_slowly(response)
        else:
            parts = connection.exit.leave(response)
    except Exception as error:
        connection.fail(error, Api(response.request.api).name)
        return
    connection.respond(response, parts)
