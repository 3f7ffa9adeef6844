"""The guard: headers that keep a browser from mixing this page with others, and what they sent.

A change needs the header `X-Moldau-Console`, which no other site's page can send without being
asked first. Without sign-in, the name by which the console is addressed must be a number or a name
that it knows: another name may be one that an attacker's server has pointed here.
"""

from __future__ import annotations

import ipaddress

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from moldau.console.errors import ApiError

CSRF_HEADER = b"x-moldau-console"
_READING = ("GET", "HEAD", "OPTIONS")
_HEADERS = {
    "content-security-policy": "default-src 'self'; img-src 'self' data:; style-src 'self' "
    "'unsafe-inline'; connect-src 'self'; frame-ancestors 'none'; base-uri 'none'; "
    "form-action 'self'; object-src 'none'",
    "x-frame-options": "DENY",
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), microphone=(), geolocation=()",
}
_RAW_HEADERS = [(name.encode(), text.encode()) for name, text in _HEADERS.items()]


class Guard:
    """ASGI middleware around everything that a console answers."""

    def __init__(self, app: ASGIApp, hosts: frozenset[str], checks_host: bool) -> None:
        self._app = app
        self._hosts = hosts
        self._checks_host = checks_host

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message["headers"], *_RAW_HEADERS]}
            await send(message)

        problem = self._problem(scope)
        if problem is not None:
            await problem.response()(scope, receive, send_guarded)
            return
        await self._app(scope, receive, send_guarded)

    def _problem(self, scope: Scope) -> ApiError | None:
        headers = dict(scope["headers"])
        if self._checks_host:
            host = host_of(headers.get(b"host", b"").decode("latin-1"))
            if not is_known(host, self._hosts):
                return ApiError(
                    403,
                    "unknown_host",
                    f"this console does not accept the host name {host!r}",
                    "use its numeric address, or start it with --host NAME",
                )
        if scope["method"] not in _READING and CSRF_HEADER not in headers:
            return ApiError(403, "no_csrf_header", "a change needs the header X-Moldau-Console: 1")
        return None


def host_of(header: str) -> str:
    """Return the name or number in a Host header, without the port."""
    if header.startswith("["):
        return header[1:].partition("]")[0]
    return header.partition(":")[0]


def is_known(host: str, names: frozenset[str]) -> bool:
    """Return whether a host is a number, localhost, or one of these names."""
    if host.lower() in names or host.lower() == "localhost":
        return True
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
