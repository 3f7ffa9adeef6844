"""Fetch sessions from the follower's side (KIP-227): what to name in the next request. No I/O.

    add, update    the partition is named in the next request, and stays part of the session
    remove         it is to be forgotten; the leader is told so if it knows of it
    reset          a new session: everything is named

A partition that is not named is answered for from where it was named last. A second request may
be under way before the answer to the first has come; what that brings is then given twice, and
known by its offset.
"""

from __future__ import annotations

from collections.abc import Callable

from moldau.wire.fetch.request import FetchPartition
from moldau.wire.fetch.session import FIRST_EPOCH, next_epoch
from moldau.wire.primitives import TopicIdPartition, TopicKey


class FetcherSession:
    """The partitions of one session, and what the leader has yet to hear of them."""

    def __init__(self, wanted: Callable[[TopicIdPartition], FetchPartition]) -> None:
        self._wanted = wanted
        # In the order in which they were added; those that the leader knows, and those to send.
        self._partitions: dict[TopicIdPartition, None] = {}
        self._known: set[TopicIdPartition] = set()
        self._to_send: dict[TopicIdPartition, None] = {}
        self._to_forget: dict[TopicIdPartition, None] = {}
        self.id = 0
        self.epoch = FIRST_EPOCH

    def __len__(self) -> int:
        return len(self._partitions)

    def __contains__(self, partition: TopicIdPartition) -> bool:
        return partition in self._partitions

    @property
    def has_changes(self) -> bool:
        return bool(self._to_send or self._to_forget)

    def add(self, partition: TopicIdPartition) -> None:
        """Take the partition into the session, from where it is now."""
        self._partitions[partition] = None
        self._to_send[partition] = None
        self._to_forget.pop(partition, None)

    def update(self, partition: TopicIdPartition) -> None:
        """The partition wants something else than before."""
        if partition in self._partitions:
            self._to_send[partition] = None

    def remove(self, partition: TopicIdPartition) -> None:
        """Leave the partition out from now on."""
        self._partitions.pop(partition, None)
        self._to_send.pop(partition, None)
        if partition in self._known:
            self._to_forget[partition] = None

    def reset(self) -> None:
        """There is no session any more: the next request begins one."""
        self.id, self.epoch = 0, FIRST_EPOCH
        self._known.clear()
        self._to_forget.clear()
        self._to_send = dict.fromkeys(self._partitions)

    def next_request(
        self,
    ) -> tuple[list[tuple[TopicKey, list[FetchPartition]]], list[tuple[TopicKey, list[int]]]]:
        """Return the partitions to name in the next request, and those to forget."""
        wanted: dict[TopicKey, list[FetchPartition]] = {}
        for partition in self._to_send:
            wanted.setdefault(partition[0], []).append(self._wanted(partition))
        forgotten: dict[TopicKey, list[int]] = {}
        for topic, index in self._to_forget:
            forgotten.setdefault(topic, []).append(index)
        self._known.difference_update(self._to_forget)
        self._known.update(self._to_send)
        self._to_send.clear()
        self._to_forget.clear()
        return list(wanted.items()), list(forgotten.items())

    def sent(self) -> None:
        """A request is under way."""
        if self.id:
            self.epoch = next_epoch(self.epoch)

    def established(self, session_id: int) -> None:
        """The leader has answered the first request; 0 where it keeps no session."""
        if self.epoch == FIRST_EPOCH:
            self.id = session_id
            self.epoch = next_epoch(FIRST_EPOCH) if session_id else FIRST_EPOCH
