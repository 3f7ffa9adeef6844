"""SaslHandshake and SaslAuthenticate: a client proves who it is.

Read by hand, like ApiVersions: whoever sends them is not known yet. On a listener without SASL both
are refused, as in Kafka.
"""

from __future__ import annotations

import time
from struct import error

from moldau.broker.api.cluster.parts import ClusterParts, reads
from moldau.broker.net.connection import Connection
from moldau.broker.net.doors.login import Login, LoginRefused
from moldau.broker.net.request import Request
from moldau.broker.net.responses import Response
from moldau.broker.security.principal import Principal
from moldau.broker.security.sasl.mechanism import AuthenticationFailed
from moldau.broker.security.sasl.sasl import IllegalState
from moldau.wire.apis import Api
from moldau.wire.errors import Error
from moldau.wire.headers import response_frame
from moldau.wire.primitives import (
    INT16,
    INT32,
    INT64,
    MalformedRequest,
    count,
    read_string,
    read_uvarint,
    skip_tags,
    string,
    uvarint,
)

# Before it, the messages of SASL follow without a request around them.
_FIRST_WITH_REQUESTS = 1
_FIRST_WITH_LIFETIME = 1
_FIRST_FLEXIBLE = 2


@reads(Api.SASL_HANDSHAKE, (0, 1))
def sasl_handshake(
    parts: ClusterParts, connection: Connection, request: Request, frame: memoryview
) -> bytes | None:
    """Begin with the mechanism that the client names."""
    try:
        mechanism, end = read_string(frame, request.start, False)
    except error:
        mechanism, end = None, -1
    if mechanism is None or end != len(frame):
        raise MalformedRequest("the request names no mechanism")
    login = connection.login
    if login is None:
        return _handshake_body(Error.ILLEGAL_SASL_STATE, ())
    enabled = tuple(login.door.mechanisms)
    is_bare = request.version < _FIRST_WITH_REQUESTS
    try:
        if login.authentication.handshake(mechanism, is_bare=is_bare):
            return _handshake_body(Error.NONE, enabled)
    except IllegalState as problem:
        raise MalformedRequest(str(problem)) from None
    body = _handshake_body(Error.UNSUPPORTED_SASL_MECHANISM, enabled)
    shown = mechanism[:40]
    told = f"mechanism {shown!r} is not enabled, only {', '.join(enabled)}"
    unknown = AuthenticationFailed("", "its mechanism is not enabled", told=told)
    _fail(login, request, Error.UNSUPPORTED_SASL_MECHANISM, body, unknown)
    return None


@reads(Api.SASL_AUTHENTICATE, (0, 2))
def sasl_authenticate(
    parts: ClusterParts, connection: Connection, request: Request, frame: memoryview
) -> bytes | None:
    """Take a message of the mechanism, and answer with its next one."""
    version, login = request.version, connection.login
    message = _message(frame, request.start, version)
    if login is None:
        text = "SaslAuthenticate request received after successful authentication"
        return _authenticate_body(version, Error.ILLEGAL_SASL_STATE, text)
    try:
        challenge, lifetime_ms = _take(login, message)
    except IllegalState as problem:
        raise MalformedRequest(str(problem)) from None
    except AuthenticationFailed as problem:
        code = Error.SASL_AUTHENTICATION_FAILED
        _fail(login, request, code, _authenticate_body(version, code, problem.message), problem)
        return None
    return _authenticate_body(version, Error.NONE, None, challenge, lifetime_ms)


def take_bare_message(connection: Connection, login: Login, frame: memoryview) -> None:
    """Take a message that follows a handshake of version 0, and answer alike.

    There is no way to tell of an error but to end the connection.
    """
    request = Request(Api.SASL_AUTHENTICATE, 0, 0, "", connection.context)
    try:
        challenge, _ = _take(login, bytes(frame))
    except AuthenticationFailed as problem:
        refused = LoginRefused(request, Error.SASL_AUTHENTICATION_FAILED)
        login.fail(refused, [], problem)
        return
    connection.answer(Response(request), INT32.pack(len(challenge)) + challenge)


def _take(login: Login, message: bytes) -> tuple[bytes, int]:
    """Return the mechanism's next message, and how long the session lasts if it was the last."""
    step = login.authentication.authenticate(message)
    if step.problem is not None:
        login.tell(step.problem)
    if step.user is None:
        return step.challenge, 0
    lifetime_ms = login.authentication.lifetime_ms(step, time.time_ns() // 1_000_000)
    login.succeed(Principal("User", step.user), lifetime_ms)
    return step.challenge, lifetime_ms


def _fail(
    login: Login, request: Request, code: Error, body: bytes, problem: AuthenticationFailed
) -> None:
    frame = response_frame(request.api, request.version, request.correlation_id, body)
    login.fail(LoginRefused(request, code), [frame], problem)


def _message(frame: memoryview, position: int, version: int) -> bytes:
    try:
        if version >= _FIRST_FLEXIBLE:
            size, position = read_uvarint(frame, position)
            size -= 1
        else:
            (size,) = INT32.unpack_from(frame, position)
            position += 4
        end = position + size
        after = skip_tags(frame, end) if version >= _FIRST_FLEXIBLE else end
    except (error, IndexError):
        raise MalformedRequest("the request ends before its message") from None
    if size < 0 or after != len(frame):
        raise MalformedRequest(f"a message of {size} bytes does not fit into the request")
    return bytes(frame[position:end])


def _handshake_body(code: Error, mechanisms: tuple[str, ...]) -> bytes:
    names = b"".join(string(each, False) for each in mechanisms)
    return INT16.pack(code) + count(len(mechanisms), False) + names


def _authenticate_body(
    version: int,
    code: Error,
    text: str | None,
    message: bytes = b"",
    lifetime_ms: int = 0,
) -> bytes:
    compact = version >= _FIRST_FLEXIBLE
    size = uvarint(len(message) + 1) if compact else INT32.pack(len(message))
    body = INT16.pack(code) + string(text, compact) + size + message
    if version >= _FIRST_WITH_LIFETIME:
        body += INT64.pack(lifetime_ms)
    return body + (b"\x00" if compact else b"")
