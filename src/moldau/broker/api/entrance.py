"""The entrance: every request comes in here, whatever its API, and is handed to its handler."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Iterable, Iterator
from functools import partial
from typing import Any

from msgspec.structs import replace

from moldau.broker.api import registry
from moldau.broker.api.cluster.sasl import take_bare_message
from moldau.broker.api.forwarding import Forwarding
from moldau.broker.api.registry import Answer, Declaration, take_up
from moldau.broker.api.rights import lacking
from moldau.broker.metrics import Metrics
from moldau.broker.net.connection import Connection
from moldau.broker.net.request import Request
from moldau.broker.net.responses import Response
from moldau.broker.net.throttling import EXEMPT
from moldau.broker.net.timed import timed
from moldau.broker.node import Node
from moldau.broker.security.authorizer import Authorizer
from moldau.broker.security.principal import ANONYMOUS
from moldau.broker.security.sasl.sasl import Phase
from moldau.wire.apis import Api
from moldau.wire.headers import CLIENT_ID, read_request_header, response_frame
from moldau.wire.messages import decode_request, encode_response, is_loaded, load
from moldau.wire.primitives import MalformedRequest
from moldau.wire.throttle import throttle_in, with_throttle

# An answer about more things than this is encoded on a thread.
_LONG = 100
# All that a client may ask before it has authenticated, and how often.
_BEFORE_LOGIN = frozenset((Api.API_VERSIONS, Api.SASL_HANDSHAKE, Api.SASL_AUTHENTICATE))
_MOST_BEFORE_LOGIN = 32
_WAIT_FOR_OTHERS = (Api.JOIN_GROUP, Api.SYNC_GROUP)
# Answers without a throttle time: their schemas have none.
_WITHOUT_THROTTLE = (
    Api.DELETE_SHARE_GROUP_STATE,
    Api.DESCRIBE_QUORUM,
    Api.ENVELOPE,
    Api.INITIALIZE_SHARE_GROUP_STATE,
    Api.READ_SHARE_GROUP_STATE,
    Api.READ_SHARE_GROUP_STATE_SUMMARY,
    Api.SASL_AUTHENTICATE,
    Api.SASL_HANDSHAKE,
    Api.WRITE_SHARE_GROUP_STATE,
    Api.WRITE_TXN_MARKERS,
)


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
        elif throttle_ms and request.api not in _WITHOUT_THROTTLE:
            answer = with_throttle(request.api, request.version, answer, throttle_ms)
        return [response_frame(request.api, request.version, request.correlation_id, answer)]

    @property
    def throttle_ms(self) -> int:
        """How long the handler, or the controller that was asked, has the client wait."""
        if isinstance(self.answer, dict):
            return int(self.answer.get("throttle_time", 0))
        if self.request.is_relayed:
            return throttle_in(self.request.api, self.request.version, self.answer)
        return 0

    def errors(self) -> Iterator[int]:
        return _errors(self.answer)

    def waited_for(self) -> str | None:
        # Members wait for each other.
        return None if self.request.api in _WAIT_FOR_OTHERS else super().waited_for()

    def tally(self, metrics: Metrics) -> None:
        # To look through an answer about thousands of things would hold the loop.
        if not self.is_long:
            super().tally(metrics)


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

    __slots__ = ("_apis", "_forwarding", "_node", "_parts", "authorizer")

    def __init__(
        self,
        node: Node,
        forwarding: Forwarding,
        parts: Iterable[object],
    ) -> None:
        self._node = node
        self._forwarding = forwarding
        # Without one everybody may do everything.
        self.authorizer: Authorizer | None = None
        self._apis = registry.declared()
        self._parts: dict[type | None, Any] = {type(each): each for each in parts}

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
        else:
            request.authorizer = self.authorizer
            answer = read(self._parts[declared.parts], connection, request, frame)
            if answer is not None:
                response = DecodedResponse(connection, request, answer)
                connection.answer(response, connection.exit.leave(response)[0])

    def admit(self, connection: Connection, frame: memoryview) -> None:
        """Handle a request of a client that has not authenticated yet, or has to do so again."""
        login = connection.login
        assert login is not None
        authentication = login.authentication
        if authentication.phase is Phase.DONE:
            self.handle(connection, frame)
            return
        authentication.requests += 1
        if authentication.requests > _MOST_BEFORE_LOGIN:
            raise MalformedRequest("too many requests before authentication")
        if authentication.is_bare and authentication.phase is Phase.EXCHANGE:
            take_bare_message(connection, login, frame)
            return
        api = read_request_header(frame)[0]
        if api not in _BEFORE_LOGIN:
            when = "after its session ended" if authentication.was_done else "before authentication"
            raise MalformedRequest(f"a request of API {api} {when}")
        self.handle(connection, frame)

    def _handle_decoded(self, connection: Connection, request: Request, frame: memoryview) -> None:
        api, version = request.api, request.version
        if self._apis[api].parts is None or not is_loaded(api, version):
            connection.put_aside(lambda frame: asyncio.to_thread(_prepare, api, version))
            return
        request.raw = raw = bytes(frame[request.start :])
        request.body = decode_request(api, version, memoryview(raw))
        answer = self.call(request)
        # Most are dicts, and to find that they cannot be waited for takes long.
        if answer.__class__ is not dict and inspect.isawaitable(answer):
            response = DecodedResponse(connection, request, b"")
            connection.reserve(response, len(raw))
            if (spent := connection.exit.spent) is not None and api not in EXEMPT:
                answer = timed(answer, partial(spent, request.context, request.client_id))
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
        declared = self._apis[request.api]
        handler, refusal = declared.handler, declared.refusal
        assert handler is not None
        request.authorizer = self.authorizer
        if refusal is not None and not self._forwarding.is_at_controller:
            # The controller asks for the rights: its rules are the newest.
            return self._forwarding.relay(request, partial(self._handle, declared), refusal)
        return self._handle(declared, request)

    def _handle(self, declared: Declaration, request: Request) -> Answer | Awaitable[Answer]:
        authorizer, handler = self.authorizer, declared.handler
        assert handler is not None
        if authorizer is not None:
            if self._forwarding.earlier_forwarder(request) is not None:
                # It cannot say who asked.
                request.context = replace(request.context)
                request.context.become(ANONYMOUS)
            lack = lacking(request, declared.rights)
            if lack is not None:
                assert declared.refused is not None, declared.api.name
                return declared.refused(request, lack)
        return handler(self._parts[declared.parts], request)


def _prepare(api: int, version: int) -> None:
    take_up(api)
    load(api, version)


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
