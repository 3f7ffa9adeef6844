"""Mutations of replication: what leaders count, what followers cut, and who is fenced."""

from __future__ import annotations

from tests.simulation.mutations.mutation import Mutation

_IN_SYNC = "moldau.broker.partitions.in_sync"
_PARTITION = "moldau.broker.partitions.partition"
_FOLLOWED = "moldau.broker.replication.follower.followed"
_DIVERGENCE = "moldau.broker.replication.divergence"
_APPENDING = "moldau.broker.api.records.appending"
_PRODUCE_RESPONSE = "moldau.broker.api.records.produce_response"

REPLICATION = (
    Mutation(
        "a leader commits what its followers do not have",
        _IN_SYNC,
        "if follower.log_end < least:",
        "if False and follower.log_end < least:",
        "leaders",
    ),
    Mutation(
        "a proposed in-sync set does not count before it is agreed on (KIP-497)",
        _IN_SYNC,
        "members = {*self.isr, *(self.proposed or ())}",
        "members = {*self.isr}",
        "in sync",
        2,
    ),
    Mutation(
        "a replica joins before it has reached the high watermark",
        _IN_SYNC,
        "return log_end >= high_watermark and log_end >= self.epoch_start",
        "return log_end >= 0",
        "in sync",
        3,
    ),
    Mutation(
        "a leader commits with fewer in sync than the minimum (KIP-966)",
        _IN_SYNC,
        "self.may_commit = len(self.isr) >= self.minimum and not self.elr",
        "self.may_commit = True",
        "in sync",
        1,
    ),
    Mutation(
        "a follower that the cluster put out keeps what the leader knew of it",
        _IN_SYNC,
        "self.followers[replica].reset(NEVER)\n        self._count()",
        "pass\n        self._count()",
        "given up place",
        also=(
            # Or the cluster would refuse nearly always (KIP-903).
            (
                "moldau.cluster.zookeeper.commits",
                "        return [Check(self._paths.folder(broker), registrations[broker])"
                " for broker in joining]\n",
                "        return []\n",
            ),
        ),
    ),
    Mutation(
        "a leader does not look where a follower's log parts from its own (KIP-101)",
        _DIVERGENCE,
        "if wanted.last_fetched_epoch < 0:",
        "if True or wanted.last_fetched_epoch < 0:",
        "leaders",
    ),
    Mutation(
        "a follower cuts nothing",
        _FOLLOWED,
        "        truncate_to(log, end)\n",
        "        truncate_to(log, log.log_end)\n",
        "leaders",
    ),
    Mutation(
        "a follower asks on before its disk has what it says it has",
        _FOLLOWED,
        "return log.config.flushes and log.flushed < log.log_end",
        "return False and log.config.flushes and log.flushed < log.log_end",
        "power",
    ),
    Mutation(
        "the high watermark passes what is not on the leader's disk",
        _PARTITION,
        "own_end = log.flushed if log.config.flushes else log.log_end",
        "own_end = log.log_end",
        "power",
    ),
    Mutation(
        "a write with acks=all is answered when the leader has it",
        _PRODUCE_RESPONSE,
        "elif acks == 1 or self._is_replicated():",
        "elif True:",
        "leaders",
    ),
    Mutation(
        "whoever is asked takes a write, leader or not",
        _APPENDING,
        "if partition is None or not partition.is_leader:",
        "if partition is None:",
        "leaders",
        1,
    ),
    Mutation(
        "a write that waits is acknowledged by a broker that leads no more",
        _PRODUCE_RESPONSE,
        "self.refuse(partition, result, (Error.NOT_LEADER_OR_FOLLOWER, None))",
        "pass",
        "leaders",
        2,
    ),
    Mutation(
        "consumers read up to the log's end",
        "moldau.broker.api.records.fetch",
        "up_to = last_stable if committed else log.high_watermark",
        "up_to = log.log_end",
        "leaders",
    ),
)
