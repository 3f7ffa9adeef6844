"""The parts of a broker that the APIs of this room use."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from moldau.broker.api.registry import Room
from moldau.broker.coordination.groups.coordinator import GroupCoordinator
from moldau.broker.coordination.on_demand import OnDemand
from moldau.broker.node import Node
from moldau.broker.partitions.partitions import Partitions
from moldau.cluster.producer_ids import ProducerIds

if TYPE_CHECKING:
    from moldau.broker.coordination.transactions.coordinator import TransactionCoordinator


class TransactionParts(msgspec.Struct, frozen=True):
    """The parts that handlers of APIs about transactions get."""

    node: Node
    partitions: Partitions
    transactions_on_demand: OnDemand[TransactionCoordinator]
    groups: GroupCoordinator
    producer_ids: ProducerIds

    @property
    def transactions(self) -> TransactionCoordinator:
        return self.transactions_on_demand()


_room = Room(TransactionParts)
handles = _room.handles
