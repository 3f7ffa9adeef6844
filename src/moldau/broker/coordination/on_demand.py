"""Coordinators on demand: built when something first needs them, which most brokers never see."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from moldau.broker.partitions.partition import Partition
from moldau.broker.partitions.replicas import Owner

C = TypeVar("C")


class OnDemand(Generic[C]):
    """A coordinator that takes time and memory, and stands among the owners of internal topics.

    It is built when this broker comes to lead a partition of its topic, or when somebody asks for
    it. `owner_of` finds who keeps state in the topic. Event loop only.
    """

    __slots__ = ("_build", "_owner_of", "built")

    def __init__(self, build: Callable[[], C], owner_of: Callable[[C], Owner]) -> None:
        self._build = build
        self._owner_of = owner_of
        self.built: C | None = None

    def __call__(self) -> C:
        if self.built is None:
            self.built = self._build()
        return self.built

    def partition_changed(self, partition: Partition) -> None:
        if self.built is not None or partition.is_leader:
            self._owner_of(self()).partition_changed(partition)

    def topic_deleted(self, name: str) -> None:
        if self.built is not None:
            self._owner_of(self.built).topic_deleted(name)
