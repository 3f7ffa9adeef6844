"""Topics, as a consumer group sees them."""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b
from typing import NamedTuple, Protocol
from uuid import UUID


class TopicView(NamedTuple):
    """A topic: its id, and how many partitions it has."""

    id: UUID
    partitions: int


class Topics(Protocol):
    """The topics of the cluster. `version` goes up whenever one of them may have changed."""

    @property
    def version(self) -> int: ...

    def get(self, name: str) -> TopicView | None:
        """Return a topic, or None if there is no such."""
        ...

    def racks_of(self, name: str) -> tuple[tuple[str, ...], ...]:
        """Return the racks of the replicas of each partition of a topic; nothing where brokers have
        no racks."""
        ...

    def name_of(self, id: UUID) -> str | None:
        """Return the name of a topic, or None if there is no such."""
        ...


def metadata_hash(topics: Topics, names: Iterable[str]) -> int:
    """Hash what an assignment depends on of the topics that exist (KIP-1101): another hash, another
    assignment. 0 if there are none. The number itself is our own; Kafka's is made differently."""
    found = blake2b(digest_size=8)
    is_empty = True
    for name in sorted(names):
        topic = topics.get(name)
        if topic is not None:
            is_empty = False
            found.update(repr((name, *topic, topics.racks_of(name))).encode())
    return 0 if is_empty else int.from_bytes(found.digest(), "big", signed=True)
