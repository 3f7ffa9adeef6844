"""Limits of one HTTP request: how large its body may be, and how long it may take."""

from __future__ import annotations

import asyncio

from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from moldau.http.answers import error

# The answer leaves before all of the request has come, so the connection cannot go on.
_CLOSE = {"connection": "close"}


class Limits:
    """ASGI middleware. A body that is too large gets 413, a request that takes too long 408."""

    def __init__(self, app: ASGIApp, max_bytes: int, timeout_s: float) -> None:
        self._app = app
        self._max_bytes = max_bytes
        self._timeout_s = timeout_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        has_begun = False
        received = 0

        async def receive_some() -> Message:
            nonlocal received
            message = await receive()
            received += len(message.get("body", b""))
            if received > self._max_bytes:
                raise HTTPException(413, self._too_large, _CLOSE)
            return message

        async def send_some(message: Message) -> None:
            nonlocal has_begun
            has_begun = True
            await send(message)

        # The number is one: whoever parsed the request has seen to that.
        announced = int(dict(scope["headers"]).get(b"content-length", b"0"))
        if announced > self._max_bytes:
            await error(413, self._too_large, _CLOSE)(scope, receive, send)
            return
        try:
            async with asyncio.timeout(self._timeout_s) as limit:

                def lift() -> None:
                    limit.reschedule(None)
                    scope.get("state", {}).get("lift_deadline", lambda: None)()

                # For an answer that goes on for as long as somebody looks.
                scope["lift_limits"] = lift
                await self._app(scope, receive_some, send_some)
        except TimeoutError:
            if has_begun:
                raise
            message = f"the request took longer than {self._timeout_s:g} s"
            await error(408, message, _CLOSE)(scope, receive, send)

    @property
    def _too_large(self) -> str:
        return f"the body is larger than {self._max_bytes} bytes"
