"""Shards: what a coordinator keeps of one partition of its topic."""

from __future__ import annotations

from typing import Generic, Protocol, TypeVar

from moldau.broker.coordination.journal import Journal


class State(Protocol):
    """The content of a shard, for example groups: it knows its records and what they mean.

    Made for one leader epoch of the partition, with a journal that writes in that epoch only.
    """

    def begin(self) -> None:
        """Go on from what was read back, which is all there is: requests come in from here on."""

    def end(self) -> None:
        """Send everyone who waits to another broker, which leads the partition by now."""


class Compacted(State, Protocol):
    """The content of a shard of a compacted topic."""

    def read_back(self, key: bytes, value: bytes) -> None:
        """Take in what the log says last of a key; InvalidRecord where that means nothing."""

    def read_back_open(self, producer_id: int, key: bytes, value: bytes | None) -> None:
        """Take in what an open transaction has written; None if it was written over since."""


S = TypeVar("S", bound=State)


class Shard(Generic[S]):
    """One partition's state for as long as this broker leads it in one leader epoch."""

    __slots__ = ("index", "is_loaded", "journal", "state")

    def __init__(self, index: int, journal: Journal, state: S) -> None:
        self.index = index
        self.journal = journal
        self.state = state
        self.is_loaded = False

    def end(self) -> None:
        """Fail what is not written yet, then send everyone away."""
        self.journal.close()
        self.state.end()
