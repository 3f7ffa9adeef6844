"""Verifications: proof that a coordinator knows of a transaction before its first write (KIP-890).

The first write of a transaction to a log needs a guard. Whoever has one asks the coordinator
whether the partition belongs to the transaction, and then appends with it:

    begin       no open transaction: a guard is made, or the one that there is shared
    (ask)       the coordinator says yes
    append      the guard is the one that the log holds: the transaction is open, the guard gone
    marker      the guard is gone: an answer from before the marker is worth nothing; but for the
                guard of a later epoch, whose transaction the marker cannot have ended

Without it a late answer could let a write in after the end of its transaction, and
nobody would ever end that one. While a transaction is open its writes need no guard.
"""

from __future__ import annotations

from moldau.log.errors import InvalidTransactionState, OutOfOrderSequence

_LAST_SEQUENCE = 0x7FFF_FFFF


class Verification:
    """The guard of a transaction that is about to begin; two are the same only if they are one.

    A write that could not be verified is sent again. Until then those behind it must not be taken
    for the first ones, so the lowest sequence of the epoch is kept. `bumps_epoch` is whether every
    transaction has an epoch of its own, whose sequences begin with 0. `start` is the first offset
    of the transaction, once it has begun.
    """

    __slots__ = ("begun_ms", "bumps_epoch", "epoch", "lowest_sequence", "start")

    def __init__(self, epoch: int, sequence: int, begun_ms: int, bumps_epoch: bool) -> None:
        self.epoch = epoch
        self.lowest_sequence = sequence
        self.begun_ms = begun_ms
        self.bumps_epoch = bumps_epoch
        self.start: int | None = None


class Verifications(dict[int, Verification]):
    """Producer id to the guard of its next transaction. Event loop only."""

    __slots__ = ()

    def begin(
        self, producer_id: int, epoch: int, sequence: int, now_ms: int, bumps_epoch: bool
    ) -> Verification:
        """Return the guard for a transaction's first write, which has that sequence, or none (-1)
        if a broker writes for the producer."""
        if sequence < 0:
            sequence = _LAST_SEQUENCE
        guard = self.get(producer_id)
        if guard is None:
            guard = self[producer_id] = Verification(epoch, sequence, now_ms, bumps_epoch)
        elif epoch > guard.epoch:
            guard.epoch, guard.lowest_sequence = epoch, sequence
        elif epoch == guard.epoch and sequence < guard.lowest_sequence:
            guard.lowest_sequence = sequence
        return guard

    def check(self, producer_id: int, guard: Verification | None) -> None:
        """InvalidTransactionState unless the guard still stands."""
        if guard is None or self.get(producer_id) is not guard:
            raise InvalidTransactionState(
                producer_id, "wrote without a transaction that is known to be open"
            )

    def check_sequence(self, producer_id: int, epoch: int, sequence: int, is_known: bool) -> None:
        """OutOfOrderSequence for one that cannot be the first of the transaction.

        `is_known` is whether the log remembers batches of the producer.
        """
        guard = self.get(producer_id)
        if guard is None:
            return
        if guard.bumps_epoch and sequence and not is_known:
            raise OutOfOrderSequence(producer_id, epoch, sequence, 0)
        if sequence > guard.lowest_sequence:
            raise OutOfOrderSequence(producer_id, epoch, sequence, guard.lowest_sequence)

    def pass_over(self, producer_id: int, epoch: int, sequence: int) -> None:
        """Wait no more for what was to be written before this sequence: it is refused for good."""
        guard = self.get(producer_id)
        if guard is not None and guard.epoch == epoch:
            guard.lowest_sequence = sequence

    def expire(self, now_ms: int, idle_ms: int) -> None:
        """Forget guards that nobody has used for that long."""
        for producer_id, guard in list(self.items()):
            if now_ms - guard.begun_ms >= idle_ms:
                del self[producer_id]
