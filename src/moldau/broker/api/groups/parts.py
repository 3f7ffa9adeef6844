"""The parts of a broker that the APIs of this room use."""

from __future__ import annotations

from dataclasses import dataclass

from moldau.broker.api.registry import Room
from moldau.broker.coordination.groups.coordinator import GroupCoordinator
from moldau.broker.membership.known_brokers import KnownBrokers
from moldau.broker.node import Node
from moldau.broker.partitions.partitions import Partitions


@dataclass(frozen=True, slots=True)
class GroupParts:
    """The parts that handlers of APIs about groups get."""

    node: Node
    partitions: Partitions
    groups: GroupCoordinator
    brokers: KnownBrokers


_room = Room(GroupParts)
handles = _room.handles
