"""State batches: records in the same state, as they are written down and sent."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple


class RecordState(IntEnum):
    """The state of a record, by Kafka's numbers."""

    AVAILABLE = 0
    ACQUIRED = 1
    ACKNOWLEDGED = 2
    ARCHIVED = 4


AVAILABLE, ACQUIRED = RecordState.AVAILABLE, RecordState.ACQUIRED
ACKNOWLEDGED, ARCHIVED = RecordState.ACKNOWLEDGED, RecordState.ARCHIVED
FINISHED = (ACKNOWLEDGED, ARCHIVED)


class StateBatch(NamedTuple):
    """Records that are alike, first and last included, as they are written down."""

    first: int
    last: int
    state: int
    deliveries: int
