"""Envelope: a client's request that another broker passes on, with who asked and from where.

What stands in an envelope is believed, so one is taken only on the listener of the brokers, and
only by the controller. Anybody else who sends one loses the connection, as in Kafka. Errors of the
envelope itself are in its own answer; what the request inside met is in the answer inside.
"""

from __future__ import annotations

import asyncio
import inspect
import ipaddress
import logging
from collections.abc import Awaitable, Callable

import msgspec

from moldau.broker.api.registry import DECLARED, Answer, Room, is_imported, take_up
from moldau.broker.api.rights import Right, refusal
from moldau.broker.net.context import Context
from moldau.broker.net.request import Request
from moldau.broker.node import Node
from moldau.broker.security.authorizer import Operation, Resource
from moldau.broker.security.principal import Principal
from moldau.cluster.controller import Controller
from moldau.cluster.errors import ClusterError
from moldau.wire.apis import Api
from moldau.wire.errors import Error
from moldau.wire.headers import CLIENT_ID, read_request_header, response_frame
from moldau.wire.messages import decode_request, encode_response, is_loaded, load
from moldau.wire.primitives import MalformedRequest
from moldau.wire.principal import decode_principal

logger = logging.getLogger("moldau.broker")


class EnvelopeParts(msgspec.Struct, frozen=True):
    """The parts that the handler of envelopes gets; `call` answers the request inside."""

    node: Node
    controller: Controller
    call: Callable[[Request], Answer | Awaitable[Answer]]


@Room(EnvelopeParts).handles(
    Api.ENVELOPE,
    (0, 0),
    Right(Operation.CLUSTER_ACTION, Resource.CLUSTER),
    inter_broker=True,
)
def envelope(parts: EnvelopeParts, request: Request) -> Awaitable[Answer]:
    """Answer the request inside as if its client had asked here."""
    if not request.context.is_inter_broker or not parts.node.is_clustered:
        raise MalformedRequest("only brokers may send envelopes")
    return _handle(parts, request)


async def _handle(parts: EnvelopeParts, request: Request) -> Answer:
    try:
        if not parts.controller.is_active:
            raise ClusterError(Error.NOT_CONTROLLER, "another broker is the controller")
        if not request.may_on_cluster(Operation.CLUSTER_ACTION):
            raise refusal(Resource.CLUSTER)
        request.context.believe()
        inside = await _opened(request)
        return {"error_code": Error.NONE, "response_data": await _answer(parts, inside)}
    except ClusterError as error:
        logger.debug("an envelope from %s: %s", request.context.client, error.message)
        return {"error_code": error.error, "response_data": None}
    except Exception:
        # Others have their requests on the same connection.
        logger.exception("a request that another broker forwarded failed")
        return {"error_code": Error.UNKNOWN_SERVER_ERROR, "response_data": None}


async def _opened(request: Request) -> Request:
    """Return the request inside, with the context of its client."""
    body, outer = request.body, request.context
    context = Context(
        outer.listener,
        outer.local_host,
        outer.local_port,
        _client_host(bytes(body.client_host_address)),
        0,
        _principal(body.request_principal),
    )
    data = memoryview(bytes(body.request_data))
    try:
        api, version, correlation_id, end, start = read_request_header(data)
    except MalformedRequest as reason:
        raise ClusterError(Error.UNSUPPORTED_VERSION, str(reason)) from None
    if api in DECLARED and not is_imported(api):
        await asyncio.to_thread(take_up, api)
    declared = DECLARED.get(api)
    if declared is None or not declared.forwardable:
        raise ClusterError(Error.INVALID_REQUEST, f"API {api} cannot be forwarded")
    if not declared.first <= version <= declared.last:
        raise ClusterError(
            Error.UNSUPPORTED_VERSION,
            f"this broker does not support version {version} of {declared.api.name}",
        )
    return Request(
        api,
        version,
        correlation_id,
        str(data[CLIENT_ID:end], "utf-8", "replace"),
        context,
        start,
        len(data),
        request.received_at,
        raw=bytes(data[start:]),
        is_forwarded=True,
    )


async def _answer(parts: EnvelopeParts, request: Request) -> bytes:
    """Return the header and the body of the answer to the request inside."""
    api, version = request.api, request.version
    if not is_loaded(api, version):
        await asyncio.to_thread(load, api, version)
    try:
        request.body = decode_request(api, version, memoryview(request.raw))
    except MalformedRequest as reason:
        raise ClusterError(Error.UNSUPPORTED_VERSION, str(reason)) from None
    answer = parts.call(request)
    if inspect.isawaitable(answer):
        answer = await answer
    if isinstance(answer, dict):
        answer = await asyncio.to_thread(encode_response, api, version, answer)
    return response_frame(api, version, request.correlation_id, answer)[4:]


def _principal(data: bytes | None) -> Principal:
    try:
        return Principal(*decode_principal(bytes(data or b"")))
    except MalformedRequest as reason:
        raise ClusterError(Error.PRINCIPAL_DESERIALIZATION_FAILURE, str(reason)) from None


def _client_host(address: bytes) -> str:
    if len(address) not in (4, 16):
        raise ClusterError(Error.INVALID_REQUEST, f"{len(address)} bytes are not an address")
    host = ipaddress.ip_address(address)
    return str(getattr(host, "ipv4_mapped", None) or host)
