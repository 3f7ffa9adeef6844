"""A broker's own console with masks, and with people who sign in with an issuer."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest

from moldau.http.thread import HttpThread
from moldau.settings import InvalidSetting
from moldau.testing import Broker
from tests.console.consoles import CSRF
from tests.console.test_oidc import Issuer
from tests.http.test_access import AUTHORIZER


@pytest.fixture(scope="module")
def issuer() -> Iterator[Issuer]:
    made = Issuer()
    with HttpThread("127.0.0.1", 0, made.routes()) as server:
        made.url = server.url
        yield made


def oidc(issuer: Issuer) -> dict[str, str]:
    return {
        "http.listen": "127.0.0.1:0",
        "http.console.oidc.issuer": issuer.url,
        "http.console.oidc.client.id": "console",
    }


@contextmanager
def signed_in(broker: Broker, issuer: Issuer, user: str) -> Iterator[httpx.Client]:
    """The console of a broker, as somebody whom the issuer vouches for."""
    with httpx.Client(base_url=f"{broker.http_url}/console/", timeout=30, headers=CSRF) as http:
        assert http.get("api/session").json()["auth"] == "oidc"
        assert http.get("api/topics").status_code == 401
        sent = http.get("api/session/oidc")
        assert sent.status_code == 302, sent.text
        asked = parse_qs(urlsplit(sent.headers["location"]).query)
        assert asked["redirect_uri"][0].endswith("/console/api/session/oidc/callback")
        issuer.challenge, issuer.nonce = asked["code_challenge"][0], asked["nonce"][0]
        issuer.user = user
        query = {"state": asked["state"][0], "code": "right"}
        back = http.get("api/session/oidc/callback", params=query)
        assert (back.status_code, back.headers["location"]) == (302, "/console/"), back.text
        assert http.get("api/session").json()["user"] == user
        yield http


def test_masked_fields_are_hidden_on_a_brokers_console() -> None:
    given = {"http.listen": "127.0.0.1:0", "http.console.masks": "cust*:card.number, cust*:@key"}
    with Broker(given) as broker:
        broker.create_topic("customers")
        with httpx.Client(base_url=f"{broker.http_url}/console/", headers=CSRF) as http:
            body = {"key": "k", "value": '{"card": {"number": "4111"}, "n": 1}'}
            assert http.post("api/topics/customers/messages", json=body).status_code == 201
            (found,) = http.get("api/topics/customers/messages").json()["messages"]
    assert found["value"]["json"] == {"card": {"number": "***"}, "n": 1}
    assert found["key"]["text"] == "***"


@pytest.mark.parametrize(
    "given",
    [
        {"http.console.masks": "customers"},
        {"http.console.masks": "customers:card,:x"},
        {"http.console.oidc.issuer": "http://127.0.0.1:1"},
    ],
)
def test_a_console_that_could_not_do_as_told_keeps_the_broker_from_starting(
    given: dict[str, str],
) -> None:
    with pytest.raises(InvalidSetting, match=r"http\.console"):
        Broker(given | {"http.listen": "127.0.0.1:0"}).start()


def test_who_signs_in_with_an_issuer_gets_into_the_console_of_an_open_broker(
    issuer: Issuer,
) -> None:
    with Broker(oidc(issuer)) as broker, signed_in(broker, issuer, "ann") as http:
        assert http.post("api/topics", json={"name": "made"}).status_code == 201
        trail = http.get("api/security/audit").json()["records"]
        assert ("ann", "created topic") in [(each["user"], each["action"]) for each in trail]


def test_a_broker_decides_by_the_tokens_of_those_who_sign_in_to_its_console(
    issuer: Issuer,
) -> None:
    tokens = {
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        "sasl.oauthbearer.jwks.endpoint.url": f"{issuer.url}/keys",
        "sasl.oauthbearer.expected.issuer": issuer.url,
        "sasl.oauthbearer.expected.audience": "brokers",
    }
    with Broker(oidc(issuer) | tokens | AUTHORIZER | {"super.users": "User:ann"}) as broker:
        with signed_in(broker, issuer, "ann") as http:
            assert http.post("api/topics", json={"name": "made"}).status_code == 201
            assert [each["name"] for each in http.get("api/topics").json()["topics"]] == ["made"]
        with signed_in(broker, issuer, "ben") as http:
            assert http.get("api/topics").json() == {"topics": []}
            assert http.post("api/topics", json={"name": "more"}).status_code == 403


def test_a_locked_broker_without_a_door_for_tokens_has_no_console_for_them(
    issuer: Issuer,
) -> None:
    with Broker(oidc(issuer) | AUTHORIZER) as broker:
        answer = httpx.get(f"{broker.http_url}/console/api/session")
        assert answer.status_code == 503
        assert "OAUTHBEARER" in answer.text
