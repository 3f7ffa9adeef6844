"""The parts of a broker that the APIs of this room use."""

from __future__ import annotations

from dataclasses import dataclass

from moldau.broker.api.forwarding import Forwarding
from moldau.broker.api.registry import Room
from moldau.broker.membership.known_brokers import KnownBrokers
from moldau.broker.node import Node
from moldau.broker.partitions.replicas import Replicas
from moldau.cluster.controller import Controller


@dataclass(frozen=True, slots=True)
class TopicParts:
    """The parts that handlers of APIs about topics and settings get."""

    node: Node
    replicas: Replicas
    controller: Controller
    brokers: KnownBrokers
    forwarding: Forwarding


_room = Room(TopicParts)
handles = _room.handles
