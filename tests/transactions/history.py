"""History: what producers attempted, what they were told, and what readers saw.

A value is written once, by one attempt of one transaction, and names it. So whoever comes upon a
value knows whose it is, however the cluster, the clients and the network were broken meanwhile.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from tests.scenarios.ledger import TopicPartition


class Value(NamedTuple):
    """The `number`-th value of a producer's `transaction`-th transaction."""

    producer: str
    transaction: int
    number: int

    def __str__(self) -> str:
        return f"value {self.number} of transaction {self.transaction} of {self.producer}"

    @property
    def content(self) -> bytes:
        return f"{self.producer} {self.transaction} {self.number}".encode()

    @classmethod
    def of(cls, content: bytes) -> Value:
        producer, transaction, number = content.decode().split(" ")
        return cls(producer, int(transaction), int(number))


class Outcome(Enum):
    """What a producer was told of its transaction's end."""

    COMMITTED = "committed"
    ABORTED = "aborted"
    # Nobody answered the commit, or the answer does not say: all of it is visible, or nothing.
    UNKNOWN = "unknown"


@dataclass(slots=True)
class Sent:
    """A write; `offset` is where it was acknowledged, None without an answer that says so."""

    place: TopicPartition
    value: Value
    key: bytes | None = None
    offset: int | None = None
    is_acknowledged: bool = False


class Seen(NamedTuple):
    """A value that a reader got, at a moment of the monotonic clock."""

    place: TopicPartition
    offset: int
    value: Value
    at: float = 0.0


@dataclass(slots=True)
class Transaction:
    """One attempt; `read` is what it consumed, by the group whose offsets it committed.

    `commit_at` is when the producer first asked for the commit: nobody may see a value before.
    """

    producer: str
    number: int
    outcome: Outcome = Outcome.ABORTED
    commit_at: float = float("inf")
    sent: list[Sent] = field(default_factory=list)
    group: str = ""
    read: list[Seen] = field(default_factory=list)

    def __str__(self) -> str:
        return f"transaction {self.number} of {self.producer}"

    def write(self, place: TopicPartition, key: bytes | None = None) -> Sent:
        """Note a write that is about to be tried."""
        value = Value(self.producer, self.number, len(self.sent))
        sent = Sent(place, value, key)
        self.sent.append(sent)
        return sent


@dataclass(slots=True)
class Reading:
    """What one reader got, in order: each partition from `begins` or its start on, without a
    break. A log that was looked at on a disk is a reader too."""

    name: str
    is_committed: bool
    seen: list[Seen] = field(default_factory=list)
    begins: dict[TopicPartition, int] = field(default_factory=dict)


@dataclass(slots=True)
class History:
    """Everything about one run.

    `starts` has the first offset that retention left of a partition; partitions in `compacted` may
    lack values that a later one of their key replaced. `positions` is where each group stood in the
    end. If it `is_whole`, some committed reading has got everything there was to see in the end.
    """

    transactions: list[Transaction] = field(default_factory=list)
    readings: list[Reading] = field(default_factory=list)
    starts: dict[TopicPartition, int] = field(default_factory=dict)
    compacted: set[TopicPartition] = field(default_factory=set)
    positions: dict[tuple[str, TopicPartition], int] = field(default_factory=dict)
    is_whole: bool = False
