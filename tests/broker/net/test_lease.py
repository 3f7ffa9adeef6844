"""A lease that ends while a request is being answered; with real pauses in tests/scenarios."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

import pytest

from moldau.broker.net import connection
from moldau.broker.server import Broker as Server
from moldau.cluster.lease import Lease
from moldau.testing import Broker
from moldau.wire.apis import Api
from moldau.wire.errors import Error
from tests.broker.wire_client import Client, inside, make_batch, until_parked


class Clock:
    """A clock that jumps when it has been looked at so many times."""

    def __init__(self) -> None:
        self.looks_before_jump = 1 << 62

    def __call__(self) -> float:
        self.looks_before_jump -= 1
        return 0.0 if self.looks_before_jump >= 0 else 60.0


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(connection, "now", clock)
    return clock


@pytest.fixture
def client(clock: Clock, moldau_broker: Broker) -> Iterator[Client]:
    """A client of a broker that has a lease, as one in a cluster."""

    def give(server: Server) -> None:
        lease = Lease(6.0, 0.0, lambda: server.membership._fence(True))
        for each in server.connections:
            each._lease = lease

    with Client(moldau_broker) as client:
        client.create("leased")
        inside(moldau_broker, give)
        yield client
    inside(moldau_broker, lambda server: server.membership._fence(False))


def test_requests_after_the_end_of_a_lease_meet_nobody_who_leads(
    client: Client, clock: Clock
) -> None:
    clock.looks_before_jump = 0
    assert client.produce("leased", make_batch(b"x"), acks=1).error_code == (
        Error.NOT_LEADER_OR_FOLLOWER
    )
    assert client.fetch("leased", 0).error_code == Error.NOT_LEADER_OR_FOLLOWER


@pytest.mark.parametrize("acks", [1, -1])
def test_a_write_during_which_the_lease_ends_is_not_acknowledged(
    client: Client, clock: Clock, acks: int
) -> None:
    clock.looks_before_jump = 1
    client.send_produce("leased", make_batch(b"x"), acks=acks)
    assert client.is_closed()


def test_an_answer_at_once_during_which_the_lease_ends_is_not_sent(
    client: Client, clock: Clock
) -> None:
    clock.looks_before_jump = 1
    client.send(Api.API_VERSIONS, 0)
    with suppress(ConnectionResetError):
        assert client.socket.recv(1) == b""


def test_a_fetch_that_waited_past_the_end_of_a_lease_is_not_answered_as_by_a_leader(
    moldau_broker: Broker, client: Client, clock: Clock
) -> None:
    client.send_fetch({"leased": [0]}, max_wait=300)
    until_parked(inside(moldau_broker, lambda server: server.partitions["leased", 0]))
    clock.looks_before_jump = 0
    assert client.is_closed()
