"""Verification: a coordinator is asked before the first write of a transaction is taken (KIP-890).

Clients of transactions version 1 tell the coordinator of a partition before they write to it. A
write that was delayed may come after its transaction has ended, and would begin one that nobody
ends; so the coordinator is asked whether it waits for the partition. Clients of version 2 (Produce
v12 and later) leave it to the partition's leader to tell the coordinator. Which guard makes an
answer worth something, `moldau.log.producers.verifications` says. Event loop only.
"""

from __future__ import annotations

from struct import Struct
from time import time_ns
from typing import NamedTuple

from moldau.broker.partitions.open_transaction import OpenTransaction
from moldau.broker.partitions.partitions import Partitions, Refusal
from moldau.cluster.state.internal_topics import INTERNAL_TOPICS
from moldau.log.producers.states import ProducerStates
from moldau.log.producers.verifications import Verification
from moldau.records.batch import HEADER_SIZE, TRANSACTIONAL_BIT
from moldau.topic_partition import TopicPartition
from moldau.wire.errors import Error
from moldau.wire.produce import ProduceRequest

# KIP-890: clients know that a transaction may have to be aborted, and that writes add partitions.
_FIRST_WITH_ABORTABLE = 11
_FIRST_THAT_ADDS = 12
# The low byte of a batch's attributes: all flags defined so far.
_ATTRIBUTES = 22
_PRODUCER_POSITION = 43
# producer id, epoch, base sequence
_PRODUCER = Struct(">qhi")
ENDED: Refusal = (Error.INVALID_TXN_STATE, "the transaction ended while its records were checked")
# A client sends again after NOT_ENOUGH_REPLICAS, without looking for another leader first.
_TO_BE_RETRIED = frozenset(
    (
        Error.NETWORK_EXCEPTION,
        Error.COORDINATOR_LOAD_IN_PROGRESS,
        Error.COORDINATOR_NOT_AVAILABLE,
        Error.NOT_COORDINATOR,
    )
)


class Verified(NamedTuple):
    """A Produce request's transactional writes: guards to append with, or why not to.

    Batches that are `unsequenced` are written by a broker for the producer.
    """

    guards: dict[TopicPartition, Verification]
    errors: dict[TopicPartition, Refusal]
    unsequenced: frozenset[TopicPartition] = frozenset()
    producer_id: int = -1
    epoch: int = -1

    def transaction(
        self, place: TopicPartition, producers: ProducerStates, id: str | None, version: int
    ) -> OpenTransaction | None:
        """Return the transaction that a write belongs to; None if it will be refused."""
        guard = self.guards.get(place)
        if id is None or place in self.errors:
            return None
        found = OpenTransaction(id, self.producer_id, self.epoch, version, producers, guard)
        return found if found.stands() else None


def begin_verification(partitions: Partitions, request: ProduceRequest, version: int) -> Verified:
    """Find the writes that would begin a transaction: those need a guard, and to be verified."""
    guards: dict[TopicPartition, Verification] = {}
    found: dict[TopicPartition, tuple[int, int, int]] = {}
    for key, batches in request.topics:
        topic = partitions.topic_name(key)
        for index, batch in batches:
            if (
                batch is not None
                and len(batch) >= HEADER_SIZE
                and batch[_ATTRIBUTES] & TRANSACTIONAL_BIT
            ):
                found[topic, index] = _PRODUCER.unpack_from(batch, _PRODUCER_POSITION)
    identities = {(producer_id, epoch) for producer_id, epoch, _ in found.values()}
    if len(identities) != 1:
        reason = "the batches of a transactional write are from several producers"
        refusal = (Error.INVALID_PRODUCER_ID_MAPPING, reason)
        return Verified({}, dict.fromkeys(found, refusal))
    now_ms = time_ns() // 1_000_000
    for place, (producer_id, epoch, sequence) in found.items():
        partition = partitions.get(place)
        if partition is None or not partition.is_leader or place[0] in INTERNAL_TOPICS:
            continue
        producers = partition.log.producers
        if not producers.is_open(producer_id, epoch):
            adds = version >= _FIRST_THAT_ADDS
            guards[place] = producers.verifications.begin(
                producer_id, epoch, sequence, now_ms, adds
            )
    unsequenced = frozenset(place for place, each in found.items() if each[2] < 0)
    return Verified(guards, {}, unsequenced, *identities.pop())


async def verify(partitions: Partitions, request: ProduceRequest, version: int) -> Verified:
    """Ask the coordinator about a request's writes that would begin a transaction."""
    begun = begin_verification(partitions, request, version)
    verifier = partitions.verifier
    if not begun.guards or request.transactional_id is None or verifier is None:
        return begun
    answers = await verifier.verify(
        request.transactional_id,
        begun.producer_id,
        begun.epoch,
        list(begun.guards),
        adds=version >= _FIRST_THAT_ADDS,
    )
    errors = {place: refusal_of(error, version) for place, error in answers.items() if error}
    return begun._replace(errors=errors)


def refusal_of(error: Error, version: int) -> Refusal:
    """Return a coordinator's answer in the words that a version of Produce has for it."""
    if error in _TO_BE_RETRIED or (
        error is Error.CONCURRENT_TRANSACTIONS and version < _FIRST_THAT_ADDS
    ):
        reason = f"could not verify that the partition belongs to the transaction: {error.name}"
        return Error.NOT_ENOUGH_REPLICAS, reason
    if error is Error.PRODUCER_FENCED:
        return Error.INVALID_PRODUCER_EPOCH, None
    if error is Error.TRANSACTION_ABORTABLE and version < _FIRST_WITH_ABORTABLE:
        error = Error.INVALID_TXN_STATE
    if error is Error.INVALID_TXN_STATE:
        return error, "the partition was not added to the transaction"
    return error, None
