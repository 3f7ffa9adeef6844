"""Decisions as sentences for the log."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

from moldau.cluster.state.access import (
    AclsChanged,
    GroupConfigured,
    QuotasChanged,
    ScramChanged,
    described,
)
from moldau.cluster.state.changes import (
    AnyChange,
    BrokerConfigured,
    PartitionsAdded,
    PartitionsChanged,
    TopicConfigured,
    TopicCreated,
    TopicDeleted,
)
from moldau.wire.acls import PatternType, Resource, in_words

MOST_SENTENCES = 10
_MOST_LETTERS = 200

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
            return f"all brokers now have the dynamic settings {_shown(configs)}"
        case BrokerConfigured(broker, configs):
            return f"broker {broker} now has the dynamic settings {_shown(configs)}"
        case AclsChanged(resource, acls):
            kind = in_words(Resource(resource.kind))
            pattern = PatternType(resource.pattern).name.lower()
            return f"{kind} '{resource.name}' ({pattern}) now has {len(acls)} access rules"
        case QuotasChanged(entity, limits):
            return f"{described(entity)} now has the quotas {limits}"
        case ScramChanged(""):
            return "the cluster now has a secret to derive the salts of unknown users from"
        case ScramChanged(user, credentials):
            return f"user '{user}' now has passwords for {', '.join(credentials) or 'nothing'}"
        case GroupConfigured(group, configs):
            return f"group '{group}' now has the settings {configs}"
        case _:
            return str(change)


def _shown(configs: Mapping[str, str]) -> dict[str, str]:
    """Return settings without values that fill pages, such as certificates."""
    return {
        name: value if len(value) <= _MOST_LETTERS else f"({len(value)} characters)"
        for name, value in configs.items()
    }
