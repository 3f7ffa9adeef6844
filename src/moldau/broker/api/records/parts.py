"""The parts of a broker that the APIs of this room use."""

from __future__ import annotations

import msgspec

from moldau.broker.api.records.fetch_sessions import FetchSessions
from moldau.broker.api.registry import Room
from moldau.broker.node import Node
from moldau.broker.partitions.partitions import Partitions
from moldau.broker.replication.leader.follower_sessions import FollowerSessions


class RecordParts(msgspec.Struct, frozen=True):
    """The parts that handlers of APIs about records get."""

    node: Node
    partitions: Partitions
    sessions: FetchSessions
    follower_sessions: FollowerSessions


_room = Room(RecordParts)
handles = _room.handles
reads = _room.reads
