"""Coordinators, as partitions see them; `moldau.broker.coordination` has them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from moldau.broker.partitions.partition import Partition
from moldau.log.markers import TransactionEnd
from moldau.topic_partition import TopicPartition
from moldau.wire.errors import Error


class Verifier(Protocol):
    """Whoever asks the coordinators of transactions, on this broker or another."""

    async def verify(
        self,
        transactional_id: str,
        producer_id: int,
        epoch: int,
        partitions: Sequence[TopicPartition],
        *,
        adds: bool,
    ) -> Mapping[TopicPartition, Error]:
        """Ask whether the partitions belong to the producer's open transaction, or add them to it.

        Returns the errors of those that may not be written to, under the names that
        AddPartitionsToTxn has for them, or those of a coordinator that cannot be asked.
        """
        ...


class MarkerWriter(Protocol):
    """The owner of an internal topic, which keeps what transactions have written there."""

    def write_marker(
        self, partition: Partition, end: TransactionEnd, done: Callable[[Error], None]
    ) -> None:
        """Append the end of a transaction to a partition that this broker leads.

        What the transaction wrote takes effect, or is dropped, in the order of the log. Only then
        is `done` called, when every in-sync replica has the marker, or with the error. It may be
        called before this returns.
        """
