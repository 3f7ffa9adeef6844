"""Properties of Java's clients as they are: what means nothing here is passed over."""

from __future__ import annotations

import json
import threading
from base64 import b64encode
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from urllib.parse import parse_qs

import pytest
from confluent_kafka.admin import AdminClient

from moldau.security.client import WITHOUT_EFFECT, ClientSecurity
from moldau.security.librdkafka import for_librdkafka
from moldau.security.sasl_client import Oauthbearer
from moldau.settings import InvalidSetting
from tests.certificates import authority

MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required"
BY_NAMES = {
    "sasl.jaas.config": f"{MODULE};",
    "sasl.oauthbearer.client.credentials.client.id": "alice",
    "sasl.oauthbearer.client.credentials.client.secret": "of alice",
    "sasl.oauthbearer.scope": "orders",
}
BY_MODULE = {
    "sasl.jaas.config": f'{MODULE} clientId="alice" clientSecret="of alice" scope="orders";'
}


def test_what_tunes_java_is_passed_over() -> None:
    given = {
        "security.protocol": "SASL_SSL",
        "ssl.truststore.certificates": authority().certificate,
        "sasl.mechanism": "PLAIN",
        "sasl.username": "alice",
        "sasl.password": "wonder",
    }
    tuned = given | dict.fromkeys(WITHOUT_EFFECT, "1")
    assert ClientSecurity.parse(tuned) == ClientSecurity.parse(given)
    assert for_librdkafka(tuned) == for_librdkafka(given)
    # librdkafka refuses what it does not know.
    AdminClient({"bootstrap.servers": "127.0.0.1:1", **for_librdkafka(tuned)})


@pytest.fixture
def provider() -> Iterator[tuple[str, list[tuple[str, dict[str, list[str]]]]]]:
    """An identity provider's address, and what it is asked."""
    asked: list[tuple[str, dict[str, list[str]]]] = []

    class Provider(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            asked.append((self.headers["Authorization"], parse_qs(body)))
            answer = json.dumps({"access_token": "a token"}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, format: str, *args: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Provider) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/token", asked
        server.shutdown()
        thread.join()


@pytest.mark.parametrize("login", [BY_NAMES, BY_MODULE], ids=["names", "module"])
def test_a_token_is_fetched_with_the_clients_credentials(
    provider: tuple[str, list[tuple[str, dict[str, list[str]]]]], login: dict[str, str]
) -> None:
    url, asked = provider
    security = ClientSecurity.parse(
        {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.oauthbearer.token.endpoint.url": url,
            **login,
        }
    )
    assert security is not None
    assert "of alice" not in repr(security)
    exchange = security.exchange()
    assert isinstance(exchange, Oauthbearer)
    assert exchange.token() == "a token"
    basic = f"Basic {b64encode(b'alice:of alice').decode()}"
    assert asked == [(basic, {"grant_type": ["client_credentials"], "scope": ["orders"]})]


@pytest.mark.parametrize("login", [BY_NAMES, BY_MODULE], ids=["names", "module"])
def test_librdkafka_is_told_the_clients_credentials(login: dict[str, str]) -> None:
    assert for_librdkafka(login) == {
        "sasl.oauthbearer.client.id": "alice",
        "sasl.oauthbearer.client.secret": "of alice",
        "sasl.oauthbearer.scope": "orders",
        "sasl.oauthbearer.method": "oidc",
    }


def test_a_misspelt_one_is_an_error() -> None:
    with pytest.raises(InvalidSetting, match="no such security setting"):
        ClientSecurity.parse({"ssl.protocols": "TLSv1.3"})
