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
    from moldau.broker.sharing.group_offsets import GroupOffsets
    from moldau.broker.sharing.shares import Shares


class SharingParts(msgspec.Struct, frozen=True):
    """The parts that handlers of APIs about share groups get."""

    node: Node
    partitions: Partitions
    shares_on_demand: OnDemand[Shares]
    brokers: KnownBrokers
    groups: GroupCoordinator

    @property
    def shares(self) -> Shares:
        return self.shares_on_demand()

    @property
    def group_offsets(self) -> GroupOffsets:
        return self.shares.group_offsets


_room = Room(SharingParts)
handles = _room.handles
reads = _room.reads
