"""The parts of a broker that the APIs of this room use."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from moldau.broker.api.forwarding import Forwarding
from moldau.broker.api.registry import Room
from moldau.broker.coordination.groups.coordinator import GroupCoordinator
from moldau.broker.coordination.on_demand import OnDemand
from moldau.broker.membership.known_brokers import KnownBrokers
from moldau.broker.node import Node
from moldau.broker.partitions.replicas import Replicas
from moldau.broker.security.quotas import Quotas
from moldau.cluster.controller import Controller

if TYPE_CHECKING:
    from moldau.broker.sharing.shares import Shares


class TopicParts(msgspec.Struct, frozen=True):
    """The parts that handlers of APIs about topics and settings get."""

    node: Node
    replicas: Replicas
    controller: Controller
    brokers: KnownBrokers
    forwarding: Forwarding
    quotas: Quotas
    groups: GroupCoordinator
    shares_on_demand: OnDemand[Shares]

    @property
    def shares(self) -> Shares:
        return self.shares_on_demand()


_room = Room(TopicParts)
handles = _room.handles
