"""Reading back what a test has written."""

from __future__ import annotations

from typing import Any

from moldau.client import ConsumedMessage, Consumer

WITHIN_S = 60.0


def read(bootstrap: str, topic: str, count: int, **settings: Any) -> list[ConsumedMessage]:
    """The first `count` messages of a topic, and a failure if they do not come."""
    with Consumer(bootstrap, **settings) as consumer:
        consumer.subscribe(topic)
        return take(consumer.messages(WITHIN_S), count)


def take(messages: Any, count: int) -> list[ConsumedMessage]:
    found = []
    for message in messages:
        found.append(message)
        if len(found) == count:
            break
    assert len(found) == count, f"{len(found)} of {count} messages came"
    return found
