"""Transactions that hold readers back: those that nobody will end, and those open for long."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from moldau.console.sampling.state import ClusterState, offsets_at
from moldau.peer.cluster import LATEST, Cluster
from moldau.peer.hanging import Held, Late, find_hanging, find_late
from moldau.peer.transactions import OpenTransaction, Transactions
from moldau.topic_partition import TopicPartition


@dataclass(frozen=True, slots=True)
class HeldBack:
    """Transactions that `hang`, known to no coordinator, and `late` ones, which somebody may end.

    `held` has the partitions in which a transaction is open. If `unseen` says why, there may be
    some that we may not see.
    """

    hanging: tuple[OpenTransaction, ...] = ()
    late: tuple[Late, ...] = ()
    held: Mapping[TopicPartition, Held] | None = None
    unseen: str = ""

    def behind(self, place: TopicPartition) -> int:
        """Return how many messages are not shown to those who read committed ones."""
        found = (self.held or {}).get(place)
        return 0 if found is None else found.behind


def read_held_back(
    cluster: Cluster, state: ClusterState, bounds: Mapping[TopicPartition, tuple[int, int]]
) -> HeldBack:
    """Look for them where a last stable offset is behind the end that was read before.

    PeerError if a broker does not answer, or if we may not see every transactional id.
    """
    stable = offsets_at(cluster, state, dict.fromkeys(bounds, LATEST), read_committed=True)
    held = {
        place: Held(place, at, bounds[place][1] - at)
        for place, at in stable.items()
        if at < bounds[place][1]
    }
    if not held:
        return HeldBack()
    transactions = Transactions(cluster)
    opened = transactions.open_in(held)
    hanging = find_hanging(transactions, held)
    holders = {each.producer_id for each in opened if each not in hanging}
    described = transactions.of_producers(holders) if holders else []
    return HeldBack(tuple(hanging), tuple(find_late(described, opened, held)), held)
