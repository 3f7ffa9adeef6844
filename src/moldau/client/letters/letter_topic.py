"""A topic read from one offset to another, with nothing that is not committed."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any, Self

import confluent_kafka
from confluent_kafka import KafkaException
from confluent_kafka import TopicPartition as Position

from moldau.client.errors import ClientError

TIMEOUT_S = 30.0
_POLL_S = 0.5

# By partition: the first offset, and the one after the last.
Ranges = dict[int, tuple[int, int]]


class LetterTopic:
    """One topic, for one thread. KafkaException for what the brokers refuse."""

    def __init__(self, topic: str, config: Mapping[str, Any], group: str) -> None:
        self.topic = topic
        own = {
            "group.id": group,
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
        }
        self.consumer = confluent_kafka.Consumer({**config, **own})
        # How far it was read.
        self.read: dict[int, int] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *problem: object) -> None:
        self.consumer.close()

    def ranges(self) -> Ranges:
        """Return what each partition has now."""
        described = self.consumer.list_topics(self.topic, TIMEOUT_S).topics[self.topic]
        if described.error is not None:
            raise KafkaException(described.error)
        return {
            index: self.consumer.get_watermark_offsets(Position(self.topic, index), TIMEOUT_S)
            for index in described.partitions
        }

    def messages(self, ranges: Ranges, within_s: float = TIMEOUT_S) -> Iterator[Any]:
        """Yield the messages of these ranges, and note how far they were read.

        ClientError when none comes for `within_s`, though there should be one.
        """
        left = {index for index, (start, end) in ranges.items() if start < end}
        self.read = {index: start for index, (start, _) in ranges.items()}
        self.consumer.assign([Position(self.topic, index, ranges[index][0]) for index in left])
        held: dict[int, int] = {}
        deadline = time.monotonic() + within_s
        while left:
            message = self.consumer.poll(_POLL_S)
            if message is None:
                if time.monotonic() > deadline:
                    raise self._stalled(held, within_s)
                continue
            index, error = int(message.partition() or 0), message.error()
            end = ranges[index][1]
            if error is not None:
                if error.code() != confluent_kafka.KafkaError._PARTITION_EOF:
                    raise KafkaException(error)
                at = int(message.offset() or 0)
                if at >= end:
                    self.read[index] = end
                    left.discard(index)
                else:
                    # A transaction is open there, and hides what follows.
                    held[index] = at
                continue
            deadline = time.monotonic() + within_s
            offset = int(message.offset() or 0)
            if offset < end:
                self.read[index] = offset + 1
                yield message
            if offset + 1 >= end:
                left.discard(index)
        self.consumer.unassign()

    def _stalled(self, held: Mapping[int, int], within_s: float) -> ClientError:
        for index, offset in held.items():
            return ClientError(
                f"a transaction is open in {self.topic}-{index} at offset {offset}, and hides the "
                f"messages after it; it did not end within {within_s:g} s: `moldau transactions "
                "list` shows its owner"
            )
        return ClientError(f"no messages of {self.topic} within {within_s:g} s")
