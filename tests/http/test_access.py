"""Access over HTTP: logins, HTTPS and rights, as on the other doors."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from joserfc import jwt
from joserfc.jwk import KeySet, RSAKey

from moldau.broker.security.sasl.scram import credential_of
from moldau.cli.top.sample import Unreachable, take
from moldau.cluster.state.access import ScramChanged
from moldau.testing import Broker
from tests.certificates import client_context, tls_settings

MODULE = "org.apache.kafka.common.security"
USERS = f'{MODULE}.plain.PlainLoginModule required user_alice="wonder: land";'
SCRAM = f'{MODULE}.scram.ScramLoginModule required user_carol="through";'
LOGINS = {
    "http.listen": "127.0.0.1:0",
    "http.security.protocol": "SASL_PLAINTEXT",
    "listener.name.http.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
    "listener.name.http.plain.sasl.jaas.config": USERS,
    "listener.name.http.scram-sha-256.sasl.jaas.config": SCRAM,
    "connection.failed.authentication.delay.ms": "0",
}
AUTHORIZER = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:alice;User:ANONYMOUS",
}
CLIENT = httpx.Client(timeout=60)


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(LOGINS) as broker:
        yield broker


def ask(broker: Broker, user: str, password: str) -> int:
    return httpx.get(f"{broker.http_url}/metrics", auth=(user, password), timeout=60).status_code


def test_nobody_gets_in_without_a_login_but_health_is_open(broker: Broker) -> None:
    refused = httpx.get(f"{broker.http_url}/metrics", timeout=60)
    assert refused.status_code == 401
    assert refused.headers["www-authenticate"].startswith('Basic realm="moldau"')
    assert refused.json()["error_code"] == 401
    assert httpx.get(f"{broker.http_url}/healthz", timeout=60).status_code == 200
    assert httpx.get(f"{broker.http_url}/readyz", timeout=60).status_code == 200


@pytest.mark.parametrize(
    ("user", "password", "status"),
    [
        ("alice", "wonder: land", 200),
        ("carol", "through", 200),
        ("alice", "wonder", 401),
        ("carol", "Through", 401),
        ("nobody", "through", 401),
        ("", "", 401),
    ],
)
def test_users_of_plain_and_of_scram_log_in_with_their_passwords(
    broker: Broker, user: str, password: str, status: int
) -> None:
    for _ in range(2):
        assert ask(broker, user, password) == status


def test_a_user_of_the_cluster_logs_in_and_a_changed_password_counts_at_once(
    broker: Broker,
) -> None:
    def change(password: str) -> None:
        credential = credential_of("SCRAM-SHA-256", password)
        work = broker._server.store.commit  # type: ignore[union-attr]
        broker._call(work([ScramChanged("dora", {"SCRAM-SHA-256": credential})]))

    assert ask(broker, "dora", "first") == 401
    change("first")
    assert ask(broker, "dora", "first") == 200
    change("second")
    assert ask(broker, "dora", "first") == 401
    assert ask(broker, "dora", "second") == 200


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.one_of(
        st.binary(max_size=60),
        st.binary(max_size=60).map(lambda each: b"Basic " + each),
        st.binary(max_size=60).map(lambda each: b"Bearer " + each),
    )
)
def test_a_login_of_nonsense_is_refused(broker: Broker, header: bytes) -> None:
    clean = bytes(each for each in header if 32 < each < 127 or each == 32).strip()
    answer = CLIENT.get(f"{broker.http_url}/metrics", headers={b"authorization": clean})
    assert answer.status_code == 401


def test_https_serves_who_trusts_its_certificate_and_nobody_without_tls(tmp_path: Path) -> None:
    secure = LOGINS | tls_settings(tmp_path) | {"http.security.protocol": "SASL_SSL"}
    with Broker(secure) as broker:
        assert broker.http_url.startswith("https://")
        with httpx.Client(verify=client_context(), timeout=60) as client:
            metrics = f"{broker.http_url}/metrics"
            assert client.get(metrics).status_code == 401
            assert client.get(metrics, auth=("alice", "wonder: land")).status_code == 200
        with pytest.raises(httpx.TransportError):
            httpx.get(broker.http_url.replace("https", "http") + "/healthz", timeout=60)
        with pytest.raises(httpx.ConnectError, match="CERTIFICATE_VERIFY_FAILED"):
            httpx.get(broker.http_url + "/healthz", timeout=60)


def test_rights_are_asked_of_the_same_authorizer() -> None:
    with Broker(LOGINS | AUTHORIZER) as broker:
        assert ask(broker, "alice", "wonder: land") == 200
        refused = httpx.get(f"{broker.http_url}/metrics", auth=("carol", "through"), timeout=60)
    assert refused.status_code == 403
    assert refused.json()["message"] == "User:carol lacks DESCRIBE on CLUSTER 'kafka-cluster'"


def test_a_token_of_the_provider_counts_and_another_does_not(tmp_path: Path) -> None:
    key, other = RSAKey.generate_key(2048), RSAKey.generate_key(2048)
    jwks = tmp_path / "jwks.json"
    jwks.write_text(json.dumps(KeySet([key]).as_dict(private=False)))
    issuer = {
        **LOGINS,
        "listener.name.http.sasl.enabled.mechanisms": "OAUTHBEARER",
        "listener.name.http.sasl.oauthbearer.jwks.endpoint.url": f"file://{jwks}",
        "listener.name.http.sasl.oauthbearer.expected.issuer": "https://here",
        "listener.name.http.sasl.oauthbearer.expected.audience": "moldau",
    }
    issuer = {name: text for name, text in issuer.items() if "jaas" not in name}
    now = int(time.time())
    claims = {"iss": "https://here", "aud": "moldau", "sub": "erin", "iat": now, "exp": now + 600}

    def token(by: RSAKey, **more: object) -> str:
        return jwt.encode({"alg": "RS256"}, {**claims, **more}, by)

    with Broker(issuer) as broker:

        def status(given: str) -> int:
            headers = {"authorization": f"Bearer {given}"}
            return httpx.get(f"{broker.http_url}/metrics", headers=headers, timeout=60).status_code

        assert status(token(key)) == 200
        assert status(token(other)) == 401
        assert status(token(key, exp=now - 600)) == 401
        assert status("nonsense") == 401
        answer = httpx.get(f"{broker.http_url}/metrics", timeout=60)
        assert answer.headers["www-authenticate"] == "Bearer"


def test_settings_of_the_http_listener_are_checked() -> None:
    with pytest.raises(ValueError, match="no such setting"):
        Broker(LOGINS | {"listener.name.http.ssl.nothing": "x"}).start()
    with pytest.raises(ValueError, match=r"http\.security\.protocol"):
        Broker(LOGINS | {"http.security.protocol": "TLS"}).start()


def test_top_logs_in_with_the_user_of_the_environment(broker: Broker) -> None:
    with pytest.raises(Unreachable, match="it answered with status 401"):
        take(broker.http_url)
    found = take(broker.http_url, login="carol:through")
    assert found.value("kafka_brokers") == 1
