"""Internal topics: what brokers must remember, in topics that only they write to.

    name                  owner                     kept
    __consumer_offsets    group coordinator         the last record of each key
    __transaction_state   transaction coordinator   the last record of each key
    __share_group_state   share coordinator         every record (KIP-932)

A topic is created when its owner first needs it, as large as the owner's settings say. Clients can
read and delete it. They cannot write to it or delete records, and asking for it does not create it.
The names of owners that are not built yet are reserved, so that no topic of a user takes them.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class InternalTopic:
    """A topic with the part of a broker that owns it, which alone may write to it."""

    name: str
    owner: str
    is_compacted: bool = True

    @property
    def configs(self) -> dict[str, str]:
        """The settings that the topic is created with, whatever its size."""
        return {
            "cleanup.policy": "compact" if self.is_compacted else "delete",
            "compression.type": "producer",
        }


CONSUMER_OFFSETS = InternalTopic("__consumer_offsets", "group coordinator")
TRANSACTION_STATE = InternalTopic("__transaction_state", "transaction coordinator")
SHARE_GROUP_STATE = InternalTopic("__share_group_state", "share coordinator", is_compacted=False)

INTERNAL_TOPICS = {
    topic.name: topic for topic in (CONSUMER_OFFSETS, TRANSACTION_STATE, SHARE_GROUP_STATE)
}

# Kafka's controllers keep the cluster's metadata under this name: no topic may have it.
CLUSTER_METADATA_TOPIC = "__cluster_metadata"


def is_internal_name(name: str) -> bool:
    """Return whether the name is of the kind that clients hide unless they are asked to show it.

    librdkafka does not say which topics are internal, so that the name has to.
    """
    return name.startswith("__")
