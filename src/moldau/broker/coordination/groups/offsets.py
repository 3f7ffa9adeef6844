"""Offsets: how far a group has read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from moldau.broker.coordination.groups.group import Group
from moldau.broker.coordination.groups.records import CommittedOffset
from moldau.topic_partition import TopicPartition


class Offsets:
    """The committed offsets of one group, by topic and partition.

    `get` and `by_topic` show what is below the high watermark; `is_unstable` tells the partitions
    whose newer offset is not there yet, or waits for the end of a transaction.

    What a transaction commits is staged under its producer id, until a marker says what becomes of
    it. An offset that is committed after it was staged wins, whatever the marker says: the order is
    that of the records, which is all that compaction leaves. A deletion ends the wait, too.
    """

    __slots__ = ("_order", "_staged", "_topics", "_unstable")

    def __init__(self) -> None:
        self._topics: dict[str, dict[int, CommittedOffset]] = {}
        self._unstable: dict[TopicPartition, int] = {}
        # By producer id, with the order of the records; None for what has lost already. Most groups
        # have none.
        self._staged: dict[int, dict[TopicPartition, tuple[int, CommittedOffset | None]]] = {}
        self._order = 0

    def __bool__(self) -> bool:
        return bool(self._topics or self._unstable or self._staged)

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
        if self._staged:
            self._outdate((topic, partition))
        self._topics.setdefault(topic, {})[partition] = committed

    def remove(self, topic: str, partition: int) -> None:
        if self._staged:
            self._unstage((topic, partition))
        partitions = self._topics.get(topic)
        if partitions is not None:
            partitions.pop(partition, None)
            if not partitions:
                del self._topics[topic]

    def is_unstable(self, topic: str, partition: int) -> bool:
        key = (topic, partition)
        return key in self._unstable or (bool(self._staged) and self.is_staged(key))

    def begin(self, partitions: Iterable[TopicPartition]) -> None:
        """Newer offsets of these are on their way."""
        for key in partitions:
            self._unstable[key] = self._unstable.get(key, 0) + 1

    def end(self, partitions: Iterable[TopicPartition]) -> None:
        for key in partitions:
            left = self._unstable.pop(key) - 1
            if left:
                self._unstable[key] = left

    # Transactions

    @property
    def staged(self) -> set[TopicPartition]:
        """The partitions that open transactions have offsets for."""
        return {key for keys in self._staged.values() for key in keys}

    def is_staged(self, key: TopicPartition) -> bool:
        return any(key in keys for keys in self._staged.values())

    def stage(
        self, producer_id: int, committed: Mapping[TopicPartition, CommittedOffset | None]
    ) -> None:
        """Keep what a producer's open transaction would commit."""
        self._order += 1
        staged = self._staged.setdefault(producer_id, {})
        staged.update((key, (self._order, value)) for key, value in committed.items())

    def settle(self, producer_id: int, *, commits: bool) -> None:
        """Commit or drop what is staged: the producer's transaction has ended."""
        staged = self._staged.pop(producer_id, {})
        for key, (order, committed) in staged.items():
            if commits and committed is not None:
                self._outdate(key, order)
                self._topics.setdefault(key[0], {})[key[1]] = committed

    def _outdate(self, key: TopicPartition, before: int | None = None) -> None:
        """Let what was staged so far lose, or what was staged before."""
        for keys in self._staged.values():
            if key in keys and (before is None or keys[key][0] < before):
                keys[key] = keys[key][0], None

    def _unstage(self, key: TopicPartition) -> None:
        for producer_id, keys in list(self._staged.items()):
            keys.pop(key, None)
            if not keys:
                del self._staged[producer_id]

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
            and not self.is_unstable(*key)
            and now_ms >= _expiry(committed, since, retention_ms)
        ]


def _expiry(committed: CommittedOffset, since: int, retention_ms: int) -> int:
    if committed.expire_timestamp != -1:
        return committed.expire_timestamp
    return max(committed.commit_timestamp, since) + retention_ms
