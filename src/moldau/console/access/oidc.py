"""Sign-in with an OpenID Connect issuer: authorization code with PKCE.

    begin     the browser is sent to the issuer, with a state that only it and we know
    finish    it comes back with a code, which we exchange for tokens; the identity token must be
              signed by the issuer, for us, unexpired, and about this sign-in (nonce)

If brokers take the issuer's access tokens (SASL OAUTHBEARER), the visitor connects with theirs, and
the brokers decide. Otherwise signing in only opens the console, which acts under its own name.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import secrets
import shutil
import tempfile
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from joserfc import jwt
from joserfc.jwk import KeySet

from moldau.console.errors import ApiError
from moldau.console.settings import ConsoleSettings, OidcSettings
from moldau.security.client import ClientSecurity

# Signing in takes people a while, but not for ever.
_PENDING_S = 600.0
_MOST_PENDING = 1000
_WITHIN_S = 10.0
_LARGEST_ANSWER = 1 << 20
_SKEW_S = 60
_ALGORITHMS = ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512"]


@dataclass(frozen=True, slots=True)
class _Pending:
    verifier: str
    nonce: str
    redirect_url: str
    until: float


@dataclass(frozen=True, slots=True)
class Identity:
    """Who signed in, and with what the cluster is asked for them."""

    user: str
    security: ClientSecurity | None


class Oidc:
    """Sign-ins with one issuer. Any thread."""

    def __init__(self, console: ConsoleSettings, settings: OidcSettings) -> None:
        self._console = console
        self._settings = settings
        self._lock = threading.Lock()
        self._pending: dict[str, _Pending] = {}
        self._found: dict[str, Any] | None = None
        self._folder: Path | None = None
        self._tokens: dict[ClientSecurity, Path] = {}

    def close(self) -> None:
        """Remove the tokens of those who signed in."""
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)

    def forget(self, security: ClientSecurity | None) -> None:
        """Remove the token of somebody whose session is over."""
        with self._lock:
            path = None if security is None else self._tokens.pop(security, None)
        if path is not None:
            path.unlink(missing_ok=True)

    def begin(self, redirect_url: str) -> tuple[str, str]:
        """Return where to send the browser, and the state that it has to bring back."""
        state, nonce, verifier = (secrets.token_urlsafe(32) for _ in range(3))
        challenge = base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest())
        endpoint = self._discovered()["authorization_endpoint"]
        query = {
            "response_type": "code",
            "client_id": self._settings.client_id,
            "redirect_uri": redirect_url,
            "scope": self._settings.scope,
            "state": state,
            "nonce": nonce,
            "code_challenge": challenge.decode().rstrip("="),
            "code_challenge_method": "S256",
        }
        now = time.monotonic()
        with self._lock:
            kept = {key: each for key, each in self._pending.items() if each.until > now}
            while len(kept) >= _MOST_PENDING:
                del kept[next(iter(kept))]
            kept[state] = _Pending(verifier, nonce, redirect_url, now + _PENDING_S)
            self._pending = kept
        joint = "&" if "?" in endpoint else "?"
        return f"{endpoint}{joint}{urllib.parse.urlencode(query)}", state

    def finish(self, state: str, code: str) -> Identity:
        """Return who came back; ApiError if that is nobody whom the issuer vouches for."""
        with self._lock:
            pending = self._pending.pop(state, None)
        if pending is None or pending.until < time.monotonic():
            raise ApiError(401, "oidc", "this sign-in is unknown, or took too long", "try again")
        fields = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": pending.redirect_url,
            "client_id": self._settings.client_id,
            "code_verifier": pending.verifier,
        }
        if self._settings.client_secret:
            fields["client_secret"] = self._settings.client_secret
        tokens = self._fetch(self._discovered()["token_endpoint"], fields)
        claims = self._claims(str(tokens.get("id_token", "")), pending.nonce)
        user = claims.get("preferred_username") or claims.get("email") or claims["sub"]
        return Identity(str(user), self._security(str(tokens.get("access_token", ""))))

    def _claims(self, token: str, nonce: str) -> dict[str, Any]:
        keys = KeySet.import_key_set(self._fetch(self._discovered()["jwks_uri"]))  # type: ignore[arg-type]
        try:
            found = jwt.decode(token, keys, algorithms=_ALGORITHMS)
            jwt.JWTClaimsRegistry(
                leeway=_SKEW_S,
                iss={"essential": True, "value": self._settings.issuer},
                aud={"essential": True, "value": self._settings.client_id},
                exp={"essential": True},
                sub={"essential": True},
            ).validate(found.claims)
        except Exception as problem:
            # Whatever joserfc makes of a token that it cannot read.
            raise ApiError(401, "oidc", f"the identity token is not valid: {problem}") from None
        claims = dict(found.claims)
        if not secrets.compare_digest(str(claims.get("nonce", "")), nonce):
            raise ApiError(401, "oidc", "the identity token belongs to another sign-in")
        return claims

    def _security(self, token: str) -> ClientSecurity | None:
        properties = self._console.sign_in
        if properties is None or properties.get("sasl.mechanism") != "OAUTHBEARER":
            return self._console.security
        if not token:
            raise ApiError(401, "oidc", "the issuer sent no access token for the brokers")
        with self._lock:
            if self._folder is None:
                self._folder = Path(tempfile.mkdtemp(prefix="moldau-console-"))
        path = self._folder / secrets.token_hex(16)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with open(descriptor, "w", encoding="ascii") as file:
            file.write(token)
        security = ClientSecurity.parse(
            {**properties, "sasl.oauthbearer.token.endpoint.url": path.as_uri()}
        )
        assert security is not None
        with self._lock:
            self._tokens[security] = path
        return security

    def _discovered(self) -> dict[str, Any]:
        if self._found is None:
            issuer = self._settings.issuer.rstrip("/")
            found = self._fetch(f"{issuer}/.well-known/openid-configuration")
            if found.get("issuer") != self._settings.issuer:
                raise ApiError(502, "oidc", f"{issuer} says that it is {found.get('issuer')!r}")
            missing = {"authorization_endpoint", "token_endpoint", "jwks_uri"} - found.keys()
            if missing:
                raise ApiError(502, "oidc", f"{issuer} does not name its {min(missing)}")
            self._found = found
        return self._found

    def _fetch(self, url: str, fields: dict[str, str] | None = None) -> dict[str, Any]:
        if not url.startswith(("https://", "http://")):
            raise ApiError(502, "oidc", f"{url!r} is not the address of an issuer")
        data = None if fields is None else urllib.parse.urlencode(fields).encode()
        request = urllib.request.Request(url, data, {"Accept": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=_WITHIN_S) as answer:
                found = json.loads(answer.read(_LARGEST_ANSWER))
        except urllib.error.HTTPError as problem:
            status = 401 if fields is not None and problem.code in (400, 401, 403) else 502
            raise ApiError(status, "oidc", f"the issuer answered {problem.code}") from None
        except (OSError, ValueError) as problem:
            raise ApiError(502, "oidc", f"the issuer does not answer: {problem}") from None
        if not isinstance(found, dict):
            raise ApiError(502, "oidc", "the issuer's answer is not a JSON object")
        return found
