"""Reading back what a test has written."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from moldau.client import ConsumedMessage, Consumer

WITHIN_S = 20.0


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


def eventually(condition: Callable[[], object], within_s: float = WITHIN_S) -> None:
    """Fails unless the condition comes true in time."""
    deadline = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline, "it did not come true in time"
        time.sleep(0.01)
