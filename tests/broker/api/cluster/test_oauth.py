"""OAUTHBEARER: which tokens get in, and for how long."""

from __future__ import annotations

import base64
import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from joserfc import jwt
from joserfc.jwk import ECKey, KeySet

from moldau.testing import Broker
from moldau.testing.waiting import until
from moldau.wire.apis import Api
from moldau.wire.errors import Error
from tests.broker.api.cluster.sasl import (
    BASE,
    WITHIN_S,
    authenticate,
    connect,
    handshake,
    principals,
)


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(BASE) as broker:
        yield broker


# Tokens

KEY = ECKey.generate_key("P-256", {"kid": "one"})


OTHER = ECKey.generate_key("P-256", {"kid": "two"})


ISSUER, AUDIENCE = "https://issuer.example", "moldau"


def token(key: ECKey = KEY, **more: Any) -> str:
    now = int(time.time())
    claims = {"iss": ISSUER, "aud": AUDIENCE, "sub": "alice", "iat": now, "exp": now + 600, **more}
    claims = {name: value for name, value in claims.items() if value is not None}
    return jwt.encode({"alg": "ES256", "kid": key.kid}, claims, key)


def bearer(text: str) -> bytes:
    return f"n,,\x01auth=Bearer {text}\x01\x01".encode()


def oauth_settings(url: str) -> dict[str, str]:
    return {
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        "sasl.oauthbearer.jwks.endpoint.url": url,
        "sasl.oauthbearer.expected.issuer": ISSUER,
        "sasl.oauthbearer.expected.audience": AUDIENCE,
        "sasl.oauthbearer.clock.skew.seconds": "0",
        "connection.failed.authentication.delay.ms": "1",
    }


@pytest.fixture(scope="module")
def oauth_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    path = tmp_path_factory.mktemp("jwks") / "jwks.json"
    path.write_text(json.dumps(KeySet([KEY]).as_dict(private=False)))
    with Broker(oauth_settings(path.as_uri())) as broker:
        yield broker


def test_a_token_gets_in_for_as_long_as_it_counts(oauth_broker: Broker) -> None:
    with connect(oauth_broker) as client:
        handshake(client, "OAUTHBEARER")
        answer = authenticate(client, bearer(token()))
        assert answer.error_code == 0
        assert 0 < answer.session_lifetime.total_seconds() <= 600
        assert principals(oauth_broker) == ["User:alice"]
        assert client.ask(Api.METADATA, topics=None).brokers


@pytest.mark.parametrize(
    "bad",
    [
        token(exp=int(time.time()) - 60),
        token(iss="https://other.example"),
        token(aud="another"),
        token(sub=None),
        token(exp=None),
        token(iat=None),
        token(exp=1e300),
        token(sub=7),
        token(aud=None),
        token(OTHER),
        token()[:-4] + "AAAA",
        "eyJhbGciOiJub25lIn0.eyJzdWIiOiJhbGljZSJ9.",
        "nonsense",
        base64.urlsafe_b64encode(b"[" * 9000).decode() + ".e30.e30",
        base64.urlsafe_b64encode(b'{"alg":"ES256","crit":5}').decode() + ".e30.e30",
    ],
    ids=[
        "expired", "issuer", "audience", "no sub", "no exp", "no iat", "exp of no time",
        "sub of no name", "no aud", "foreign key",
        "forged", "unsigned", "nonsense", "deep", "crit of no list",
    ],
)  # fmt: skip
def test_a_token_that_does_not_count_is_refused(
    oauth_broker: Broker, caplog: pytest.LogCaptureFixture, bad: str
) -> None:
    with connect(oauth_broker) as client:
        handshake(client, "OAUTHBEARER")
        answer = authenticate(client, bearer(bad))
        assert json.loads(answer.auth_bytes)["status"] == "invalid_token"
        answer = authenticate(client, b"\x01")
        assert answer.error_code == Error.SASL_AUTHENTICATION_FAILED
        assert client.is_closed()
        assert bad not in caplog.text
        assert bad not in answer.error_message


def test_keys_are_fetched_again_when_the_provider_changes_them() -> None:
    served = {"keys": KeySet([KEY]).as_dict(private=False)}

    class Provider(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = json.dumps(served["keys"]).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Provider) as provider:
        threading.Thread(target=provider.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{provider.server_port}/jwks"
        often = {"sasl.oauthbearer.jwks.endpoint.refresh.ms": "20"}
        with Broker(oauth_settings(url) | often) as broker:

            def gets_in(key: ECKey) -> bool:
                with connect(broker) as client:
                    handshake(client, "OAUTHBEARER")
                    answer = authenticate(client, bearer(token(key)))
                    return bool(answer.error_code == 0 and answer.auth_bytes == b"")

            assert gets_in(KEY)
            assert not gets_in(OTHER)
            served["keys"] = KeySet([OTHER]).as_dict(private=False)
            until(lambda: gets_in(OTHER))
            until(lambda: not gets_in(KEY))
        provider.shutdown()


def test_confluents_client_gets_in_with_a_token(oauth_broker: Broker) -> None:
    from confluent_kafka import KafkaError
    from confluent_kafka.admin import AdminClient

    errors: list[KafkaError] = []
    configuration: dict[str, Any] = {
        "bootstrap.servers": oauth_broker.bootstrap,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "oauth_cb": lambda _: (token(), time.time() + 600),
        "error_cb": errors.append,
    }
    admin = AdminClient(configuration)
    admin.poll(0.1)
    assert admin.list_topics(timeout=WITHIN_S).brokers, errors
