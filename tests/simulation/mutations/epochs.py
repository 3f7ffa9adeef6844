"""Mutations of what epochs are for: leaders, followers, lives of brokers, generations, leases."""

from __future__ import annotations

from tests.simulation.mutations.mutation import ANYTHING, Mutation

_DIVERGENCE = "moldau.broker.replication.divergence"
_TRUNCATION = "moldau.log.truncation"
_FLUSHER = "moldau.broker.partitions.flusher"
_FLUSHING = "moldau.log.flushes.flushing"

EPOCHS = (
    Mutation(
        "a leader does not see that a follower's last epoch is none of its own (KIP-279)",
        _DIVERGENCE,
        "if epoch < wanted.last_fetched_epoch or end < wanted.fetch_offset:",
        "if end < wanted.fetch_offset:",
        "elections",
        9,
    ),
    Mutation(
        "a cut log remembers the producers of what was cut",
        _TRUNCATION,
        "    log.producers = rebuild_producers(log.segments.all, known, end)\n",
        "",
        "truncations",
    ),
    Mutation(
        "an epoch begins with the first batch that compaction has left of it",
        "moldau.log.replica",
        "log.epochs.assign(epoch, min(max(begins or 0, log.log_end), base))",
        "log.epochs.assign(epoch, base)",
        "compaction",
        14,
    ),
    Mutation(
        "an epoch that goes on behind an empty one is taken for later than it began",
        "moldau.log.epochs",
        "(epochs[-1] > epoch or",
        "(epochs[-1] >= epoch or",
        ANYTHING,
        691,
    ),
    Mutation(
        "an unclean start believes the file of epochs rather than the batches",
        "moldau.log.recovery",
        "if 0 <= header.leader_epoch != epochs.epoch_at(written):",
        "if header.leader_epoch > epochs.latest:",
        ANYTHING,
        691,
    ),
    Mutation(
        "a flush that the disk refused is tried again (fsyncgate)",
        _FLUSHER,
        "            if flush.lost_data:\n                self._fail(partition, error)",
        "            if False:\n                self._fail(partition, error)",
        "fsync",
        3,
    ),
    Mutation(
        "a flush that the disk refused counts",
        _FLUSHING,
        "    if not succeeded:\n",
        "    if False:\n",
        "fsync",
        also=((_FLUSHER, "            if flush.lost_data:\n", "            if False:\n"),),
    ),
)
