"""The entrance: every request comes in here, whatever its API, and is handed to its handler."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Iterable, Iterator
from functools import partial
from typing import Any

from moldau.broker.api import registry, rights
from moldau.broker.api.forwarding import Forwarding
from moldau.broker.api.registry import Answer
from moldau.broker.net.connection import Connection
from moldau.broker.net.request import Request
from moldau.broker.net.responses import Response
from moldau.broker.node import Node
from moldau.broker.security.authorizer import Authorizer
from moldau.wire.apis import Api
from moldau.wire.headers import CLIENT_ID, read_request_header, response_frame
from moldau.wire.messages import decode_request, encode_response, is_loaded, load
from moldau.wire.primitives import MalformedRequest, TopicKey

# An answer about more things than this is encoded on a thread.
_LONG = 100
# Answers without a throttle time: their schemas have none.
_WITHOUT_THROTTLE = (Api.DESCRIBE_QUORUM, Api.ENVELOPE)


class DecodedResponse(Response):
    """The answer of a handler, by kio's schemas."""

    __slots__ = ("answer", "connection")

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
            if throttle_ms and request.api not in _WITHOUT_THROTTLE:
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

    __slots__ = ("_apis", "_forwarding", "_node", "_parts", "_topic_name", "authorizer")

    def __init__(
        self,
        node: Node,
        forwarding: Forwarding,
        topic_name: Callable[[TopicKey], str],
        parts: Iterable[object],
    ) -> None:
        self._node = node
        self._forwarding = forwarding
        self._topic_name = topic_name
        # Without one everybody may do everything.
        self.authorizer: Authorizer | None = None
        self._apis = registry.load()
        by_type = {type(each): each for each in parts}
        self._parts = {api: by_type[each.parts] for api, each in self._apis.items()}

    def handle(self, connection: Connection, frame: memoryview) -> None:
        """Answer the request, now or later; raise MalformedRequest if that is impossible."""
        api, version, correlation_id, end, start = read_request_header(frame)
        if frame[CLIENT_ID:end] != connection.client_name:
            connection.rename(frame[CLIENT_ID:end])
        declared = self._apis.get(api)
        if declared is None:
            raise MalformedRequest(f"no API has the key {api}")
        if not declared.first <= version <= declared.last and not declared.any_version:
            raise MalformedRequest(
                f"this broker does not support version {version} of {declared.api.name}"
            )
        request = Request(
            api, version, correlation_id, connection.client_id, connection.context,
            start, len(frame), connection.received_at,
        )  # fmt: skip
        if connection.staged and not declared.stages:
            # A client that writes and then reads on the same connection finds what it wrote.
            connection.commit()
        read = declared.reader
        if read is None:
            self._handle_decoded(connection, request, frame)
            return
        if self.authorizer is not None and declared.decode is not None:
            request.body = declared.decode(version, frame, start)
            rights.check(self.authorizer, request, declared.rights, self._topic_name)
            # It refers to the frame.
            request.body = None
        answer = read(self._parts[api], connection, request, frame)
        if answer is not None:
            response = DecodedResponse(connection, request, answer)
            connection.answer(response, connection.exit.leave(response)[0])

    def _handle_decoded(self, connection: Connection, request: Request, frame: memoryview) -> None:
        api, version = request.api, request.version
        if not is_loaded(api, version):
            connection.put_aside(lambda frame: asyncio.to_thread(load, api, version))
            return
        request.raw = raw = bytes(frame[request.start :])
        request.body = decode_request(api, version, memoryview(raw))
        answer = self.call(request)
        if inspect.isawaitable(answer):
            response = DecodedResponse(connection, request, b"")
            connection.reserve(response, len(raw))
            self._node.spawn(_answer_when_known(response, answer))
            return
        response = DecodedResponse(connection, request, answer)
        if answer.__class__ is dict and response.is_long:
            connection.reserve(response, len(raw))
            self._node.spawn(_answer_later(response))
        else:
            connection.answer(response, connection.exit.leave(response)[0])

    def call(self, request: Request) -> Answer | Awaitable[Answer]:
        """Return the answer of who handles a request that has been read, here or at the
        controller."""
        declared, parts = self._apis[request.api], self._parts[request.api]
        if self.authorizer is not None:
            rights.check(self.authorizer, request, declared.rights, self._topic_name)
        handler, refusal = declared.handler, declared.refusal
        assert handler is not None
        if refusal is None or self._forwarding.is_at_controller:
            return handler(parts, request)
        return self._forwarding.relay(request, partial(handler, parts), refusal)


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
