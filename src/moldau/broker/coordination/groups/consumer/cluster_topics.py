"""The topics of the cluster, for consumer groups."""

from __future__ import annotations

from uuid import UUID

from moldau.broker.coordination.groups.consumer.topics import TopicView
from moldau.cluster.state.state import ClusterState


class ClusterTopics:
    """`Topics` as this broker knows them."""

    __slots__ = ("_state",)

    def __init__(self, state: ClusterState) -> None:
        self._state = state

    @property
    def version(self) -> int:
        return self._state.version

    def get(self, name: str) -> TopicView | None:
        topic = self._state.topics.get(name)
        return None if topic is None else TopicView(topic.id, len(topic.partitions))

    def racks_of(self, name: str) -> tuple[tuple[str, ...], ...]:
        racks = {id: info.rack for id, info in self._state.brokers.items() if info.rack}
        topic = self._state.topics.get(name)
        if not racks or topic is None:
            return ()
        return tuple(
            tuple(sorted({racks[id] for id in partition.replicas if id in racks}))
            for partition in topic.partitions
        )

    def name_of(self, id: UUID) -> str | None:
        topic = self._state.topics_by_id.get(id)
        return None if topic is None else topic.name
