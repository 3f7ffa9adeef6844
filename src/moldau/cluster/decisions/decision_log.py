"""Decisions as sentences for the log."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from moldau.cluster.state.changes import (
    AnyChange,
    BrokerConfigured,
    PartitionsAdded,
    PartitionsChanged,
    TopicConfigured,
    TopicCreated,
    TopicDeleted,
)

MOST_SENTENCES = 10

logger = logging.getLogger("moldau.cluster.controller")


def tell(changes: Sequence[AnyChange]) -> None:
    """Log what was decided, the first few one by one."""
    for change in changes[:MOST_SENTENCES]:
        logger.info("%s", _told(change))
    if len(changes) > MOST_SENTENCES:
        logger.info("and %d more changes like these", len(changes) - MOST_SENTENCES)


def _told(change: AnyChange) -> str:
    match change:
        case TopicCreated(topic):
            return f"topic {topic.name} created with {len(topic.partitions)} partitions"
        case TopicDeleted(name):
            return f"topic {name} deleted"
        case PartitionsAdded(name, first, partitions):
            return f"topic {name} grew from {first} to {first + len(partitions)} partitions"
        case PartitionsChanged(name, partitions):
            return f"{len(partitions)} partitions of topic {name} have new leaders or replicas"
        case TopicConfigured(name, configs):
            return f"topic {name} now has the settings {configs}"
        case BrokerConfigured(None, configs):
            return f"all brokers now have the dynamic settings {configs}"
        case BrokerConfigured(broker, configs):
            return f"broker {broker} now has the dynamic settings {configs}"
        case _:
            return str(change)
