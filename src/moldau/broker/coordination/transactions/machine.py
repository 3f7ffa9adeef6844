"""The state machine of a transaction: one per transactional id, as values, without I/O or clock.

    state              comes from                                    what it means
    Empty              -, Empty, CompleteCommit, CompleteAbort       a producer has an epoch
    Ongoing            Empty, Ongoing, CompleteCommit/-Abort         partitions belong to it
    PrepareCommit      Ongoing                                       decided: markers are written
    PrepareAbort       Ongoing; TV2 also Empty, CompleteCommit/-Abort
    CompleteCommit     PrepareCommit                                 all markers are written
    CompleteAbort      PrepareAbort
    Dead               Empty, CompleteCommit/-Abort                  expired: a tombstone is written
    PrepareEpochFence  Ongoing                                       only in other brokers' records

Each function below looks at a transaction and at a request, and decides: it refuses, it answers
without a change, or it names the transaction that is to be written. While one is being written the
transaction is pending, and everybody who wants a change is told to come again. What is written is
what another coordinator goes on with, so the decision counts from then on, not before.

Two dialects end a transaction. In TV1 the producer keeps its epoch; a late request of an earlier
transaction looks like one of the next. In TV2 (KIP-890) every end raises the epoch, so that it does
not, and an end that is asked for again is known by the epoch before. After an epoch that ran out
the producer gets another id, with epoch 0. Markers of TV2 carry the raised epoch.

A coordinator that aborts by itself (a time-out, or a new producer with the same transactional id)
raises the epoch too, in either dialect: that fences the producer. So `PrepareEpochFence` is never
written: the transaction goes to PrepareAbort at once.

Two-phase commit (KIP-939): no time-out ends a transaction of a producer that asked for it. Another
process may take the open transaction over (`keep`): then `next` is its identity, with which it can
do nothing but end the transaction, and the identity that wrote the data is fenced. The partitions
are told an epoch between the two, so that neither can write to what is open there; the marker's is
higher than all of them.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from msgspec.structs import replace

from moldau.broker.coordination.transactions.transaction import (
    NO_EPOCH,
    NOBODY,
    Identity,
    State,
    Transaction,
)
from moldau.topic_partition import TopicPartition
from moldau.wire.errors import Error

# The highest epoch is never a producer's: with it the coordinator can always fence.
HIGHEST_EPOCH = 32767
LAST_CLIENT_EPOCH = HIGHEST_EPOCH - 1
# The level of `transaction.version` from which on every end raises the epoch.
TV2 = 2

_AT_REST = (State.EMPTY, State.COMPLETE_COMMIT, State.COMPLETE_ABORT)
DECIDED = (State.PREPARE_COMMIT, State.PREPARE_ABORT)

# By a state, the states that it may follow.
FOLLOWS: dict[State, tuple[State, ...]] = {
    State.EMPTY: _AT_REST,
    State.ONGOING: (State.ONGOING, *_AT_REST),
    State.PREPARE_COMMIT: (State.ONGOING,),
    State.PREPARE_ABORT: (State.ONGOING, State.PREPARE_EPOCH_FENCE, *_AT_REST),
    State.COMPLETE_COMMIT: (State.PREPARE_COMMIT,),
    State.COMPLETE_ABORT: (State.PREPARE_ABORT,),
    State.DEAD: _AT_REST,
    State.PREPARE_EPOCH_FENCE: (State.ONGOING,),
}


class Refused(NamedTuple):
    """Nothing changes; the error says why."""

    error: Error


class Unchanged(NamedTuple):
    """It is so already."""

    producer: Identity


class Write(NamedTuple):
    """The transaction to be written, and then the answer: an error, or who the producer is.

    `ongoing` is who wrote the data of a transaction that was taken over, `fence` what its
    partitions are to be told before the answer.
    """

    transaction: Transaction
    producer: Identity
    error: Error = Error.NONE
    ongoing: Identity = NOBODY
    fence: Identity = NOBODY


class NeedsProducerId(NamedTuple):
    """Decide again with a new producer id at hand."""


Decision = Refused | Unchanged | Write | NeedsProducerId

_COME_AGAIN = Refused(Error.CONCURRENT_TRANSACTIONS)
_FENCED = Refused(Error.PRODUCER_FENCED)
_UNKNOWN = Refused(Error.INVALID_PRODUCER_ID_MAPPING)
_NOT_NOW = Refused(Error.INVALID_TXN_STATE)


def is_exhausted(epoch: int) -> bool:
    """Return whether no producer may have a higher epoch."""
    return epoch >= LAST_CLIENT_EPOCH


# A producer begins


class Init(NamedTuple):
    """A producer that wants an epoch; `expected` is who it was, if it says so (KIP-360)."""

    timeout_ms: int
    expected: Identity | None = None
    keeps: bool = False


def initialize(
    found: Transaction | None,
    is_pending: bool,
    request: Init,
    id: str,
    now_ms: int,
    new_id: int | None = None,
) -> Decision:
    """Decide about InitProducerId."""
    if is_pending:
        return _COME_AGAIN
    if found is None:
        if new_id is None:
            return NeedsProducerId()
        begun = Identity(new_id, 0)
        new = Transaction(id, begun, State.EMPTY, request.timeout_ms, now_ms, previous_id=new_id)
        return Write(new, begun)
    if found.state in DECIDED:
        return _COME_AGAIN
    if request.expected is not None and not _may_be(found, request.expected):
        return _FENCED
    if found.state is not State.ONGOING:
        return _raise_epoch(found, request, now_ms, new_id)
    if request.expected not in (None, found.owner):
        # Kafka lets a producer that is fenced abort the transaction of the one that fenced it.
        return _FENCED
    if request.keeps:
        return _take_over(found, request, now_ms, new_id)
    return abort(found, now_ms, new_id)


def _may_be(found: Transaction, expected: Identity) -> bool:
    """Return whether the one who asks may be the producer of this transactional id.

    The last case is a producer whose epoch ran out and who has not heard of its new id.
    """
    return expected.producer_id in (found.producer.producer_id, found.owner.producer_id) or (
        expected.producer_id == found.previous_id and is_exhausted(expected.epoch)
    )


def _raise_epoch(found: Transaction, request: Init, now_ms: int, new_id: int | None) -> Decision:
    expected, (producer_id, epoch) = request.expected, found.producer
    producer, last_epoch, previous_id = found.producer, found.last_epoch, producer_id
    if expected is not None and expected.epoch not in (epoch, last_epoch):
        return _FENCED
    if expected is not None and expected.epoch == last_epoch != epoch < HIGHEST_EPOCH:
        # It was told so before: had anybody else been, `last_epoch` would not be known.
        previous_id = found.previous_id
    elif not is_exhausted(epoch):
        producer = Identity(producer_id, epoch + 1)
        last_epoch = NO_EPOCH if expected is None else epoch
    elif new_id is None:
        return NeedsProducerId()
    else:
        producer = Identity(new_id, 0)
        last_epoch = NO_EPOCH if expected is None else expected.epoch
    begun = replace(
        found,
        producer=producer,
        previous_id=previous_id,
        last_epoch=last_epoch,
        state=State.EMPTY,
        timeout_ms=request.timeout_ms,
        updated_ms=now_ms,
        started_ms=-1,
    )
    return Write(begun, producer)


def _take_over(found: Transaction, request: Init, now_ms: int, new_id: int | None) -> Decision:
    """Give the open transaction to whoever asks; it stays what it is."""
    (producer_id, _), owner = found.producer, found.owner
    if not is_exhausted(owner.epoch + 1):
        heir = Identity(owner.producer_id, owner.epoch + 2)
    elif new_id is None:
        return NeedsProducerId()
    else:
        heir = Identity(new_id, 0)
    is_own = heir.producer_id == producer_id
    fence = Identity(producer_id, owner.epoch + 1 if is_own else HIGHEST_EPOCH)
    kept = replace(found, next=heir, timeout_ms=request.timeout_ms, updated_ms=now_ms)
    return Write(kept, heir, ongoing=found.producer, fence=fence)


# Partitions are added


def add(
    found: Transaction | None,
    is_pending: bool,
    producer: Identity,
    partitions: Collection[TopicPartition],
    version: int,
    now_ms: int,
) -> Decision:
    """Decide about AddPartitionsToTxn and what implies it; `version` is the client's dialect."""
    if found is None:
        return _UNKNOWN
    # First: the producer may go by the id that it gets with the end of the last transaction.
    if is_pending or found.state in DECIDED:
        return _COME_AGAIN
    refusal = _check(found, producer)
    if refusal is not None:
        return refusal
    if found.next != NOBODY:
        return _NOT_NOW
    is_open = found.state is State.ONGOING
    if is_open and found.partitions.issuperset(partitions):
        return Unchanged(producer)
    grown = replace(
        found,
        state=State.ONGOING,
        partitions=found.partitions.union(partitions),
        started_ms=found.started_ms if is_open else now_ms,
        updated_ms=now_ms,
        version=version,
        previous_id=producer.producer_id,
    )
    return Write(grown, producer)


def verify(found: Transaction | None, producer: Identity, partition: TopicPartition) -> Error:
    """Return whether a partition belongs to the producer's open transaction.

    A write that is pending does not matter: the log has the last word (KAFKA-14904).
    """
    if found is None:
        return Error.INVALID_PRODUCER_ID_MAPPING
    refusal = _check(found, producer)
    if refusal is not None:
        return refusal.error
    if found.state in DECIDED:
        return Error.CONCURRENT_TRANSACTIONS
    if found.next == NOBODY and partition in found.partitions:
        return Error.NONE
    return Error.TRANSACTION_ABORTABLE


def _check(found: Transaction, producer: Identity) -> Refused | None:
    if producer.producer_id not in (found.owner.producer_id, found.producer.producer_id):
        return _UNKNOWN
    return None if producer == found.owner else _FENCED


# It ends


class End(NamedTuple):
    """A producer that wants its transaction to end."""

    producer: Identity
    commits: bool
    version: int


def end(
    found: Transaction | None,
    is_pending: bool,
    request: End,
    now_ms: int,
    new_id: int | None = None,
) -> Decision:
    """Decide about EndTxn."""
    if found is None:
        return _UNKNOWN
    is_retry = request.version >= TV2 and _is_retry(found, request.producer)
    refusal = None if is_retry else _check(found, request.producer)
    # Only in TV2 may it go by what it will be when a transition is over.
    if (is_pending or found.state in DECIDED) and (refusal is None or request.version >= TV2):
        return _COME_AGAIN
    if refusal is not None:
        return refusal
    commits = request.commits
    if found.state is State.ONGOING:
        return _prepare(found, commits, request.version, now_ms, new_id)
    is_same = found.state is (State.COMPLETE_COMMIT if commits else State.COMPLETE_ABORT)
    if is_retry and not is_same:
        # A commit came after the coordinator aborted because of the time-out (KAFKA-20785).
        return _FENCED if commits else _NOT_NOW
    if request.version < TV2:
        # An abort right after InitProducerId aborts nothing. Kafka refuses it, and librdkafka
        # gives up because of that, though nothing is wrong (librdkafka #4849).
        is_idle = found.state is State.EMPTY and not commits
        return Unchanged(found.producer) if is_same or is_idle else _NOT_NOW
    if is_retry:
        return Unchanged(found.producer)
    return _NOT_NOW if commits else _prepare(found, False, request.version, now_ms, new_id)


def _is_retry(found: Transaction, producer: Identity) -> bool:
    """Return whether this is the producer that ended the last transaction, by its epoch then."""
    if found.state not in (State.COMPLETE_COMMIT, State.COMPLETE_ABORT):
        return False
    if found.previous_id == producer.producer_id != found.producer.producer_id:
        return producer.epoch == LAST_CLIENT_EPOCH and found.producer.epoch == 0
    return found.producer == (producer.producer_id, producer.epoch + 1)


def abort(found: Transaction, now_ms: int, new_id: int | None = None) -> Decision:
    """Abort an open transaction of a producer that is to be fenced: it timed out, or another came.

    The other is told to come again. It gets its epoch, a second one, when this is complete.
    """
    decision = _prepare(found, False, TV2, now_ms, new_id, fences=True)
    if isinstance(decision, Write):
        return decision._replace(error=Error.CONCURRENT_TRANSACTIONS)
    return decision


def _prepare(
    found: Transaction,
    commits: bool,
    version: int,
    now_ms: int,
    new_id: int | None,
    *,
    fences: bool = False,
) -> Decision:
    """Decide the transaction, the epoch of its markers, and who the producer is afterwards."""
    (producer_id, _), owner = found.producer, found.owner
    raises = version >= TV2
    # Whoever took it over by another producer id cannot be fenced by the markers, nor has anybody
    # a use for the epochs of the old one.
    is_own = owner.producer_id == producer_id
    if raises and is_exhausted(owner.epoch) and not (fences and is_own):
        if new_id is None:
            return NeedsProducerId()
        after = Identity(new_id, 0)
    else:
        after = Identity(owner.producer_id, min(owner.epoch + raises, HIGHEST_EPOCH))
    marking = owner.epoch + raises if is_own else HIGHEST_EPOCH
    marker = Identity(producer_id, min(marking, HIGHEST_EPOCH))
    decided = replace(
        found,
        producer=marker,
        next=NOBODY if after == marker else after,
        previous_id=owner.producer_id,
        last_epoch=owner.epoch if raises else found.last_epoch,
        state=State.PREPARE_COMMIT if commits else State.PREPARE_ABORT,
        started_ms=found.started_ms if found.state is State.ONGOING else now_ms,
        updated_ms=now_ms,
        version=version,
    )
    return Write(decided, after)


def complete(found: Transaction, now_ms: int) -> Transaction:
    """All markers are written, or their partitions are gone."""
    return replace(
        found,
        producer=found.owner,
        next=NOBODY,
        state=State.COMPLETE_COMMIT if found.commits else State.COMPLETE_ABORT,
        partitions=frozenset(),
        updated_ms=now_ms,
    )


# Time passes


def has_timed_out(found: Transaction, now_ms: int) -> bool:
    """Return whether an open transaction has been open for longer than its producer wanted."""
    return (
        found.state is State.ONGOING
        and not found.is_two_phase
        and found.started_ms + found.timeout_ms < now_ms
    )


def has_expired(found: Transaction, now_ms: int, expiration_ms: int) -> bool:
    """Return whether nobody has used the transactional id for so long that it can be forgotten."""
    return found.state in _AT_REST and found.updated_ms <= now_ms - expiration_ms
