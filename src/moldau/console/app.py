"""The application: endpoints as routes, and the page beside them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from functools import partial
from typing import Any

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp

from moldau.console.access.guard import Guard
from moldau.console.access.sessions import COOKIE
from moldau.console.api.modules import MODULES
from moldau.console.call import Call
from moldau.console.console import Console
from moldau.console.endpoint import ENDPOINTS, Endpoint, Event, Stream
from moldau.console.errors import ApiError, json_response, of_problem
from moldau.console.page import Page
from moldau.console.visitor import Visitor

logger = logging.getLogger("moldau.console")

# A reader that takes nothing for so long is gone.
_SEND_WITHIN_S = 30.0
_PING_EVERY_S = 15.0
_MOST_BODY = 4 << 20
# Of those who have not signed in, as much as brokers take of a login.
_MOST_BODY_OF_STRANGERS = 64 << 10


def application(console: Console, page: Page | None = None) -> ASGIApp:
    """Return what answers for a console, at whatever path it is mounted."""
    assert MODULES
    routes = [
        Route(f"/{each.path}", partial(_answer, console, each), methods=[each.method])
        for each in sorted(ENDPOINTS, key=_specific_first)
    ]
    shown = page or Page()
    routes += [
        Route("/api/{rest:path}", _no_such_call, methods=["GET", "POST", "PUT", "PATCH", "DELETE"]),
        Route("/{path:path}", shown),
    ]
    app = Starlette(
        routes=routes,
        exception_handlers={HTTPException: _refused, ApiError: _api_error, Exception: _failed},
    )
    settings = console.settings
    signs_in = settings.sign_in is not None or settings.oidc is not None
    return Guard(app, settings.hosts, checks_host=not signs_in)


def _specific_first(each: Endpoint) -> tuple[int, str]:
    """Names may have slashes, so that longer paths have to be tried before shorter ones."""
    return -each.path.count("/"), each.path


async def _answer(console: Console, endpoint: Endpoint, request: Request) -> Response:
    try:
        visitor = visitor_of(console, request)
        if visitor is None:
            if not endpoint.is_open:
                raise ApiError(401, "not_signed_in", "sign in first")
            visitor = Visitor(None, None, _address(request))
        if endpoint.changes and console.settings.read_only and endpoint.tag != "session":
            raise ApiError(403, "read_only", "this console is read-only", "see --read-only")
        asked = await _asked(endpoint, request)
        call = Call(console, visitor, request.path_params, request)
        arguments = [] if endpoint.asked is None else [asked]
        if endpoint.is_stream:
            return await _stream(endpoint, call, arguments, request)
        loop = asyncio.get_running_loop()
        found = await loop.run_in_executor(console.threads, _run, endpoint, call, arguments)
    except Exception as problem:
        known = of_problem(problem)
        if known is None:
            raise
        return known.response()
    answer = found if isinstance(found, Response) else json_response(found, endpoint.status)
    for cookie in call.cookies:
        answer.headers.append("set-cookie", cookie)
    if endpoint.changes:
        console.watch.soon()
    return answer


def _run(endpoint: Endpoint, call: Call, arguments: list[Any]) -> Any:
    with call:
        return endpoint.answer(call, *arguments)


async def _asked(endpoint: Endpoint, request: Request) -> Any:
    """Return what is asked for, checked against the endpoint's struct."""
    if endpoint.asked is None:
        return None
    try:
        if endpoint.asks_in_query:
            given = dict(request.query_params.multi_items())
            return msgspec.convert(given, endpoint.asked, strict=False)
        most = _MOST_BODY_OF_STRANGERS if endpoint.is_open else _MOST_BODY
        body = bytearray()
        async for chunk in request.stream():
            body += chunk
            if len(body) > most:
                raise ApiError(413, "too_large", f"the body is larger than {most} bytes")
        return msgspec.json.decode(body or b"{}", type=endpoint.asked)
    except msgspec.ValidationError as problem:
        raise ApiError(422, "invalid", str(problem)) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as problem:
        raise ApiError(400, "not_json", f"the body is not JSON: {problem}") from None
    except ClientDisconnect:
        raise ApiError(400, "gone", "the body did not arrive") from None


def visitor_of(console: Console, request: Request) -> Visitor | None:
    """Return who asks; None if nobody has signed in who would have to."""
    settings = console.settings
    if settings.sign_in is None and settings.oidc is None:
        # Where the HTTP side asks for a login itself, its name is known.
        principal = request.scope.get("principal")
        name = getattr(principal, "name", None)
        user = None if name in (None, "ANONYMOUS") else str(name)
        return Visitor(user, settings.security, _address(request))
    found = console.sessions.find(request.cookies.get(COOKIE))
    return None if found is None else replace(found, address=_address(request))


def _address(request: Request) -> str:
    return request.client.host if request.client is not None else ""


async def _stream(
    endpoint: Endpoint, call: Call, arguments: list[Any], request: Request
) -> Response:
    """Answer with events, until whoever asked has gone."""
    call.__enter__()
    try:
        events: Stream = endpoint.answer(call, *arguments)
        first = await anext(events, None)
    except BaseException:
        call.__exit__(None, None, None)
        raise
    take_your_time(request)

    async def lines() -> AsyncIterator[bytes]:
        try:
            if first is not None:
                yield _line(first)
                async for event in with_pings(events):
                    yield _line(event)
        finally:
            await events.aclose()
            call.__exit__(None, None, None)

    return _Events(lines(), headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"})


async def with_pings(events: Stream) -> AsyncIterator[Event]:
    """Say something now and then, so that both sides know the other is there."""
    coming: asyncio.Future[Event] | None = None
    try:
        while True:
            coming = coming or asyncio.ensure_future(anext(events))
            done, _ = await asyncio.wait([coming], timeout=_PING_EVERY_S)
            if not done:
                yield Event("ping", {})
                continue
            finished, coming = coming, None
            try:
                event = finished.result()
            except StopAsyncIteration:
                return
            yield event
    finally:
        if coming is not None:
            coming.cancel()
            await asyncio.gather(coming, return_exceptions=True)


class _Events(StreamingResponse):
    """A stream of events that ends if nobody takes them."""

    media_type = "text/event-stream"

    async def stream_response(self, send: Callable[[Any], Awaitable[None]]) -> None:
        async def send_soon(message: Any) -> None:
            async with asyncio.timeout(_SEND_WITHIN_S):
                await send(message)

        await super().stream_response(send_soon)


def _line(event: Event) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (event.event.encode(), msgspec.json.encode(event.data))


def take_your_time(request: Request) -> None:
    """Lift the limits on how long this request may take."""
    lift = request.scope.get("lift_limits")
    if lift is not None:
        lift()


async def _no_such_call(request: Request) -> Response:
    path = request.path_params["rest"]
    return ApiError(
        404, "no_such_call", f"there is no {request.method} api/{path}", "see api/openapi.json"
    ).response()


async def _refused(request: Request, problem: Exception) -> Response:
    assert isinstance(problem, HTTPException)
    code = "method_not_allowed" if problem.status_code == 405 else "refused"
    return ApiError(problem.status_code, code, str(problem.detail)).response()


async def _api_error(request: Request, problem: Exception) -> Response:
    assert isinstance(problem, ApiError)
    return problem.response()


async def _failed(request: Request, problem: Exception) -> Response:
    logger.error("%s %s failed", request.method, request.url.path, exc_info=problem)
    return ApiError(
        500, "bug", f"{type(problem).__name__}; see the log", "please report it"
    ).response()
