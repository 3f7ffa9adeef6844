"""Mutations of what the cluster agrees on: compare-and-set, registrations, elections."""

from __future__ import annotations

from tests.simulation.mutations.mutation import Mutation

_COMMITS = "moldau.cluster.zookeeper.commits"
_ELECTIONS = "moldau.cluster.decisions.elections"

CLUSTER = (
    Mutation(
        "a topic is written whatever version it has (no compare-and-set)",
        _COMMITS,
        "return write.operations(self._paths, self._tree.versions.get(write.name, -1))",
        "return write.operations(self._paths, -1)",
        "stale",
        15,
    ),
    Mutation(
        "anybody alive is elected",
        _ELECTIONS,
        "    if leader == NO_LEADER and unclean():",
        "    if leader == NO_LEADER:",
        "lives",
    ),
    Mutation(
        "the preferred replica leads again before it is in sync",
        _ELECTIONS,
        "if partition.leader == first or first not in live or first not in partition.isr:",
        "if partition.leader == first or first not in live:",
        "leaders",
        13,
    ),
    Mutation(
        "the first living replica is elected, in sync or not",
        _ELECTIONS,
        "    leader = _first_staying(partition.replicas, isr, stopping)\n",
        "    leader = first_of(partition.replicas, live)\n",
        "leaders",
    ),
    Mutation(
        "a new leader has the old one's epoch",
        _ELECTIONS,
        "leader_epoch=partition.leader_epoch + (leader != partition.leader),",
        "leader_epoch=partition.leader_epoch,",
        "leaders",
    ),
    Mutation(
        "a broker that comes back stays in sync and leads on",
        "moldau.broker.membership.membership",
        "                if changes:\n                    await self.store.commit",
        "                if False:\n                    await self.store.commit",
        "lives",
        8,
    ),
    Mutation(
        "two brokers get the same producer ids",
        "moldau.cluster.zookeeper.producer_ids",
        "await session.multi([SetData(path, written, stat.version)])",
        "await session.multi([SetData(path, b'%d' % first, -1)])",
        "producers",
    ),
)
