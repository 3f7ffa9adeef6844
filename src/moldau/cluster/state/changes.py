"""Changes: everything that can happen to a cluster's state.

A change says what is so from now on, in full and as a value, so that applying a store's changes in
order to an empty state always gives the same state. Stores keep these structs as JSON: fields may
be added with a default, never renamed or removed.
"""

from __future__ import annotations

from uuid import UUID

import msgspec

from moldau.cluster.state.access import (
    AccessDamaged,
    AclsChanged,
    GroupConfigured,
    QuotasChanged,
    ScramChanged,
)
from moldau.cluster.state.topics import BrokerInfo, PartitionState, Topic


class Change(msgspec.Struct, frozen=True, tag_field="change", tag=True):
    """One of the changes below."""


class ClusterCreated(Change, frozen=True):
    """The first change of all. `broker` is the one whose data folder this is, where that counts."""

    cluster_id: str
    broker: int | None = None


class BrokerJoined(Change, frozen=True):
    """The broker is alive and reachable at this address."""

    broker: BrokerInfo


class BrokerLeft(Change, frozen=True):
    id: int


class ControllerElected(Change, frozen=True):
    id: int


class LeadersRestarted(Change, frozen=True):
    """The broker came back and may have lost what it had not flushed.

    Every partition that it leads starts a new leader epoch, by which clients that saw more than is
    left notice it (KIP-320).
    """

    broker: int


class TopicCreated(Change, frozen=True):
    topic: Topic


class TopicDeleted(Change, frozen=True):
    name: str
    id: UUID


class DeletionsSettled(Change, frozen=True):
    """Nothing is left on disk of the topics that were deleted so far."""


class PartitionsAdded(Change, frozen=True):
    """The topic has more partitions: these, the first of them with index `first`."""

    name: str
    first: int
    partitions: tuple[PartitionState, ...]


class PartitionsChanged(Change, frozen=True):
    """Leaders, epochs or replica sets of some of a topic's partitions, by index."""

    name: str
    partitions: dict[int, PartitionState]


class TopicConfigured(Change, frozen=True):
    """All the settings that the topic now has of its own; what is absent has its default."""

    name: str
    configs: dict[str, str]


class BrokerConfigured(Change, frozen=True):
    """All the dynamic settings of one broker, or (None) those that every broker has."""

    broker: int | None
    configs: dict[str, str]


class ProducerIdsAllocated(Change, frozen=True):
    """Producer ids below `next_id` have been handed out and never will be again."""

    next_id: int


AnyChange = (
    ClusterCreated
    | BrokerJoined
    | BrokerLeft
    | ControllerElected
    | LeadersRestarted
    | TopicCreated
    | TopicDeleted
    | DeletionsSettled
    | PartitionsAdded
    | PartitionsChanged
    | TopicConfigured
    | BrokerConfigured
    | ProducerIdsAllocated
    | AclsChanged
    | QuotasChanged
    | ScramChanged
    | GroupConfigured
    | AccessDamaged
)
