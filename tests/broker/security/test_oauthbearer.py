"""Tokens of all kinds: each counts, or is refused with a reason that a log can show."""

from __future__ import annotations

import asyncio
import base64
import json
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from joserfc.jwk import ECKey, KeySet
from joserfc.jws import JWSRegistry, serialize_compact
from msgspec.structs import replace

from moldau.broker.security.audit import Audit
from moldau.broker.security.sasl.oauthbearer import Oauthbearer
from moldau.broker.security.sasl.sasl import SaslDoor
from moldau.broker.settings.security import SecuritySettings
from moldau.http.authentication import SaslAuthenticator

KEY = ECKey.generate_key("P-256", {"kid": "one"})
NAMES = ("alg", "kid", "crit", "b64", "jku", "jwk", "typ", "cty", "x5c", "x5t", "enc", "zip", "epk")
CLAIMS = ("iss", "aud", "sub", "iat", "exp", "nbf", "jti")

VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(["ES256", "RS256", "HS256", "none", "one", "moldau", "crit", "alg"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(NAMES) | st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=6,
)


@pytest.fixture(scope="module")
def oauthbearer(tmp_path_factory: pytest.TempPathFactory) -> Oauthbearer:
    path = tmp_path_factory.mktemp("jwks") / "jwks.json"
    return _oauthbearer(path)


def _oauthbearer(path: Path) -> Oauthbearer:
    path.write_text(json.dumps(KeySet([KEY]).as_dict(private=False)))
    return Oauthbearer(
        replace(
            SecuritySettings(),
            sasl_oauthbearer_jwks_endpoint_url=path.as_uri(),
            sasl_oauthbearer_expected_issuer="issuer",
            sasl_oauthbearer_expected_audience=("moldau",),
        )
    )


def part(value: Any) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")


def refusal(oauthbearer: Oauthbearer, token: str) -> str | None:
    """Why a token does not count; None if it does."""
    try:
        user, expires_at_ms = oauthbearer.check(token)
    except ValueError as problem:
        reason = str(problem)
        assert reason
        assert reason.isprintable()
        assert len(reason) < 1000
        return reason
    assert isinstance(user, str)
    assert isinstance(expires_at_ms, int)
    return None


@settings(max_examples=200, deadline=None)
@given(
    st.fixed_dictionaries({}, optional=dict.fromkeys(NAMES, VALUES)) | VALUES,
    VALUES,
    st.binary(max_size=8),
)
@example({"alg": "RS256", "crit": 5}, {}, b"")
@example({"alg": "ES256", "crit": ["\nforged line"]}, {}, b"")
@example({"alg": "ES256", "crit": ["x" * 40_000]}, {}, b"")
@example({"alg": ["ES256"]}, {}, b"")
def test_a_token_that_nobody_signed_is_refused(
    oauthbearer: Oauthbearer, header: Any, payload: Any, signature: bytes
) -> None:
    end = base64.urlsafe_b64encode(signature).decode().rstrip("=")
    assert refusal(oauthbearer, f"{part(header)}.{part(payload)}.{end}") is not None


@settings(max_examples=300, deadline=None)
@given(st.fixed_dictionaries({}, optional=dict.fromkeys(CLAIMS, VALUES)) | VALUES)
def test_a_token_that_was_signed_counts_or_is_refused(oauthbearer: Oauthbearer, given: Any) -> None:
    now = int(time.time())
    claims = {"iss": "issuer", "aud": "moldau", "sub": "alice", "iat": now, "exp": now + 600}
    payload = claims | given if isinstance(given, dict) else given
    header = {"alg": "ES256", "kid": "one"}
    token = serialize_compact(header, json.dumps(payload), KEY, registry=JWSRegistry())
    reason = refusal(oauthbearer, token)
    if payload == claims:
        assert reason is None


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=60) | st.text("ey.J0\x00\n", max_size=60))
def test_a_text_that_is_no_token_is_refused(oauthbearer: Oauthbearer, text: str) -> None:
    assert refusal(oauthbearer, text) is not None


def test_http_takes_a_token_that_cannot_be_read_for_a_wrong_one(oauthbearer: Oauthbearer) -> None:
    bad = f"{part({'alg': 'RS256', 'crit': 5})}.e30.e30"
    door = SaslDoor({"OAUTHBEARER": oauthbearer}, 1 << 16, 10, 0, {})

    async def ask() -> object:
        audit = Audit(asyncio.get_running_loop().call_later, 60_000)
        return await SaslAuthenticator(door, audit).authenticate(f"Bearer {bad}", "127.0.0.1")

    assert asyncio.run(ask()) is None
