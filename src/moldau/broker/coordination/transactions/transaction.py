"""Transactions as values: what the log says of a transactional id."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

import msgspec

from moldau.topic_partition import TopicPartition

NO_PRODUCER_ID = -1
NO_EPOCH = -1
# The time-out of a transaction that none ends.
NO_TIMEOUT_MS = 2**31 - 1


class State(IntEnum):
    """The states, by the numbers and names that Kafka gives them."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7

    @property
    def title(self) -> str:
        return self.name.title().replace("_", "")


class Identity(NamedTuple):
    """A producer, as partitions know it."""

    producer_id: int
    epoch: int


NOBODY = Identity(NO_PRODUCER_ID, NO_EPOCH)


class Transaction(msgspec.Struct, frozen=True):
    """What is known of a transactional id. All but `last_epoch` is in its record.

    `producer` writes the data of an open transaction. `previous_id` is the producer id before the
    last change. `next` is who it will be when the transaction is complete, or, while it is ongoing,
    who took it over. `last_epoch` is the epoch before `producer`'s, of the same client: it may ask
    for the same again because it has not heard the answer.
    """

    id: str
    producer: Identity
    state: State
    timeout_ms: int
    updated_ms: int
    started_ms: int = -1
    partitions: frozenset[TopicPartition] = frozenset()
    version: int = 0
    previous_id: int = NO_PRODUCER_ID
    next: Identity = NOBODY
    last_epoch: int = NO_EPOCH

    @property
    def owner(self) -> Identity:
        """Who may go on with it."""
        return self.producer if self.next == NOBODY else self.next

    @property
    def is_two_phase(self) -> bool:
        return self.timeout_ms == NO_TIMEOUT_MS

    @property
    def commits(self) -> bool:
        return self.state in (State.PREPARE_COMMIT, State.COMPLETE_COMMIT)
