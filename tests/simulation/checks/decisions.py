"""The invariants of transactions, as the logs show them once something is below a high watermark.

- a transaction goes from state to state as the protocol allows, and its epoch never goes down
- in no partition a producer's epoch goes down: nobody writes who was fenced there
- a marker says what the coordinator decided, and was decided before
- everything before the last stable offset is decided, and nothing after it that need not be
"""

from __future__ import annotations

from dataclasses import dataclass, field

from moldau.broker.coordination.transactions.records import read_key, read_value
from moldau.broker.coordination.transactions.transaction import State, Transaction
from moldau.cluster.state.internal_topics import TRANSACTION_STATE
from moldau.records.record import read_end_marker, records_of
from tests.simulation.checks.history import Violation
from tests.simulation.checks.logs import Batch

_AT_REST = frozenset((State.EMPTY, State.COMPLETE_COMMIT, State.COMPLETE_ABORT))
# By a state, those that may come before it; None for a transactional id that is new.
_AFTER: dict[State, frozenset[State | None]] = {
    State.EMPTY: _AT_REST | {None},
    State.ONGOING: _AT_REST | {State.ONGOING},
    State.PREPARE_COMMIT: frozenset((State.ONGOING,)),
    State.PREPARE_ABORT: _AT_REST | {State.ONGOING},
    State.COMPLETE_COMMIT: frozenset((State.PREPARE_COMMIT,)),
    State.COMPLETE_ABORT: frozenset((State.PREPARE_ABORT,)),
}


@dataclass
class Producers:
    """The producers of one partition, as far as it is committed."""

    # The first offset of each open transaction.
    open: dict[int, int] = field(default_factory=dict)
    epochs: dict[int, int] = field(default_factory=dict)

    def stable(self, end: int) -> int:
        """Up to where everything is decided, if that much is committed."""
        return min(self.open.values(), default=end)


class Decisions:
    """What all coordinators have decided."""

    def __init__(self) -> None:
        self.latest: dict[str, Transaction] = {}
        self._decided: set[tuple[int, int, bool]] = set()

    @property
    def are_carried_out(self) -> bool:
        return all(each.state in _AT_REST for each in self.latest.values())

    def __str__(self) -> str:
        return "; ".join(f"{each}" for each in self.latest.values())

    def committed(self, name: str, producers: Producers, batch: Batch) -> None:
        """Take in a batch that is below a high watermark now."""
        if batch.producer_id >= 0:
            self._written(name, producers, batch)
        if name.startswith(TRANSACTION_STATE.name):
            for record in records_of(batch.data):
                id = read_key(record.key or b"")
                if id is not None:
                    self._decide(id, record.value)

    def _written(self, name: str, producers: Producers, batch: Batch) -> None:
        producer, epoch = batch.producer_id, batch.producer_epoch
        highest = producers.epochs.get(producer, -1)
        if epoch < highest:
            raise Violation(
                f"{name} has {batch} of producer {producer} in epoch {epoch}, after epoch {highest}"
            )
        producers.epochs[producer] = epoch
        if batch.is_control:
            marker = read_end_marker(batch.data)
            assert marker is not None
            producers.open.pop(producer, None)
            if (producer, epoch, marker.commits) not in self._decided:
                what = "commit" if marker.commits else "abort"
                raise Violation(
                    f"{name} has a marker at {batch.base} to {what} the transaction of producer "
                    f"{producer} in epoch {epoch}, which nobody has decided"
                )
        elif batch.is_transactional:
            producers.open.setdefault(producer, batch.base)

    def _decide(self, id: str, value: bytes | None) -> None:
        before = self.latest.get(id)
        if value is None:
            self.latest.pop(id, None)
            return
        now = self.latest[id] = read_value(id, value)
        was = None if before is None else before.state
        if was not in _AFTER.get(now.state, ()):
            raise Violation(f"transaction {id} became {now}, after it was {before}")
        if (
            before is not None
            and before.producer.producer_id == now.producer.producer_id
            and before.producer.epoch > now.producer.epoch
        ):
            raise Violation(f"the epoch of transaction {id} went back: {before}, {now}")
        if now.state in (State.PREPARE_COMMIT, State.PREPARE_ABORT):
            self._decided.add((*now.producer, now.commits))
