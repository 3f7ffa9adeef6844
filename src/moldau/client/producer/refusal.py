"""Messages that librdkafka does not even queue."""

from __future__ import annotations

from typing import Any

import confluent_kafka

from moldau.client.errors import DeliveryFailed, words_of


def refusal(problem: Exception, topic: str, key: Any, value: Any) -> DeliveryFailed:
    forget_frames(problem)
    error = problem.args[0] if isinstance(problem, confluent_kafka.KafkaException) else None
    reason = str(problem) if error is None else words_of(error)
    return DeliveryFailed(
        f"a message for {topic} was not queued: {reason}",
        error,
        topic=topic,
        partition=None,
        key=key,
        value=value,
    )


def forget_frames(problem: Exception) -> None:
    """Cut an exception off from the frames that it came through.

    confluent-kafka does not let go of a `KafkaException`, and so of everything in those frames; a
    set's report among it would never be deleted, and the set never be done.
    """
    problem.__traceback__ = problem.__context__ = None
