"""The contents of a log when it is opened."""

from __future__ import annotations

from typing import NamedTuple

from moldau.log.epochs import LeaderEpochs
from moldau.log.producers.states import ProducerStates


class Contents(NamedTuple):
    """The content of a log when it is created or loaded; `Log` says what the offsets promise."""

    log_start: int
    log_end: int
    flushed: int
    producers: ProducerStates
    epochs: LeaderEpochs

    @classmethod
    def empty(cls, offset: int) -> Contents:
        """Nothing yet; the first record goes to `offset`."""
        return cls(offset, offset, offset, ProducerStates(offset), LeaderEpochs())
