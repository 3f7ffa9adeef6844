"""Internal topics: what brokers must remember, in topics that only they write to.

    name                  owner                     kept
    __consumer_offsets    group coordinator         the last record of each key
    __transaction_state   transaction coordinator   the last record of each key
    __share_group_state   share coordinator         every record, until the owner deletes it

A topic is created when its owner first needs it, as large as the owner's settings say. Clients can
read and delete it. They cannot write to it or delete records, and asking for it does not create it.
"""

from __future__ import annotations

import msgspec


class InternalTopic(msgspec.Struct, frozen=True):
    """A topic with the part of a broker that owns it, which alone may write to it."""

    name: str
    owner: str
    is_compacted: bool = True
    # What is in it was promised, so it is never led by a replica that may lack some of it.
    is_clean: bool = False

    @property
    def configs(self) -> dict[str, str]:
        """The settings that the topic is created with, whatever its size."""
        configs = {
            "cleanup.policy": "compact" if self.is_compacted else "delete",
            "compression.type": "producer",
        }
        if not self.is_compacted:
            # Its owner deletes what is not needed any more, and nobody else may.
            configs["retention.ms"] = configs["retention.bytes"] = "-1"
        if self.is_clean:
            configs["unclean.leader.election.enable"] = "false"
        return configs


CONSUMER_OFFSETS = InternalTopic("__consumer_offsets", "group coordinator")
TRANSACTION_STATE = InternalTopic("__transaction_state", "transaction coordinator", is_clean=True)
SHARE_GROUP_STATE = InternalTopic(
    "__share_group_state", "share coordinator", is_compacted=False, is_clean=True
)

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
