"""The plan of the driver: the partitions of a subscription, and their ends."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from moldau.peer.cluster import Cluster
from moldau.peer.errors import Refused
from moldau.peer.view import TopicView
from moldau.spark.names import OWN_TOPICS
from moldau.spark.source.java_pattern import java_pattern
from moldau.spark.source.options import Subscription
from moldau.topic_partition import TopicPartition
from moldau.wire.errors import Error


@dataclass(frozen=True, slots=True)
class Subscribed:
    """The partitions that a subscription stands for now, and the ids of their topics."""

    partitions: tuple[TopicPartition, ...]
    ids: dict[str, UUID | None]


def look_up(cluster: Cluster, subscription: Subscription, *, may_miss: bool = False) -> Subscribed:
    """Ask the cluster; UnknownTopic for a topic that is named and not there, unless it `may_miss`.

    What may be missing and is, is left out.
    """
    topics: dict[str, TopicView]
    if subscription.pattern is not None:
        matches = java_pattern(subscription.pattern).search
        topics = {
            name: topic
            for name, topic in cluster.metadata().topics.items()
            if matches(name)
            and not topic.is_internal
            and name not in OWN_TOPICS
            and name not in subscription.left_out
        }
    else:
        named = subscription.topics or [topic for topic, _ in subscription.assigned]
        topics = cluster.metadata(dict.fromkeys(named)).topics
    if may_miss:
        topics = {name: topic for name, topic in topics.items() if topic.exists}
    for topic in topics.values():
        topic.check()
    found = tuple(
        (name, index) for name in sorted(topics) for index in sorted(topics[name].leaders)
    )
    if subscription.assigned:
        missing = [key for key in subscription.assigned if key not in found]
        if missing and not may_miss:
            name, index = missing[0]
            raise Refused(Error.UNKNOWN_TOPIC_OR_PARTITION, f"assign: {name}-{index}")
        found = tuple(key for key in subscription.assigned if key not in missing)
    return Subscribed(found, {name: topic.id for name, topic in topics.items()})
