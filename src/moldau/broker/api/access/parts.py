"""The parts of a broker that the APIs of this room use."""

from __future__ import annotations

import msgspec

from moldau.broker.api.registry import Room
from moldau.broker.node import Node
from moldau.cluster.controller import Controller


class AccessParts(msgspec.Struct, frozen=True):
    """The parts that handlers of APIs about access get."""

    node: Node
    controller: Controller


_room = Room(AccessParts)
handles = _room.handles
