"""Origins: what a broker says about an address counts at brokers that share its secret, for a
while."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.broker.security.origins import Origins
from moldau.testing.waiting import until
from moldau.wire.apis import ORIGIN, Api
from tests.broker.principals import guarded
from tests.broker.wire_client import Client, inside

SECRET = b"of the cluster"


class Clock:
    now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest.mark.parametrize("address", ["10.1.2.3", "fe80::1%eth0", ""])
def test_an_address_comes_back_for_as_long_as_it_counts(address: str) -> None:
    clock = Clock()
    one, other = (Origins(lambda: SECRET, clock) for _ in range(2))
    token = one.vouch(address)
    assert other.address_in(token) == one.address_in(token) == address
    clock.now += 3601
    assert other.address_in(token) is None


def test_without_a_secret_of_the_cluster_a_broker_believes_only_itself() -> None:
    one, other = Origins(bytes), Origins(bytes)
    assert one.address_in(one.vouch("10.1.2.3")) == "10.1.2.3"
    assert other.address_in(one.vouch("10.1.2.3")) is None
    # A cluster gets its secret one day; what was said before that still counts.
    secrets = [b""]
    growing = Origins(lambda: secrets[0])
    token = growing.vouch("10.1.2.3")
    secrets[0] = SECRET
    assert growing.address_in(token) == "10.1.2.3"
    assert Origins(lambda: SECRET).address_in(growing.vouch("10.1.2.4")) == "10.1.2.4"


@given(st.text(max_size=80) | st.text("0123456789abcdef.", max_size=100))
def test_nobody_else_can_make_one(text: str) -> None:
    origins = Origins(lambda: SECRET)
    assert origins.address_in(text) is None
    address, until, signature = origins.vouch("10.1.2.3").split(".")
    other = b"10.1.2.4".hex()
    for forged in (
        f"{other}.{until}.{signature}",
        f"{address}.{until}0.{signature}",
        f"{address}.{until}.{signature[:-1]}",
        f"{address}.{until}.{text}",
    ):
        assert origins.address_in(forged) is None


def test_a_connection_is_counted_where_it_comes_from_and_judged_by_its_origin() -> None:
    with guarded(max_connections_per_ip=1) as broker:

        def hosts() -> list[str]:
            return inside(broker, lambda s: [each.context.client_host for each in s.connections])

        token = inside(broker, lambda server: server.origins.vouch("10.9.9.9"))
        for given, expected in ((token, "10.9.9.9"), (f"{token}0", "127.0.0.1")):
            with Client(broker) as client:
                named = {"client_software_name": ORIGIN, "client_software_version": given}
                assert client.ask(Api.API_VERSIONS, 3, **named).error_code == 0
                assert hosts() == [expected]
                with Client(broker) as second:
                    assert second.is_closed()
            until(lambda: not hosts(), "its end")
