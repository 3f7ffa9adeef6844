"""OAUTHBEARER: a token that an identity provider has signed (RFC 7628, KIP-768).

    n,,^Aauth=Bearer TOKEN^A^A

A token has to be signed by a key of the provider's JWKS, and to name the issuer and the audience
that the listener expects; it says who the client is (`sub`) and until when.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import Any

from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jwk import KeySet

from moldau.broker.security.principal import shortened
from moldau.broker.security.sasl.mechanism import AuthenticationFailed, Step
from moldau.broker.settings.security import SecuritySettings
from moldau.settings import InvalidSetting

logger = logging.getLogger("moldau.broker")

_FIRST = re.compile(rb"n,(?:a=([^,]*))?,\x01(.*)\x01\x01", re.DOTALL)
_ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512")
_FETCH_WITHIN_S = 10.0
_LARGEST_JWKS = 1 << 20
# No token lives until then.
_LATEST_S = 1 << 40
# Between two looks for a key that a token names and nobody knows.
_LOOK_AGAIN_S = 10.0
# The client answers a refusal with this, and then hears the error.
_ACKNOWLEDGED = b"\x01"
_LONGEST_REASON = 200


class Oauthbearer:
    """What tokens a listener takes."""

    def __init__(self, settings: SecuritySettings) -> None:
        self._url = settings.sasl_oauthbearer_jwks_endpoint_url
        self._refresh_s = settings.sasl_oauthbearer_jwks_endpoint_refresh_ms / 1000
        self._user_claim = settings.sasl_oauthbearer_sub_claim_name
        self._skew_s = settings.sasl_oauthbearer_clock_skew_seconds
        self._issuer = settings.sasl_oauthbearer_expected_issuer
        self._audiences = settings.sasl_oauthbearer_expected_audience
        for name, text in (
            ("sasl.oauthbearer.jwks.endpoint.url", self._url),
            ("sasl.oauthbearer.expected.issuer", self._issuer),
            ("sasl.oauthbearer.expected.audience", self._audiences),
        ):
            if not text:
                raise InvalidSetting(
                    name,
                    None,
                    "OAUTHBEARER needs this; without it, the broker would accept tokens that "
                    "are meant for others",
                )
        options: dict[str, Any] = {
            "iss": {"essential": True, "value": self._issuer},
            "aud": {"essential": True, "values": list(self._audiences)},
            "exp": {"essential": True},
            "iat": {"essential": True},
            self._user_claim: {"essential": True},
        }
        self._claims = jwt.JWTClaimsRegistry(leeway=self._skew_s, **options)
        self._keys = KeySet([])
        self._looked_at = 0.0
        self._wanted = asyncio.Event()
        try:
            self._load()
        except (OSError, ValueError, JoseError) as reason:
            raise InvalidSetting(
                "sasl.oauthbearer.jwks.endpoint.url",
                self._url,
                f"could not get keys from it: {reason}",
            ) from None

    async def watch(self) -> None:
        """Fetch the provider's keys again and again, for ever."""
        while True:
            try:
                async with asyncio.timeout(self._refresh_s):
                    await self._wanted.wait()
            except TimeoutError:
                pass
            self._wanted.clear()
            try:
                await asyncio.to_thread(self._load)
            except (OSError, ValueError, JoseError) as reason:
                logger.warning("could not get new keys from %s: %s", self._url, reason)

    def _load(self) -> None:
        self._looked_at = time.monotonic()
        url = self._url if "://" in self._url else f"file://{self._url}"
        if not url.startswith(("file://", "https://", "http://")):
            raise ValueError("expected file://, https:// or http://")
        with urllib.request.urlopen(url, timeout=_FETCH_WITHIN_S) as answer:
            self._keys = KeySet.import_key_set(json.loads(answer.read(_LARGEST_JWKS)))

    def begin(self) -> OauthbearerExchange:
        return OauthbearerExchange(self)

    def check(self, token: str) -> tuple[str, int]:
        """Return the user of a token, and when it expires; ValueError if it does not count."""
        claims = self._decode(token)
        try:
            self._claims.validate(dict(claims))
        except Exception as problem:
            raise ValueError(_in_words(problem)) from None
        user, expires_s = claims[self._user_claim], claims["exp"]
        if not isinstance(user, str) or not user:
            raise ValueError(f"its claim {self._user_claim} is not a name")
        if not isinstance(expires_s, int | float) or not 0 < expires_s < _LATEST_S:
            raise ValueError("its claim exp is not a time")
        return user, int((expires_s + self._skew_s) * 1000)

    def _decode(self, token: str) -> Mapping[str, Any]:
        try:
            return jwt.decode(token, self._keys, algorithms=_ALGORITHMS).claims
        except RecursionError:
            raise ValueError("its JSON is nested too deeply") from None
        except Exception as problem:
            # Anybody sends these, and joserfc trips over values of a type that it does not expect.
            # The provider may also have changed its key; the next attempt finds it.
            if time.monotonic() - self._looked_at > _LOOK_AGAIN_S:
                self._wanted.set()
            raise ValueError(_in_words(problem)) from None


def _in_words(problem: Exception) -> str:
    if not isinstance(problem, JoseError | ValueError):
        return f"it cannot be parsed ({type(problem).__name__})"
    # The messages of joserfc name claims, headers and algorithms, never the token.
    return shortened(str(problem) or type(problem).__name__, _LONGEST_REASON)


class OauthbearerExchange:
    """A token, and, if it does not count, the client's acknowledgement of that."""

    def __init__(self, oauthbearer: Oauthbearer) -> None:
        self._oauthbearer = oauthbearer
        self._problem = ""

    def respond(self, message: bytes) -> Step:
        if self._problem:
            raise self._refusal()
        try:
            as_user, token = _token_of(message)
            user, expires_at_ms = self._oauthbearer.check(token)
            if as_user not in ("", user):
                raise ValueError(f"user {user!r} asked to act as another user")
        except ValueError as problem:
            self._problem = str(problem)
            if message == _ACKNOWLEDGED:
                raise self._refusal() from None
            return Step(b'{"status":"invalid_token"}', problem=self._refusal())
        return Step(b"", user, expires_at_ms)

    def _refusal(self) -> AuthenticationFailed:
        return AuthenticationFailed(
            f'{{"status":"invalid_token"}}: {self._problem}', f"its token: {self._problem}"
        )


def _token_of(message: bytes) -> tuple[str, str]:
    found = _FIRST.fullmatch(message)
    if found is None:
        raise ValueError("the message is not an OAUTHBEARER message")
    for pair in found[2].split(b"\x01"):
        key, _, value = pair.partition(b"=")
        if key == b"auth":
            scheme, _, token = value.decode("ascii").strip().partition(" ")
            if scheme.lower() != "bearer" or not token:
                raise ValueError("the message has no Bearer token")
            return (found[1] or b"").decode(), token.strip()
    raise ValueError("the message has no token")
