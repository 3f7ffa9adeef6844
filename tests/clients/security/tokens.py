"""Tokens of an identity provider that lives as long as the tests do, and its keys."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from joserfc import jwt
from joserfc.jwk import ECKey, KeySet

_ISSUER, _AUDIENCE = "https://id.example", "moldau"
_KEY = ECKey.generate_key("P-256", {"kid": "one"})


def token(expires_in_s: int) -> str:
    """A token of alice's."""
    now = int(time.time())
    claims: dict[str, Any] = {"iss": _ISSUER, "aud": _AUDIENCE, "sub": "alice"}
    times = {"iat": now - 1000, "exp": now + expires_in_s}
    return jwt.encode({"alg": "ES256", "kid": _KEY.kid}, claims | times, _KEY)


def provider_settings(folder: Path) -> dict[str, str]:
    """What a broker needs to check tokens; the keys are in `folder`."""
    keys = folder / "jwks.json"
    keys.write_text(json.dumps(KeySet([_KEY]).as_dict(private=False)))
    return {
        "sasl.oauthbearer.jwks.endpoint.url": keys.as_uri(),
        "sasl.oauthbearer.expected.issuer": _ISSUER,
        "sasl.oauthbearer.expected.audience": _AUDIENCE,
    }
