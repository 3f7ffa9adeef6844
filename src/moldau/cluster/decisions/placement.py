"""Placement: which brokers hold which partition."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from itertools import chain, zip_longest

from moldau.cluster.state.topics import BrokerInfo

Replicas = tuple[int, ...]


def broker_order(brokers: Iterable[BrokerInfo]) -> list[BrokerInfo]:
    """Return the brokers such that neighbours stand in different racks as far as possible."""
    racks: defaultdict[str, list[BrokerInfo]] = defaultdict(list)
    for broker in sorted(brokers, key=lambda broker: broker.id):
        racks[broker.rack or ""].append(broker)
    rounds = zip_longest(*(racks[name] for name in sorted(racks)))
    return [broker for broker in chain.from_iterable(rounds) if broker is not None]


def place(order: list[BrokerInfo], partitions: int, factor: int, start: int) -> list[Replicas]:
    """Replicas of `partitions` partitions, leaders first; `factor` is at most the brokers.

    Leadership goes round the brokers in `order`, beginning at position `start`. Followers come
    after their leader, one step further with each round, so that the partitions of a broker that
    fails spread over all the others. No rack gets a second replica while another has none.
    """
    if factor == 1:
        alone = [(broker.id,) for broker in order]
        return [alone[(start + index) % len(alone)] for index in range(partitions)]
    return [_replicas(order, factor, start + index) for index in range(partitions)]


def _replicas(order: list[BrokerInfo], factor: int, place: int) -> Replicas:
    brokers = len(order)
    leader = place % brokers
    shift = place // brokers
    others = brokers - 1
    candidates = [order[(leader + 1 + (shift + i) % others) % brokers] for i in range(others)]
    chosen = [order[leader]]
    racks = {order[leader].rack}
    for respect_racks in (True, False):
        for broker in candidates:
            if len(chosen) == factor:
                break
            if broker not in chosen and not (respect_racks and broker.rack in racks):
                chosen.append(broker)
                racks.add(broker.rack)
    return tuple(broker.id for broker in chosen)
