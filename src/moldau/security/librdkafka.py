"""Security for librdkafka, which has some names of its own for what Java's clients are told."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Callable, Mapping
from typing import Any

from moldau.security.cipher_suites import for_openssl
from moldau.security.client import WITHOUT_EFFECT
from moldau.security.jaas import InvalidJaas, parse_jaas
from moldau.security.key_material import TlsError, read_store
from moldau.security.tls import inline
from moldau.settings import InvalidSetting

_JAAS = "sasl.jaas.config"
_TRUST_TYPE, _TRUST_PASSWORD = "ssl.truststore.type", "ssl.truststore.password"
_TRUST, _TRUST_INLINE = "ssl.truststore.location", "ssl.truststore.certificates"
_KEYS, _KEYS_TYPE, _KEYS_PASSWORD = (
    "ssl.keystore.location",
    "ssl.keystore.type",
    "ssl.keystore.password",
)
_SUITES = "ssl.cipher.suites"
_KEY_INLINE, _CHAIN_INLINE = "ssl.keystore.key", "ssl.keystore.certificate.chain"
_HOST_CHECK = "ssl.endpoint.identification.algorithm"
_TOKENS = "sasl.oauthbearer.token.endpoint.url"
# Without a counterpart: librdkafka speaks what its OpenSSL speaks, and fetches tokens itself.
_WITHOUT_EFFECT = (
    *WITHOUT_EFFECT,
    "ssl.enabled.protocols",
    "sasl.login.callback.handler.class",
)
_CREDENTIALS = "sasl.oauthbearer.client.credentials.client."
# Java's clients pass over what they do not know, librdkafka refuses it.
_OF_REGISTRIES = ("schema.registry.", "basic.auth.", "bearer.auth.")
# How long a token counts that does not say so.
_TOKEN_LIFE_S = 300.0


def for_librdkafka(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return these settings with Java's names and texts of security turned into librdkafka's.

    InvalidSetting for what cannot be read.
    """
    settings = {
        name: value
        for name, value in given.items()
        if name not in _WITHOUT_EFFECT and not name.startswith(_OF_REGISTRIES)
    }
    if "security.protocol" in settings:
        settings["security.protocol"] = str(settings["security.protocol"]).upper()
    if _SUITES in settings:
        settings[_SUITES] = for_openssl(settings[_SUITES].split(","))
    if settings.get(_HOST_CHECK) == "":
        settings[_HOST_CHECK] = "none"
    if _JAAS in settings:
        settings |= _login(settings.pop(_JAAS))
    for name in ("id", "secret"):
        if (given_name := f"{_CREDENTIALS}{name}") in settings:
            settings[f"sasl.oauthbearer.client.{name}"] = settings.pop(given_name)
            settings["sasl.oauthbearer.method"] = "oidc"
    if str(settings.get(_TOKENS, "")).startswith("file://"):
        # librdkafka itself knows only https.
        settings.setdefault("oauth_cb", _reads_token(settings.pop(_TOKENS)))
    try:
        _trust(settings)
        _keys(settings)
    except TlsError as problem:
        raise InvalidSetting(problem.setting, None, problem.reason) from None
    return settings


def _login(text: str) -> dict[str, str]:
    try:
        options = parse_jaas(text).options
    except InvalidJaas as problem:
        raise InvalidSetting(_JAAS, None, str(problem)) from None
    names = {
        "username": "sasl.username",
        "password": "sasl.password",
        "clientId": "sasl.oauthbearer.client.id",
        "clientSecret": "sasl.oauthbearer.client.secret",
        "scope": "sasl.oauthbearer.scope",
    }
    found = {names[key]: value for key, value in options.items() if key in names}
    if "clientId" in options:
        found["sasl.oauthbearer.method"] = "oidc"
    return found


def _reads_token(url: str) -> Callable[[str], tuple[str, float]]:
    """Return what librdkafka calls for a token and the time when that expires."""
    from moldau.security.sasl_client import Oauthbearer

    def read(config: str) -> tuple[str, float]:
        token = Oauthbearer(url, {}).token()
        return token, _expiry(token)

    return read


def _expiry(token: str) -> float:
    try:
        payload = token.split(".")[1]
        claims = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
        return float(claims["exp"])
    except (IndexError, KeyError, TypeError, ValueError):
        return time.time() + _TOKEN_LIFE_S


def _trust(settings: dict[str, Any]) -> None:
    kind, password = settings.pop(_TRUST_TYPE, ""), settings.pop(_TRUST_PASSWORD, "")
    if _TRUST in settings:
        path = settings.pop(_TRUST)
        settings["ssl.ca.pem"] = read_store(_TRUST, path, kind, password).text.decode()
    if _TRUST_INLINE in settings:
        settings["ssl.ca.pem"] = inline(settings.pop(_TRUST_INLINE)).decode()


def _keys(settings: dict[str, Any]) -> None:
    kind = settings.pop(_KEYS_TYPE, "")
    if _KEYS in settings:
        path, password = settings.pop(_KEYS), settings.pop(_KEYS_PASSWORD, "")
        text = read_store(_KEYS, path, kind, password).text.decode()
        settings["ssl.key.pem"] = settings["ssl.certificate.pem"] = text
    if _KEY_INLINE in settings:
        settings["ssl.key.pem"] = inline(settings.pop(_KEY_INLINE)).decode()
        settings["ssl.certificate.pem"] = inline(settings.pop(_CHAIN_INLINE, "")).decode()
