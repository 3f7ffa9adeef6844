"""Subscriptions: the topics that a consumer names in JoinGroup, as far as a coordinator cares.

The bytes belong to the clients. Every version begins as version 0 does: a version, then the topics.
"""

from __future__ import annotations

import struct

from moldau.wire.primitives import INT16, MalformedRequest, read_count, read_string

CONSUMER = "consumer"


def subscribed_topics(metadata: bytes) -> frozenset[str] | None:
    """Return the topics of a consumer's subscription; None where the bytes are something else."""
    view = memoryview(metadata)
    topics = set()
    try:
        count, position = read_count(view, INT16.size, compact=False)
        for _ in range(count):
            topic, position = read_string(view, position, compact=False)
            if topic is None:
                return None
            topics.add(topic)
    except (MalformedRequest, struct.error):
        return None
    return frozenset(topics)
