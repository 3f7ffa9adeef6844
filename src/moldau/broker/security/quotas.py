"""Quotas: how much users, clients and addresses may do, by the limits that the cluster agrees on.

The first of these entities that has a limit counts for a request, as in Kafka:

    user and client id | user, any client id | user
    any user and client id | any user, any client id | any user
    client id | any client id

What is limited by user alone is shared by all clients of the user; a limit of "any user" is each
user's own. Who exceeds a limit is answered at once, told how long to wait, and not read from for so
long (KIP-219).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from time import monotonic
from typing import NamedTuple, TypeVar

import msgspec

from moldau.broker.security.principal import Principal
from moldau.broker.security.rates import Bucket, Rate, Windows
from moldau.broker.settings.access import AccessSettings
from moldau.cluster.state.access import Access, QuotaEntity
from moldau.wire.quotas import (
    CLIENT_ID,
    CONNECTION_CREATION_RATE,
    CONTROLLER_MUTATION_RATE,
    IP,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    USER,
)

# Who is limited together, and by how much.
Owner = tuple[str, str | None, str | None]
# The rates that are remembered; when there are more, the half that was touched last is kept.
_MOST_RATES = 20_000
_MOST_RESOLVED = 20_000
_LONGEST_CLIENT = 255
_USUAL = Windows()

R = TypeVar("R", Rate, Bucket)


class Limit(NamedTuple):
    """A limit, and whose rate it limits."""

    owner: Owner
    value: float


class Meter(msgspec.Struct, frozen=True):
    """The rates of one client that every request counts for; None where it has no limit."""

    term: object
    principal: Principal
    client: str
    writes: Rate | None
    time: Rate | None


class Quotas:
    """The limits of a cluster, and what this broker has seen of each entity. Event loop only."""

    def __init__(
        self,
        access: Access,
        clock: Callable[[], float] = monotonic,
        windows: Windows = _USUAL,
        controller_windows: Windows = _USUAL,
    ) -> None:
        self._limits = access.quotas
        self._windows = windows
        self._controller_windows = controller_windows
        self._clock = clock
        self._rates: dict[Owner, Rate] = {}
        self._buckets: dict[Owner, Bucket] = {}
        self._resolved: dict[tuple[str, str, str], Limit | None] = {}
        # Meters of another term than this know old limits, or rates that are forgotten.
        self.term = object()
        # The names of limits that anybody has.
        self.names: frozenset[str] = frozenset()
        self.limits_changed()

    @classmethod
    def of(cls, access: Access, settings: AccessSettings) -> Quotas:
        """Return those of a broker with these settings."""
        return cls(
            access,
            windows=Windows(settings.quota_window_num, settings.quota_window_size_seconds),
            controller_windows=Windows(
                settings.controller_quota_window_num, settings.controller_quota_window_size_seconds
            ),
        )

    def limits_changed(self) -> None:
        """Take the limits in anew."""
        self._resolved.clear()
        self.term = object()
        self.names = frozenset(name for limits in self._limits.values() for name in limits)

    def spend(self, name: str, user: str, client: str, amount: float) -> float:
        """Count what somebody did, and return how many seconds they have to wait for that."""
        rate = self.rate_of(name, user, client)
        return 0.0 if rate is None else self._bounded(name, rate.spend(amount, self._clock()))

    def wait_s(self, name: str, user: str, client: str) -> float:
        """Return how many seconds somebody has to wait for what they did before."""
        rate = self.rate_of(name, user, client)
        return 0.0 if rate is None else self._bounded(name, rate.wait_s(self._clock()))

    def meter(self, principal: Principal, client: str) -> Meter:
        """Return the rates of a client, to be charged without looking for them each time."""
        user = principal.name
        return Meter(
            self.term,
            principal,
            client,
            self.rate_of(PRODUCER_BYTE_RATE, user, client),
            self.rate_of(REQUEST_PERCENTAGE, user, client),
        )

    def rate_of(self, name: str, user: str, client: str) -> Rate | None:
        """Return the rate that a limit of somebody is about, if they have one."""
        limit = self._limit(name, user, client)
        return None if limit is None else self._rate(limit)

    def take(self, user: str, client: str, mutations: int) -> None:
        """Count changes to the cluster."""
        limit = self._limit(CONTROLLER_MUTATION_RATE, user, client)
        if limit is None:
            return
        now = self._clock()
        bucket = self._buckets.get(limit.owner)
        if bucket is None:
            if len(self._buckets) >= _MOST_RATES:
                self._buckets = _newest(self._buckets)
            bucket = self._buckets[limit.owner] = Bucket(self._controller_windows, limit.value, now)
        bucket.take(mutations, limit.value, now)

    def owes_s(self, user: str, client: str) -> float:
        """Return how long somebody has to wait before they may change the cluster again."""
        limit = self._limit(CONTROLLER_MUTATION_RATE, user, client)
        bucket = None if limit is None else self._buckets.get(limit.owner)
        if limit is None or bucket is None:
            return 0.0
        return bucket.wait_s(limit.value, self._clock())

    def connect(self, address: str) -> float:
        """Count a connection; return for how long there are too many from its address."""
        if CONNECTION_CREATION_RATE not in self.names:
            return 0.0
        for entity in (((IP, address),), ((IP, None),)):
            value = self._limits.get(entity, {}).get(CONNECTION_CREATION_RATE)
            if value is not None:
                now = self._clock()
                rate = self._rate(Limit((IP, address, None), value))
                wait = min(rate.spend(1.0, now), self._windows.seconds)
                if wait:
                    # One that is refused does not count.
                    rate.spend(-1.0, now)
                return wait
        return 0.0

    @property
    def window_s(self) -> float:
        return self._windows.seconds

    def _bounded(self, name: str, wait_s: float) -> float:
        # As in Kafka, so that a request that took long once does not bar its sender for minutes.
        return min(wait_s, self._windows.seconds) if name == REQUEST_PERCENTAGE else wait_s

    def _rate(self, limit: Limit) -> Rate:
        rate = self._rates.get(limit.owner)
        if rate is None:
            if len(self._rates) >= _MOST_RATES:
                self._rates = _newest(self._rates)
                self.term = object()
            rate = self._rates[limit.owner] = Rate(self._windows)
        rate.limit_to(limit.value, self._clock())
        return rate

    def _limit(self, name: str, user: str, client: str) -> Limit | None:
        if name not in self.names:
            return None
        if len(client) > _LONGEST_CLIENT:
            return self._resolve(name, user, client)
        question = (name, user, client)
        try:
            return self._resolved[question]
        except KeyError:
            if len(self._resolved) >= _MOST_RESOLVED:
                self._resolved.clear()
            found = self._resolved[question] = self._resolve(name, user, client)
            return found

    def _resolve(self, name: str, user: str, client: str) -> Limit | None:
        for who in (user, None):
            for which in (client, None):
                value = self._value(((CLIENT_ID, which), (USER, who)), name)
                if value is not None:
                    return Limit((name, user, _key(client)), value)
            value = self._value(((USER, who),), name)
            if value is not None:
                return Limit((name, user, None), value)
        for which in (client, None):
            value = self._value(((CLIENT_ID, which),), name)
            if value is not None:
                return Limit((name, None, _key(client)), value)
        return None

    def _value(self, entity: QuotaEntity, name: str) -> float | None:
        return self._limits.get(entity, {}).get(name)


def _key(client: str) -> str:
    """Return what a client's name is remembered by: itself, or a digest of a long one."""
    if len(client) <= _LONGEST_CLIENT:
        return client
    return hashlib.blake2b(client.encode("utf-8", "replace"), digest_size=32).hexdigest()


def _newest(found: dict[Owner, R]) -> dict[Owner, R]:
    """Return the half that was touched last: names are free, and must not cost memory for good."""
    ordered = sorted(found.items(), key=lambda each: each[1].touched_at)
    return dict(ordered[len(ordered) // 2 :])
