"""Mutations of transactions: what coordinators decide, and what partitions take from whom."""

from __future__ import annotations

from tests.simulation.mutations.mutation import Mutation

_MACHINE = "moldau.broker.coordination.transactions.machine"
_MARKERS = "moldau.broker.coordination.transactions.markers"
_VERIFICATION = "moldau.broker.coordination.transactions.verification"
_JOURNAL = "moldau.broker.coordination.journal"
_SHARDS = "moldau.broker.coordination.shards"
_OFFSETS = "moldau.broker.coordination.groups.offsets"
_STATES = "moldau.log.producers.states"
_FETCH = "moldau.broker.api.records.fetch"

TRANSACTIONS = (
    Mutation(
        "a producer that was fenced goes on with its transactional id",
        _MACHINE,
        "return None if producer == found.owner else _FENCED",
        "return None",
        "transactions",
    ),
    Mutation(
        "a producer that was fenced gets another epoch (KIP-360)",
        _MACHINE,
        "if expected is not None and expected.epoch not in (epoch, last_epoch):",
        "if False:",
        "late transactions",
        7,
    ),
    Mutation(
        "a transaction that times out does not fence its producer",
        _MACHINE,
        "decision = _prepare(found, False, TV2, now_ms, new_id, fences=True)",
        "decision = _prepare(found, False, found.version, now_ms, new_id, fences=True)",
        "transactions",
    ),
    Mutation(
        "a producer gets its epoch while a write about it is pending",
        _MACHINE,
        "    if is_pending:\n        return _COME_AGAIN\n    if found is None:\n        if new_id",
        "    if False:\n        return _COME_AGAIN\n    if found is None:\n        if new_id",
        "transactions",
    ),
    Mutation(
        "a producer gets its epoch while markers are written",
        _MACHINE,
        "    if found.state in DECIDED:\n        return _COME_AGAIN\n"
        "    if request.expected is not",
        "    if False:\n        return _COME_AGAIN\n    if request.expected is not",
        "transactions",
    ),
    Mutation(
        "partitions are added while markers are written",
        _MACHINE,
        "    if is_pending or found.state in DECIDED:\n        return _COME_AGAIN\n    refusal =",
        "    if False:\n        return _COME_AGAIN\n    refusal =",
        "transactions",
        2,
    ),
    Mutation(
        "markers do not have the epoch that follows their transaction (KIP-890)",
        _MACHINE,
        "marking = owner.epoch + raises if is_own",
        "marking = owner.epoch if is_own",
        "transactions",
    ),
    Mutation(
        "the end of a transaction does not raise its producer's epoch (KIP-890)",
        _MACHINE,
        "min(owner.epoch + raises, HIGHEST_EPOCH))\n    marking",
        "owner.epoch)\n    marking",
        "transactions",
    ),
    Mutation(
        "a commit is confirmed that came after its time-out (KAFKA-20785)",
        _MACHINE,
        "    if is_retry and not is_same:\n",
        "    if False:\n",
        "transactions",
    ),
    Mutation(
        "epochs are raised when they have run out",
        _MACHINE,
        "    return epoch >= LAST_CLIENT_EPOCH\n",
        "    return False\n",
        "transactions",
        4,
    ),
    Mutation(
        "neither partitions nor coordinators look at the epoch of a write",
        _STATES,
        "        elif epoch < producer.epoch:\n            raise InvalidProducerEpoch",
        "        elif False:\n            raise InvalidProducerEpoch",
        "transactions",
        also=(
            (
                _STATES,
                "        if producer is not None and epoch < producer.epoch:\n"
                "            raise InvalidProducerEpoch(producer_id, epoch, producer.epoch)\n"
                "        is_known",
                "        is_known",
            ),
            (_MACHINE, "return None if producer == found.owner else _FENCED", "return None"),
        ),
    ),
    Mutation(
        "a decision counts before the in-sync replicas have it",
        _JOURNAL,
        "return not self._pending and log.high_watermark >= log.log_end",
        "return True",
        "transactions",
    ),
    Mutation(
        "a new coordinator goes on with what the in-sync replicas may not have",
        _SHARDS,
        "shard.journal.when_replicated(serve)",
        "serve()",
        "transactions",
        33,
    ),
    Mutation(
        "a transaction is complete as soon as one marker is written",
        _MARKERS,
        "self.remaining.difference_update(partitions)",
        "self.remaining.clear()",
        "transactions",
        54,
    ),
    Mutation(
        "markers that failed count as written",
        _MARKERS,
        "failed = [each for each in partitions if outcome.get(each, _UNKNOWN) not in _FINAL]",
        "failed: list[TopicPartition] = []",
        "transactions",
        7,
    ),
    Mutation(
        "readers of committed records read up to the high watermark",
        _FETCH,
        "up_to = last_stable if committed else log.high_watermark",
        "up_to = log.high_watermark",
        "transactions",
    ),
    Mutation(
        "readers are not told of aborted transactions",
        _FETCH,
        "if committed and log.has_aborted and answer.records is not None:",
        "if False:",
        "transactions",
    ),
    Mutation(
        "what a marker above the high watermark decides is stable",
        _STATES,
        "            if first is None or begun < first:\n                first = begun",
        "            pass",
        "transactions",
    ),
    Mutation(
        "offsets of an aborted transaction are committed",
        _OFFSETS,
        "            if commits and committed is not None:\n                self._outdate",
        "            if committed is not None:\n                self._outdate",
        "transactions",
    ),
)
