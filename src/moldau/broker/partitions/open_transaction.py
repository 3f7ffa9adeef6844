"""An open transaction, as the log of one of its partitions knows it.

What is written elsewhere on behalf of a write that waits, while what it holds is checked, is to be
part of the transaction that the write was sent in, and of no later one of the same producer.
"""

from __future__ import annotations

from moldau.log.producers.states import ProducerStates
from moldau.log.producers.verifications import Verification


class OpenTransaction:
    """The transaction of a write that is not appended yet. Event loop only.

    It has begun in the log, or its `guard` says that it may. `version` is that of the Produce
    request.
    """

    __slots__ = ("_guard", "_producers", "_start", "epoch", "id", "producer_id", "version")

    def __init__(
        self,
        id: str,
        producer_id: int,
        epoch: int,
        version: int,
        producers: ProducerStates,
        guard: Verification | None,
    ) -> None:
        self.id = id
        self.producer_id = producer_id
        self.epoch = epoch
        self.version = version
        self._producers = producers
        self._guard = guard
        self._start = producers.open.get(producer_id) if guard is None else None

    def stands(self) -> bool:
        """Return whether no marker has ended it in the log since."""
        begun = self._producers.open.get(self.producer_id)
        guard = self._guard
        if guard is None:
            return begun is not None and begun == self._start
        if guard.start is None:
            return self._producers.verifications.get(self.producer_id) is guard
        return begun == guard.start
