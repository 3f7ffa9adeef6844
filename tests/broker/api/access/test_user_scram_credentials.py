"""DescribeUserScramCredentials and AlterUserScramCredentials: passwords that nobody can read."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any

import pytest
from scramp import ScramMechanism

from moldau.testing import Broker
from moldau.wire.apis import Api
from moldau.wire.errors import Error
from tests.broker.wire_client import Client, inside

PASSWORD = "correct horse battery staple"
SALT = b"0123456789abcdef"


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


@pytest.fixture
def client(broker: Broker) -> Iterator[Client]:
    with Client(broker) as client:
        yield client


def upsertion(name: str, mechanism: int = 1, iterations: int = 4096) -> dict[str, Any]:
    function = "sha256" if mechanism == 1 else "sha512"
    salted = hashlib.pbkdf2_hmac(function, PASSWORD.encode(), SALT, max(iterations, 1))
    return {
        "name": name,
        "mechanism": mechanism,
        "iterations": iterations,
        "salt": SALT,
        "salted_password": salted,
    }


def alter(client: Client, **values: Any) -> dict[str, int]:
    given = {"deletions": [], "upsertions": []} | values
    answer = client.ask(Api.ALTER_USER_SCRAM_CREDENTIALS, **given)
    return {each.user: int(each.error_code) for each in answer.results}


def described(client: Client, *users: str) -> dict[str, Any]:
    wanted = [{"name": user} for user in users] or None
    answer = client.ask(Api.DESCRIBE_USER_SCRAM_CREDENTIALS, users=wanted)
    return {
        each.user: int(each.error_code)
        or [(info.mechanism, info.iterations) for info in each.credential_infos]
        for each in answer.results
    }


@pytest.mark.parametrize("mechanism", [1, 2])
def test_what_is_kept_checks_the_password_and_is_not_it(
    broker: Broker, client: Client, mechanism: int
) -> None:
    assert alter(client, upsertions=[upsertion("alice", mechanism)]) == {"alice": 0}
    name = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}[mechanism]
    credential = inside(broker, lambda server: server.credentials.scram("alice", name))
    assert credential is not None
    _, stored, server, iterations = ScramMechanism(name).make_auth_info(
        PASSWORD, iteration_count=4096, salt=SALT
    )
    kept = (credential.salt, credential.stored_key, credential.server_key, credential.iterations)
    assert kept == (SALT, stored, server, iterations)
    assert inside(broker, lambda server: server.credentials.scram("bob", name)) is None
    salted = upsertion("alice", mechanism)["salted_password"]
    for file in broker.data_dir.rglob("*"):
        if file.is_file():
            assert PASSWORD.encode() not in file.read_bytes()
            assert salted not in file.read_bytes()


def test_users_are_described_and_deleted_and_outlive_the_broker(
    broker: Broker, client: Client
) -> None:
    assert alter(client, upsertions=[upsertion("alice"), upsertion("bob", 2, 8192)]) == {
        "alice": 0,
        "bob": 0,
    }
    assert alter(client, upsertions=[upsertion("alice", 2)]) == {"alice": 0}
    everybody = {"alice": [(1, 4096), (2, 4096)], "bob": [(2, 8192)]}
    assert described(client) == everybody
    assert described(client, "bob", "carol") == {
        "bob": [(2, 8192)],
        "carol": Error.RESOURCE_NOT_FOUND,
    }
    assert described(client, "bob", "bob") == {"bob": Error.DUPLICATE_RESOURCE}
    broker.stop()
    broker.start()
    with Client(broker) as again:
        assert described(again) == everybody
        assert alter(again, deletions=[{"name": "alice", "mechanism": 1}]) == {"alice": 0}
        assert described(again)["alice"] == [(2, 4096)]


def test_with_the_first_password_the_cluster_gets_a_secret_for_the_salts_of_nobody(
    broker: Broker, client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    """Anybody may know the cluster's id, and with it alone could tell who exists."""

    def salts(server: Any) -> bytes:
        return bytes(server.salts())

    before = inside(broker, salts)
    assert before == inside(broker, lambda server: server.state.cluster_id.encode())
    assert alter(client, deletions=[{"name": "alice", "mechanism": 1}]) != {"alice": 0}
    assert inside(broker, salts) == before
    assert alter(client, upsertions=[upsertion("alice")]) == {"alice": 0}
    after = inside(broker, salts)
    assert len(after) == len(before) + 32
    assert alter(client, upsertions=[upsertion("bob")]) == {"bob": 0}
    assert inside(broker, salts) == after
    # It is nobody's password, and shown to nobody.
    assert "user ''" not in caplog.text
    assert described(client) == {"alice": [(1, 4096)], "bob": [(1, 4096)]}
    assert described(client, "") == {"": Error.RESOURCE_NOT_FOUND}
    assert inside(broker, lambda server: server.credentials.scram("", "SCRAM-SHA-512")) is None
    broker.stop()
    broker.start()
    assert inside(broker, salts) == after


def test_what_cannot_be_kept_is_refused(client: Client) -> None:
    few, many = upsertion("few", iterations=4095), upsertion("many", iterations=16385)
    assert alter(client, upsertions=[few, many, upsertion("", 1)]) == {
        "few": Error.UNACCEPTABLE_CREDENTIAL,
        "many": Error.UNACCEPTABLE_CREDENTIAL,
        "": Error.UNACCEPTABLE_CREDENTIAL,
    }
    unknown = {**upsertion("odd"), "mechanism": 3}
    assert alter(client, upsertions=[unknown]) == {"odd": Error.UNSUPPORTED_SASL_MECHANISM}
    nobody = [{"name": "nobody", "mechanism": 1}]
    assert alter(client, deletions=nobody) == {"nobody": Error.RESOURCE_NOT_FOUND}
    twice = [upsertion("twice", 1), upsertion("twice", 2)]
    assert alter(client, upsertions=twice) == {"twice": Error.DUPLICATE_RESOURCE}
    assert described(client) == {}
