"""Rules about addresses: what a console or another broker asks for somebody is judged by theirs."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from moldau.broker.settings.access import STANDARD_AUTHORIZER
from moldau.testing import Broker, Ensemble
from moldau.testing.waiting import until
from moldau.wire.acls import CLUSTER_NAME, Operation, Resource
from moldau.wire.apis import Api
from tests.broker.api.access.test_user_scram_credentials import upsertion
from tests.broker.principals import Person
from tests.broker.wire_client import inside
from tests.console.consoles import CSRF

MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule required"
USERS = f'{MODULE} username="root" password="r" user_root="r" user_alice="a";'
GUARDED = {"authorizer.class.name": STANDARD_AUTHORIZER, "super.users": "User:root;User:admin"}
LOCKED = GUARDED | {
    "listeners": "PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0",
    "inter.broker.listener.name": "PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN",
    "listener.name.sasl_plaintext.plain.sasl.jaas.config": USERS,
    "http.listen": "127.0.0.1:0",
    "http.security.protocol": "SASL_PLAINTEXT",
    "listener.name.http.plain.sasl.jaas.config": USERS,
    "connection.failed.authentication.delay.ms": "0",
}
NEAR, FAR = "127.0.0.2", "127.0.0.3"
SCHEMA = {"schema": '{"type":"string"}'}


def browser(broker: Broker, address: str) -> httpx.Client:
    """Somebody at this address of this machine."""
    transport = httpx.HTTPTransport(local_address=address)
    return httpx.Client(base_url=f"{broker.http_url}/", transport=transport, timeout=60)


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    """Alice may read a topic, from one address alone."""
    with Broker(LOCKED) as broker:
        broker.create_topic("near")
        with Person(broker, "admin") as admin:
            admin.grant("alice", Operation.READ, Resource.TOPIC, "near", host=NEAR)
        answer = httpx.post(
            f"{broker.http_url}/subjects/near-value/versions", json=SCHEMA, auth=("root", "r")
        )
        assert answer.status_code == 200, answer.text
        yield broker


def sign_in(http: httpx.Client, password: str = "a") -> int:
    body = {"user": "alice", "password": password}
    return http.post("console/api/session", json=body, headers=CSRF).status_code


def seen(http: httpx.Client) -> tuple[list[str], list[str]]:
    """The topics and subjects that the console shows."""
    topics, schemas = http.get("console/api/topics").json(), http.get("console/api/schemas").json()
    return (
        [each["name"] for each in topics["topics"]],
        [each["subject"] for each in schemas["schemas"]],
    )


def test_a_console_shows_what_may_be_seen_from_where_the_browser_is(broker: Broker) -> None:
    with browser(broker, NEAR) as near, browser(broker, FAR) as far:
        assert sign_in(near) == sign_in(far) == 200
        assert seen(near) == (["near"], ["near-value"])
        assert seen(far) == ([], [])
        # A session that goes elsewhere has what may be seen there.
        far.cookies = near.cookies
        assert seen(far) == ([], [])
        assert seen(near) == (["near"], ["near-value"])


def test_a_wrong_password_in_the_console_is_the_browsers(
    broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "moldau.audit")
    with browser(broker, FAR) as far:
        assert sign_in(far, "a guess") == 401
    line = f"denied: login from {FAR} at SASL_PLAINTEXT by PLAIN as 'alice'"
    until(lambda: any(each.startswith(line) for each in caplog.messages), line)


def test_a_token_that_nobody_vouches_for_changes_nothing(broker: Broker) -> None:
    right = inside(broker, lambda server: server.origins.vouch(NEAR))
    for token, status in ((right, ["near-value"]), (f"{right}0", []), ("", [])):
        headers = {"x-moldau-origin": token}
        answer = httpx.get(f"{broker.http_url}/subjects", auth=("alice", "a"), headers=headers)
        assert answer.json() == status


def test_a_write_that_is_passed_on_to_the_leader_is_judged_by_where_it_came_from(
    ensemble: Ensemble,
) -> None:
    """At any broker of a cluster, and nobody else is believed about that."""
    settings: dict[str, Any] = GUARDED | {
        "zookeeper.connect": f"{ensemble.hosts}/origins-{uuid.uuid4().hex[:8]}",
        "http.listen": "127.0.0.1:0",
    }
    made = [Broker(settings | {"node.id": str(number)}) for number in range(2)]
    try:
        for broker in made:
            broker.start()
        until(lambda: all(inside(b, lambda s: len(s.state.brokers)) == 2 for b in made))
        with Person(made[0], "admin") as admin:
            who, cluster = "ANONYMOUS", (Resource.CLUSTER, CLUSTER_NAME)
            admin.grant(who, Operation.CLUSTER_ACTION, *cluster, host="127.0.0.1")
            admin.grant(who, Operation.WRITE, Resource.TOPIC, "near", host=NEAR)
        until(lambda: all(inside(b, lambda s: len(s.state.access.acls)) == 2 for b in made))
        # The secret by which they know each other's word.
        give_secret(made)
        for broker in made:
            for address, expected in ((NEAR, 200), (FAR, 403)):
                with browser(broker, address) as http:
                    answer = until(lambda: registered(http))
                    assert answer.status_code == expected, (address, answer.text)
    finally:
        for broker in made:
            broker.stop()


def registered(http: httpx.Client) -> httpx.Response | None:
    """The answer to a registration, once there is a registry."""
    answer = http.post("subjects/near-value/versions", json=SCHEMA)
    return answer if answer.status_code < 500 else None


def give_secret(brokers: list[Broker]) -> None:
    with Person(brokers[0], "admin") as admin:
        admin.ask(Api.ALTER_USER_SCRAM_CREDENTIALS, upsertions=[upsertion("erin")])
    until(lambda: all(inside(b, lambda s: len(s.state.access.secret)) == 32 for b in brokers))
