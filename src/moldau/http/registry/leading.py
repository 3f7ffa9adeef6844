"""The way to the broker that leads: for writes, and for reads of what is not known here."""

from __future__ import annotations

import asyncio
import logging
import ssl
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import quote, unquote

from starlette.requests import Request

from moldau.broker.security.authorizer import Operation
from moldau.broker.security.principal import Principal
from moldau.broker.settings.http import HTTP
from moldau.broker.settings.security import of_listener
from moldau.http.host import Host
from moldau.http.registry.errors import forwarding_failed
from moldau.security.key_material import TlsError
from moldau.security.tls import client_context
from moldau.wire.apis import ORIGIN

if TYPE_CHECKING:
    from moldau.broker.server import Broker

logger = logging.getLogger("moldau.registry")

# A request that another broker has passed on is not passed on again.
FORWARDED = "x-forward"
# Up to where the leader had read `_schemas` when it answered.
APPLIED = "x-moldau-applied"
# Who sent it: where a certificate says so, the connection to the leader is that of a broker.
SENDER = "x-moldau-principal"
_PASSED_ON = ("authorization", "content-type", "accept")
_CONNECT_WITHIN_S = 3.0
_ANSWER_WITHIN_S = 15.0
_MOST_BYTES = 64 << 20


class Passed(NamedTuple):
    """The leader's answer."""

    status: int
    content_type: str
    applied: int
    body: bytes


class NotReached(Exception):
    """Nobody has read the request: it may be sent again."""


class Address(NamedTuple):
    """Where a broker serves HTTP; with a TLS context, HTTPS."""

    host: str
    port: int
    tls: ssl.SSLContext | None = None


def leader_address(broker: Broker, leader: int) -> Address:
    """Return where the leader serves HTTP."""
    info = broker.state.brokers.get(leader)
    if info is None:
        raise NotReached(f"broker {leader} is not registered")
    if not info.http:
        raise forwarding_failed(
            f"broker {leader} leads _schemas but serves no HTTP; set http.listen on it"
        )
    scheme, _, rest = info.http.rpartition("://")
    host, _, port = rest.rpartition(":")
    return Address(host.strip("[]"), int(port), _tls(broker) if scheme == "https" else None)


def judge_by_sender(host: Host, request: Request) -> None:
    """Judge a request that another broker has passed on by who sent it there.

    Only those who may act as brokers are believed."""
    sender = request.headers.get(SENDER)
    if sender is None or FORWARDED not in request.headers:
        return
    if host.may(request, Operation.CLUSTER_ACTION, quietly=True, as_peer=True):
        kind, _, name = unquote(sender).partition(":")
        request.scope["principal"] = Principal(kind, name)


def _tls(broker: Broker) -> ssl.SSLContext:
    """Return how this broker trusts the others: by the truststore of its own HTTP side."""
    try:
        return client_context(of_listener(broker.settings.given, HTTP))
    except TlsError as problem:
        raise forwarding_failed(str(problem)) from None


async def pass_on(address: Address, request: Request, body: bytes, origin: str) -> Passed:
    """Send a request to the leader as it came, with our token for the address that it came from,
    and return the answer.

    NotReached if nobody was there; RegistryError where it is not known what became of it, and for a
    login that came encrypted and would leave in clear.
    """
    has_login = "authorization" in request.headers
    if has_login and address.tls is None and request.url.scheme == "https":
        raise forwarding_failed(
            f"{address.host}:{address.port} does not use TLS, so it cannot get a login that "
            "arrived over TLS"
        )
    try:
        async with asyncio.timeout(_CONNECT_WITHIN_S):
            reader, writer = await asyncio.open_connection(
                address.host, address.port, limit=1 << 20, ssl=address.tls
            )
    except (OSError, TimeoutError) as problem:
        raise NotReached(f"{address.host}:{address.port}: {problem}") from None
    try:
        async with asyncio.timeout(_ANSWER_WITHIN_S):
            writer.write(_head(request, address, len(body), origin) + body)
            await writer.drain()
            return await _answer(reader)
    except (OSError, TimeoutError, ValueError, asyncio.IncompleteReadError) as problem:
        reason = str(problem) or type(problem).__name__
        raise forwarding_failed(reason) from None
    finally:
        writer.close()


def _head(request: Request, address: Address, length: int, origin: str) -> bytes:
    target: bytes = request.scope["raw_path"]
    query: bytes = request.scope["query_string"]
    if query:
        target += b"?" + query
    lines = [
        request.method.encode() + b" " + target + b" HTTP/1.1",
        f"host: {address.host}:{address.port}".encode(),
        f"content-length: {length}".encode(),
        FORWARDED.encode() + b": true",
        f"x-{ORIGIN}: {origin}".encode(),
        b"connection: close",
        # Beside a login, too: where certificates count, nobody has looked at that.
        f"{SENDER}: {quote(str(request.scope['principal']))}".encode(),
    ]
    for name, value in request.headers.raw:
        if name.decode("latin-1").lower() in _PASSED_ON:
            lines.append(name + b": " + value)
    return b"\r\n".join(lines) + b"\r\n\r\n"


async def _answer(reader: asyncio.StreamReader) -> Passed:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    status = int(head[0].split(" ")[1])
    headers = {
        name.strip().lower(): value.strip()
        for name, _, value in (line.partition(":") for line in head[1:])
    }
    length = int(headers.get("content-length", "0"))
    if length > _MOST_BYTES:
        raise ValueError(f"a response of {length} bytes")
    body = await reader.readexactly(length)
    applied = int(headers.get(APPLIED, "0"))
    return Passed(status, headers.get("content-type", ""), applied, body)
