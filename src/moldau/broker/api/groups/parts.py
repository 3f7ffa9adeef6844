"""The parts of a broker that the APIs of this room use."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from moldau.broker.api.registry import Room
from moldau.broker.coordination.groups.coordinator import GroupCoordinator
from moldau.broker.coordination.on_demand import OnDemand
from moldau.broker.membership.known_brokers import KnownBrokers
from moldau.broker.node import Node
from moldau.broker.partitions.partitions import Partitions

if TYPE_CHECKING:
    from moldau.broker.coordination.transactions.coordinator import TransactionCoordinator
    from moldau.broker.sharing.shares import Shares


class GroupParts(msgspec.Struct, frozen=True):
    """The parts that handlers of APIs about groups get."""

    node: Node
    partitions: Partitions
    groups: GroupCoordinator
    transactions_on_demand: OnDemand[TransactionCoordinator]
    brokers: KnownBrokers
    shares_on_demand: OnDemand[Shares]

    @property
    def transactions(self) -> TransactionCoordinator:
        return self.transactions_on_demand()

    @property
    def shares(self) -> Shares:
        return self.shares_on_demand()


_room = Room(GroupParts)
handles = _room.handles
