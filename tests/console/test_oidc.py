"""Signing in with an OpenID Connect issuer, which is the test's own."""

from __future__ import annotations

import base64
import hashlib
import time
from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit
from uuid import uuid4

import httpx
import pytest
from joserfc import jwt
from joserfc.jwk import RSAKey
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route

from moldau.console.access.sessions import IDLE_S
from moldau.console.settings import ConsoleSettings, OidcSettings
from moldau.http.thread import HttpThread
from moldau.testing import Broker
from tests.console.consoles import RunningConsole


class Issuer:
    """An issuer that vouches for Ann, with whatever claims a test wants."""

    def __init__(self) -> None:
        self.key = RSAKey.generate_key(2048, {"kid": "one"})
        self.url = ""
        self.challenge = ""
        self.nonce = ""
        self.more: dict[str, Any] = {}
        # Of whom the access token is, for brokers.
        self.user = "ann"

    def routes(self) -> list[Route]:
        return [
            Route("/.well-known/openid-configuration", self.discovery),
            Route("/keys", self.keys),
            Route("/authorize", self.authorize),
            Route("/token", self.token, methods=["POST"]),
        ]

    async def discovery(self, request: Request) -> Response:
        return JSONResponse(
            {
                "issuer": self.url,
                "authorization_endpoint": f"{self.url}/authorize",
                "token_endpoint": f"{self.url}/token",
                "jwks_uri": f"{self.url}/keys",
            }
        )

    async def keys(self, request: Request) -> Response:
        return JSONResponse({"keys": [self.key.as_dict(private=False)]})

    async def authorize(self, request: Request) -> Response:
        """Send a browser back at once, as where Ann is signed in already."""
        asked = request.query_params
        self.challenge, self.nonce, self.more = asked["code_challenge"], asked["nonce"], {}
        back = urlencode({"state": asked["state"], "code": "right"})
        return RedirectResponse(f"{asked['redirect_uri']}?{back}", 302)

    async def token(self, request: Request) -> Response:
        given = {
            name: value[0] for name, value in parse_qs((await request.body()).decode()).items()
        }
        digest = hashlib.sha256(given["code_verifier"].encode()).digest()
        proof = base64.urlsafe_b64encode(digest).decode().rstrip("=")
        if given["code"] != "right" or proof != self.challenge:
            return JSONResponse({"error": "invalid_grant"}, 400)
        now = int(time.time())
        claims = {
            "iss": self.url, "aud": "console", "sub": "1", "preferred_username": self.user,
            "exp": now + 60, "nonce": self.nonce,
        }  # fmt: skip
        access = {
            "iss": self.url, "aud": "brokers", "sub": self.user, "iat": now, "exp": now + 60,
            "jti": uuid4().hex,
        }  # fmt: skip
        return JSONResponse(
            {
                "id_token": self._signed(claims | self.more),
                "access_token": self._signed(access),
                "token_type": "Bearer",
            }
        )

    def _signed(self, claims: dict[str, Any]) -> str:
        return jwt.encode({"alg": "RS256", "kid": "one"}, claims, self.key)


@pytest.fixture(scope="module")
def issuer() -> Iterator[Issuer]:
    made = Issuer()
    with HttpThread("127.0.0.1", 0, made.routes()) as server:
        made.url = server.url
        yield made


@pytest.fixture(scope="module")
def console(issuer: Issuer, shared_broker: Broker) -> Iterator[RunningConsole]:
    oidc = OidcSettings(issuer.url, "console")
    with RunningConsole(ConsoleSettings(shared_broker.bootstrap, oidc=oidc)) as running:
        yield running


def begun(console: RunningConsole, issuer: Issuer) -> str:
    """Go to the issuer, and return the state to come back with."""
    answer = console.http.get("api/session/oidc")
    assert answer.status_code == 302
    asked = {
        name: value[0]
        for name, value in parse_qs(urlsplit(answer.headers["location"]).query).items()
    }
    assert asked["redirect_uri"] == f"{console.url}/api/session/oidc/callback"
    assert asked["code_challenge_method"] == "S256"
    issuer.challenge, issuer.nonce, issuer.more = asked["code_challenge"], asked["nonce"], {}
    return asked["state"]


def come_back(console: RunningConsole, **query: str) -> httpx.Response:
    return console.http.get("api/session/oidc/callback", params=query)


def test_somebody_whom_the_issuer_vouches_for_gets_a_session(
    console: RunningConsole, issuer: Issuer
) -> None:
    assert console.get("api/session")["auth"] == "oidc"
    console.get("api/topics", 401)
    answer = come_back(console, state=begun(console, issuer), code="right")
    assert answer.status_code == 302
    assert console.get("api/session")["user"] == "ann"
    console.get("api/topics")
    console.send("DELETE", "api/session")
    console.get("api/topics", 401)


def test_the_token_of_somebody_whose_session_is_over_is_gone(
    issuer: Issuer, shared_broker: Broker
) -> None:
    by_token = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "OAUTHBEARER"}
    oidc = OidcSettings(issuer.url, "console")
    settings = ConsoleSettings(shared_broker.bootstrap, sign_in=by_token, oidc=oidc)
    with RunningConsole(settings) as console:

        def tokens() -> int:
            assert console.console.oidc is not None
            folder = console.console.oidc._folder
            assert folder is not None
            return len(list(folder.iterdir()))

        for _ in range(2):
            assert come_back(console, state=begun(console, issuer), code="right").is_redirect
        assert tokens() == 2
        console.send("DELETE", "api/session")
        assert tokens() == 1
        # The other one is never seen again.
        for session in console.console.sessions._open.values():
            session.seen -= IDLE_S + 1
        console.console.sessions.drop_old()
        assert tokens() == 0


@pytest.mark.parametrize(
    "more",
    [
        {"aud": "somebody-else"},
        {"iss": "http://other"},
        {"exp": 1},
        {"nonce": "belongs to another sign-in"},
    ],
)
def test_a_token_that_is_not_for_this_sign_in_counts_for_nothing(
    console: RunningConsole, issuer: Issuer, more: dict[str, Any]
) -> None:
    state = begun(console, issuer)
    issuer.more = more
    assert come_back(console, state=state, code="right").status_code == 401
    console.get("api/topics", 401)


def test_a_wrong_code_a_used_state_and_another_browser_are_refused(
    console: RunningConsole, issuer: Issuer
) -> None:
    state = begun(console, issuer)
    assert come_back(console, state=state, code="wrong").status_code == 401
    assert come_back(console, state=state, code="right").status_code == 401
    state = begun(console, issuer)
    console.http.cookies.clear()
    assert come_back(console, state=state, code="right").status_code == 401
    assert come_back(console, error="access_denied").status_code == 401
