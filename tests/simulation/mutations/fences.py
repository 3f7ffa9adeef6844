"""Mutations of fences of coordinators, with those that stand behind them."""

from __future__ import annotations

from tests.simulation.mutations.mutation import Mutation

_MACHINE = "moldau.broker.coordination.transactions.machine"
_JOURNAL = "moldau.broker.coordination.journal"
_SHARDS = "moldau.broker.coordination.shards"

FENCES = (
    Mutation(
        "a transaction is ended while another end is under way",
        _MACHINE,
        "    if (is_pending or found.state in DECIDED) and (refusal is None or",
        "    if False and (refusal is None or",
        "late transactions",
        21,
    ),
    Mutation(
        "a coordinator that leads again goes on with what it knew",
        _JOURNAL,
        "        return partition.is_leader and partition.leader_epoch == self.leader_epoch\n",
        "        return partition.is_leader\n",
        "transactions",
        2,
        also=(
            (
                _SHARDS,
                "elif shard is None or shard.journal.leader_epoch != partition.leader_epoch:",
                "elif shard is None:",
            ),
            (
                _SHARDS,
                "            self._end(partition.index)\n        elif",
                "            pass\n        elif",
            ),
        ),
    ),
    Mutation(
        "a coordinator that has moved says that a transaction is complete",
        "moldau.broker.coordination.transactions.coordinator",
        "held.id, marker, lambda: not shard.has_ended, lambda: self._complete(shard, held)",
        "held.id, marker, lambda: True, lambda: self._complete(shard, held)",
        "late transactions",
        18,
        # Or a journal writes nothing in another epoch than its own.
        also=(
            (
                _JOURNAL,
                "        return partition.is_leader and partition.leader_epoch =="
                " self.leader_epoch\n",
                "        return partition.is_leader\n",
            ),
        ),
    ),
)
