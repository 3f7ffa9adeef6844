"""DescribeClientQuotas and AlterClientQuotas."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from moldau.testing import Broker
from moldau.wire.apis import Api
from moldau.wire.errors import Error
from tests.broker.wire_client import Client

EXACT, DEFAULT, SPECIFIED = 0, 1, 2


@pytest.fixture
def client() -> Iterator[Client]:
    with Broker() as broker, Client(broker) as client:
        yield client


def entity(**names: str | None) -> list[dict[str, Any]]:
    return [
        {"entity_type": kind.replace("_", "-"), "entity_name": name} for kind, name in names.items()
    ]


def entry(named: list[dict[str, Any]], **limits: float | None) -> dict[str, Any]:
    ops = [
        {"key": key, "value": value or 0.0, "remove": value is None}
        for key, value in limits.items()
    ]
    return {"entity": named, "ops": ops}


def alter(client: Client, *entries: dict[str, Any], validate_only: bool = False) -> list[int]:
    answer = client.ask(Api.ALTER_CLIENT_QUOTAS, entries=list(entries), validate_only=validate_only)
    return [int(each.error_code) for each in answer.entries]


def described(
    client: Client, *components: tuple[str, int, str | None], strict: bool = False
) -> Any:
    answer = client.ask(
        Api.DESCRIBE_CLIENT_QUOTAS,
        components=[
            {"entity_type": kind, "match_type": how, "match": name}
            for kind, how, name in components
        ],
        strict=strict,
    )
    if answer.error_code:
        return int(answer.error_code)
    return {
        tuple((each.entity_type, each.entity_name) for each in found.entity): {
            value.key: value.value for value in found.values
        }
        for found in answer.entries
    }


def test_limits_are_set_found_and_removed(client: Client) -> None:
    assert alter(
        client,
        entry(entity(user="alice"), producer_byte_rate=1000.0, consumer_byte_rate=2000.0),
        entry(entity(user="alice", client_id="app"), request_percentage=12.5),
        entry(entity(user=None), controller_mutation_rate=0.5),
        entry(entity(ip="10.0.0.1"), connection_creation_rate=5.0),
    ) == [0, 0, 0, 0]
    alice = (("user", "alice"),)
    both = (("client-id", "app"), ("user", "alice"))
    assert described(client, ("user", EXACT, "alice")) == {
        alice: {"producer_byte_rate": 1000.0, "consumer_byte_rate": 2000.0},
        both: {"request_percentage": 12.5},
    }
    assert described(client, ("user", EXACT, "alice"), strict=True).keys() == {alice}
    assert described(client, ("user", DEFAULT, None)) == {
        (("user", None),): {"controller_mutation_rate": 0.5}
    }
    assert described(client, ("user", SPECIFIED, None)).keys() == {alice, both, (("user", None),)}
    assert described(client, ("ip", SPECIFIED, None)).keys() == {(("ip", "10.0.0.1"),)}
    assert len(described(client)) == 4
    assert alter(client, entry(entity(user="alice"), producer_byte_rate=None)) == [0]
    assert described(client, ("user", EXACT, "alice"), strict=True) == {
        alice: {"consumer_byte_rate": 2000.0}
    }
    assert alter(client, entry(entity(user="alice"), consumer_byte_rate=None)) == [0]
    assert described(client, ("user", EXACT, "alice"), strict=True) == {}


@pytest.mark.parametrize(
    "wrong",
    [
        entry([], producer_byte_rate=1.0),
        entry(entity(user=""), producer_byte_rate=1.0),
        entry(entity(planet="mars"), producer_byte_rate=1.0),
        entry(entity(user="a", ip="10.0.0.1"), connection_creation_rate=1.0),
        entry(entity(ip="not an address"), connection_creation_rate=1.0),
        entry(entity(ip="10.0.0.1"), producer_byte_rate=1.0),
        entry(entity(user="a"), connection_creation_rate=1.0),
        entry(entity(user="a"), producer_byte_rate=0.0),
        entry(entity(user="a"), producer_byte_rate=1.5),
        entry(entity(user="a"), producer_byte_rate=float("nan")),
        entry(entity(user="a") * 2, producer_byte_rate=1.0),
        entry(entity(user="a"), such_a_limit=1.0),
    ],
)
def test_what_makes_no_sense_is_refused(client: Client, wrong: dict[str, Any]) -> None:
    good = entry(entity(user="good"), producer_byte_rate=1.0)
    assert alter(client, wrong, good) == [Error.INVALID_REQUEST, 0]
    assert described(client).keys() == {(("user", "good"),)}


def test_what_is_only_to_be_checked_is_not_kept(client: Client) -> None:
    wanted = entry(entity(user="a"), producer_byte_rate=1.0)
    assert alter(client, wanted, validate_only=True) == [0]
    assert described(client) == {}


@pytest.mark.parametrize(
    ("components", "error"),
    [
        ([("user", EXACT, None)], Error.INVALID_REQUEST),
        ([("user", DEFAULT, "a")], Error.INVALID_REQUEST),
        ([("user", 9, None)], Error.INVALID_REQUEST),
        ([("user", EXACT, "a"), ("user", EXACT, "b")], Error.INVALID_REQUEST),
        ([("ip", EXACT, "10.0.0.1"), ("user", EXACT, "b")], Error.INVALID_REQUEST),
        ([("", EXACT, "a")], Error.INVALID_REQUEST),
        ([("planet", EXACT, "a")], Error.UNSUPPORTED_VERSION),
    ],
)
def test_a_filter_that_makes_no_sense_is_refused(
    client: Client, components: list[tuple[str, int, str | None]], error: Error
) -> None:
    assert described(client, *components) == error
