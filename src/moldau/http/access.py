"""Access: who sent an HTTP request. The one place where that is decided."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from moldau.broker.security.principal import ANONYMOUS, Principal
from moldau.http.answers import error
from moldau.wire.apis import ORIGIN

# What a load balancer or a supervisor asks, without being anybody.
OPEN_PATHS = frozenset(("/healthz", "/readyz"))
_ORIGIN = f"x-{ORIGIN}".encode()


class Authenticator(Protocol):
    """Finds out who sent a request, by its Authorization header. Event loop only."""

    # The WWW-Authenticate header of a refusal.
    challenge: str

    async def authenticate(self, authorization: str, address: str) -> Principal | None:
        """Return the sender; None if the header, which may be empty, proves nobody."""


class Access:
    """ASGI middleware that puts the principal into the scope, or refuses the request. Where a
    broker asks for somebody else, it puts their address in place of the broker's, which is the
    `peer` then; `address_in` reads the token that says so.

    Without an authenticator a client is whom its certificate names, or ANONYMOUS, as on a listener
    without SASL. Whatever answers on paths that are `is_open` asks by itself.
    """

    def __init__(
        self,
        app: ASGIApp,
        authenticator: Authenticator | None,
        is_open: Callable[[str], bool] | None = None,
        address_in: Callable[[str], str | None] | None = None,
    ) -> None:
        self._app = app
        self._authenticator = authenticator
        self._is_open = is_open or (lambda path: False)
        self._address_in = address_in

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._find_origin(scope)
        principal: Principal | None = scope.get("state", {}).get("principal", ANONYMOUS)
        path = scope["path"]
        is_open = path in OPEN_PATHS or self._is_open(path)
        if self._authenticator is not None and not is_open:
            given = dict(scope["headers"]).get(b"authorization", b"").decode("latin-1")
            address = (scope["client"] or ("",))[0]
            principal = await self._authenticator.authenticate(given, address)
        if principal is None:
            await self._refuse(scope, receive, send)
            return
        scope["principal"] = principal
        await self._app(scope, receive, send)

    def _find_origin(self, scope: Scope) -> None:
        token = None if self._address_in is None else dict(scope["headers"]).get(_ORIGIN)
        if token is not None and self._address_in is not None:
            address = self._address_in(token.decode("latin-1"))
            if address is not None:
                scope["peer"] = scope["client"]
                scope["client"] = (address, 0)

    async def _refuse(self, scope: Scope, receive: Receive, send: Send) -> None:
        assert self._authenticator is not None
        answer: Response = error(401, "log in with a user name and password, or with a token")
        answer.headers["WWW-Authenticate"] = self._authenticator.challenge
        await answer(scope, receive, send)
