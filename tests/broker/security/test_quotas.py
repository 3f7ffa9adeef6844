"""Quotas on values: whose limit counts, and how long to wait for what was done."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.broker.security.principal import ANONYMOUS
from moldau.broker.security.quotas import Quotas
from moldau.broker.security.rates import Rate, Windows
from moldau.cluster.state.access import Access, QuotasChanged

RATE = "producer_byte_rate"
# From the one that counts first to the last.
LEVELS = [
    (("client-id", "app"), ("user", "alice")),
    (("client-id", None), ("user", "alice")),
    (("user", "alice"),),
    (("client-id", "app"), ("user", None)),
    (("client-id", None), ("user", None)),
    (("user", None),),
    (("client-id", "app"),),
    (("client-id", None),),
]


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def quotas(*changes: QuotasChanged, clock: Clock | None = None) -> Quotas:
    access = Access()
    for change in changes:
        access.apply(change)
    return Quotas(access, clock or Clock())


@pytest.mark.parametrize("first", range(len(LEVELS)))
def test_the_nearest_limit_counts(first: int) -> None:
    found = quotas(
        *(
            QuotasChanged(entity, {RATE: 10.0 if place == first else 1e9})
            for place, entity in enumerate(LEVELS)
            if place >= first
        )
    )
    assert found.spend(RATE, "alice", "app", 1000) > 0


def test_nobody_waits_without_a_limit() -> None:
    assert quotas().spend(RATE, "alice", "app", 1e12) == 0
    others = quotas(QuotasChanged((("user", "bob"),), {RATE: 1.0}))
    assert others.spend(RATE, "alice", "app", 1e12) == 0
    assert others.spend("consumer_byte_rate", "bob", "app", 1e12) == 0


def test_clients_of_a_user_share_its_limit_and_users_do_not_share_a_default() -> None:
    shared = quotas(QuotasChanged((("user", "alice"),), {RATE: 10.0}))
    assert shared.spend(RATE, "alice", "one", 100) == 0
    assert shared.spend(RATE, "alice", "two", 100) > 0
    default = quotas(QuotasChanged((("user", None),), {RATE: 10.0}))
    assert default.spend(RATE, "alice", "one", 100) == 0
    assert default.spend(RATE, "bob", "one", 100) == 0
    assert default.spend(RATE, "bob", "two", 100) > 0


def test_the_wait_is_as_long_as_it_takes_to_fall_to_the_limit() -> None:
    clock = Clock()
    limited = quotas(QuotasChanged((("user", None),), {RATE: 100.0}), clock=clock)
    # Ten windows' worth is free; twice that takes ten seconds more.
    assert limited.spend(RATE, "alice", "", 1000) == 0
    wait_s = limited.spend(RATE, "alice", "", 1000)
    assert wait_s == pytest.approx(10.0)
    clock.now += 11.0
    assert limited.wait_s(RATE, "alice", "") == 0


def test_a_limit_that_changes_counts_at_once() -> None:
    access = Access()
    found = Quotas(access, Clock())
    assert found.spend(RATE, "alice", "", 1e9) == 0
    access.apply(QuotasChanged((("user", "alice"),), {RATE: 10.0}))
    found.limits_changed()
    assert found.spend(RATE, "alice", "", 1e9) > 0
    access.apply(QuotasChanged((("user", "alice"),)))
    found.limits_changed()
    assert found.spend(RATE, "alice", "", 1e9) == 0


def test_time_is_waited_for_at_most_one_window() -> None:
    limited = quotas(QuotasChanged((("user", None),), {"request_percentage": 1.0}))
    assert limited.spend("request_percentage", "alice", "", 1e6) == 1.0


def test_changes_to_the_cluster_are_saved_up_and_may_be_owed() -> None:
    clock = Clock()
    name = "controller_mutation_rate"
    limited = quotas(QuotasChanged((("user", "alice"),), {name: 2.0}), clock=clock)
    limited.take("alice", "", 22)
    assert limited.owes_s("alice", "") == 0
    limited.take("alice", "", 10)
    assert limited.owes_s("alice", "") == 5.0
    clock.now += 5.0
    assert limited.owes_s("alice", "") == 0
    assert limited.owes_s("bob", "") == 0


def test_connections_are_counted_by_their_address() -> None:
    clock = Clock()
    name = "connection_creation_rate"
    limited = quotas(
        QuotasChanged((("ip", "10.0.0.1"),), {name: 2.0}),
        QuotasChanged((("ip", None),), {name: 1.0}),
        clock=clock,
    )
    assert sum(limited.connect("10.0.0.1") == 0 for _ in range(100)) == 20
    assert sum(limited.connect("10.0.0.2") == 0 for _ in range(100)) == 10
    assert sum(limited.connect("10.0.0.3") == 0 for _ in range(100)) == 10
    clock.now += 20.0
    assert limited.connect("10.0.0.1") == 0


def test_rates_are_measured_over_the_windows_that_are_set() -> None:
    access = Access()
    limits = {RATE: 100.0, "controller_mutation_rate": 2.0, "request_percentage": 1.0}
    access.apply(QuotasChanged((("user", None),), limits))
    access.apply(QuotasChanged((("ip", None),), {"connection_creation_rate": 1.0}))
    clock = Clock()
    limited = Quotas(access, clock, Windows(3, 5.0), Windows(2, 10.0))
    # Two whole windows count, and what is saved up are all of them.
    assert limited.spend(RATE, "alice", "", 1000) == 0
    assert limited.spend(RATE, "alice", "", 1000) == pytest.approx(10.0)
    assert limited.spend("request_percentage", "alice", "", 1e6) == 5.0
    limited.take("alice", "", 40)
    assert limited.owes_s("alice", "") == 0
    limited.take("alice", "", 2)
    assert limited.owes_s("alice", "") == 1.0
    assert sum(limited.connect("10.0.0.1") == 0 for _ in range(100)) == 10
    clock.now += 14.9
    assert limited.wait_s(RATE, "alice", "") > 0
    clock.now += 0.1
    assert limited.wait_s(RATE, "alice", "") == 0
    single = Quotas(access, clock, Windows(1, 1.0))
    assert single.spend(RATE, "alice", "", 100) == 0
    assert single.spend(RATE, "alice", "", 100) > 0


def test_any_number_of_client_ids_costs_little_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("moldau.broker.security.quotas._MOST_RATES", 100)
    clock = Clock()
    limits = {RATE: 10.0, "controller_mutation_rate": 1.0}
    limited = quotas(QuotasChanged((("client-id", None),), limits), clock=clock)
    for number in range(1000):
        clock.now += 0.001
        limited.spend(RATE, "alice", f"client-{number}", 1)
        limited.take("alice", f"client-{number}", 1)
    assert len(limited._rates) <= 100
    assert len(limited._buckets) <= 100
    assert limited._rates.keys() >= {(RATE, None, "client-999")}


class PlainRate:
    """A rate that looks at all it has seen, each time."""

    def __init__(self, windows: Windows) -> None:
        self.windows = windows
        self.samples: list[list[float]] = []

    def spend(self, amount: float, limit: float, now: float) -> float:
        count, seconds = self.windows
        self.samples = [each for each in self.samples if now - each[0] < count * seconds]
        if not self.samples or now - self.samples[-1][0] >= seconds:
            self.samples.append([now, 0.0])
        self.samples[-1][1] += amount
        elapsed = max(now - self.samples[0][0], max(count - 1, 1) * seconds)
        rate = sum(each[1] for each in self.samples) / elapsed
        return max(0.0, (rate - limit) / limit * elapsed)


steps = st.tuples(
    st.sampled_from([0.0, 0.25, 1.0, 3.0, 11.0]),
    st.integers(0, 60),
    # Mostly the same limit, sometimes another.
    st.sampled_from([4.0, 4.0, 4.0, 4.0, 16.0, 1.0]),
)


@given(st.lists(steps, max_size=40), st.sampled_from([Windows(), Windows(1, 2.0), Windows(3, 5.0)]))
def test_a_rate_with_an_allowance_waits_as_one_that_counts_all(
    history: list[tuple[float, int, float]], windows: Windows
) -> None:
    clock, plain = Clock(), PlainRate(windows)
    rate = Rate(windows)
    # A window begins when a limit is known.
    rate.limit_to(history[0][2] if history else 1.0, clock.now)
    plain.spend(0, 1.0, clock.now)
    for passed, amount, limit in history:
        clock.now += passed
        rate.limit_to(limit, clock.now)
        expected = plain.spend(amount, limit, clock.now)
        assert rate.spend(amount, clock.now) == pytest.approx(expected, abs=1e-9)
        assert rate.wait_s(clock.now) == pytest.approx(expected, abs=1e-9)


def test_a_meter_knows_when_it_is_of_an_earlier_term() -> None:
    access = Access()
    access.apply(QuotasChanged((("user", None),), {RATE: 10.0}))
    found = Quotas(access, Clock())
    meter = found.meter(ANONYMOUS, "app")
    assert meter.writes is not None
    assert meter.time is None
    assert meter.term is found.term
    access.apply(QuotasChanged((("user", None),), {RATE: 1e9}))
    found.limits_changed()
    assert meter.term is not found.term
    assert found.meter(ANONYMOUS, "app").writes is meter.writes


def test_clients_with_long_names_are_limited_apart_and_cost_little_memory() -> None:
    found = quotas(QuotasChanged((("client-id", None),), {RATE: 10.0}))
    one, other = "c" * 30_000 + "1", "c" * 30_000 + "2"
    assert found.spend(RATE, "alice", one, 1000.0) > 0
    assert found.wait_s(RATE, "bob", one) > 0
    assert found.wait_s(RATE, "alice", other) == 0
    kept = [*found._rates, *found._resolved]
    assert all(len(text or "") < 256 for owner in kept for text in owner)
