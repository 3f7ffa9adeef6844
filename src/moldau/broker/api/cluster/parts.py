"""The parts of a broker that the APIs of this room use."""

from __future__ import annotations

import msgspec

from moldau.broker.api.cluster.metadata_cache import MetadataCache
from moldau.broker.api.registry import Room
from moldau.broker.membership.known_brokers import KnownBrokers
from moldau.broker.node import Node
from moldau.broker.partitions.partitions import Partitions
from moldau.broker.partitions.replicas import Replicas
from moldau.broker.security.origins import Origins
from moldau.broker.security.quotas import Quotas
from moldau.cluster.controller import Controller


class ClusterParts(msgspec.Struct, frozen=True):
    """The parts that handlers of APIs about the cluster get."""

    node: Node
    partitions: Partitions
    replicas: Replicas
    controller: Controller
    brokers: KnownBrokers
    metadata_cache: MetadataCache
    quotas: Quotas
    origins: Origins


_room = Room(ClusterParts)
handles = _room.handles
reads = _room.reads
