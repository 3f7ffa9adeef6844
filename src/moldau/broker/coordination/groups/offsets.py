"""Offsets: how far a group has read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from moldau.broker.coordination.groups.group import Group
from moldau.broker.coordination.groups.records import CommittedOffset
from moldau.topic_partition import TopicPartition


class Offsets:
    """The committed offsets of one group, by topic and partition.

    `get` and `by_topic` show what is below the high watermark; `unstable` names the partitions
    whose newer offset is not there yet.
    """

    __slots__ = ("_topics", "_unstable")

    def __init__(self) -> None:
        self._topics: dict[str, dict[int, CommittedOffset]] = {}
        self._unstable: dict[TopicPartition, int] = {}

    def __bool__(self) -> bool:
        return bool(self._topics or self._unstable)

    def __iter__(self) -> Iterator[tuple[TopicPartition, CommittedOffset]]:
        for topic, partitions in self._topics.items():
            for partition, committed in partitions.items():
                yield (topic, partition), committed

    @property
    def by_topic(self) -> dict[str, dict[int, CommittedOffset]]:
        return self._topics

    def get(self, topic: str, partition: int) -> CommittedOffset | None:
        partitions = self._topics.get(topic)
        return None if partitions is None else partitions.get(partition)

    def put(self, topic: str, partition: int, committed: CommittedOffset) -> None:
        self._topics.setdefault(topic, {})[partition] = committed

    def remove(self, topic: str, partition: int) -> None:
        partitions = self._topics.get(topic)
        if partitions is not None:
            partitions.pop(partition, None)
            if not partitions:
                del self._topics[topic]

    def is_unstable(self, topic: str, partition: int) -> bool:
        return (topic, partition) in self._unstable

    def begin(self, partitions: Iterable[TopicPartition]) -> None:
        """Newer offsets of these are on their way."""
        for key in partitions:
            self._unstable[key] = self._unstable.get(key, 0) + 1

    def end(self, partitions: Iterable[TopicPartition]) -> None:
        for key in partitions:
            left = self._unstable.pop(key) - 1
            if left:
                self._unstable[key] = left

    def expired(
        self, group: Group, emptied_at: int | None, now_ms: int, retention_ms: int
    ) -> list[TopicPartition]:
        """Find what has outlived its retention (KIP-211).

        It counts from when the group lost its last member; for a group that never had members, or a
        topic that a stable group of consumers does not want any more, from the commit.
        """
        since = -1 if emptied_at is None or not group.is_empty else emptied_at
        keeps = {topic: group.keeps_offsets_of(topic) for topic in self._topics}
        return [
            key
            for key, committed in self
            if not keeps[key[0]]
            and key not in self._unstable
            and now_ms >= _expiry(committed, since, retention_ms)
        ]


def _expiry(committed: CommittedOffset, since: int, retention_ms: int) -> int:
    if committed.expire_timestamp != -1:
        return committed.expire_timestamp
    return max(committed.commit_timestamp, since) + retention_ms
