"""A mover: writes messages in transactions of one id, which ends those of its predecessors."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import confluent_kafka
from confluent_kafka import KafkaException

from moldau.client.errors import ClientError, ProducerFenced
from moldau.client.letters.letter_topic import TIMEOUT_S
from moldau.client.producer.transaction import failure

# Letters of one transaction.
AT_ONCE = 500
_RETRY_S = 0.05

Headers = list[tuple[str, str | bytes | None]]


class Mover:
    """Transactions that move letters `of` something. For one thread."""

    def __init__(self, config: Mapping[str, Any], transactional_id: str, of: str) -> None:
        self._config = {**config, "transactional.id": transactional_id}
        self._of = of
        self._producer: confluent_kafka.Producer | None = None
        # The number of partitions of the topics that letters came from.
        self.sizes: dict[str, int] = {}

    def claim(self) -> None:
        """End whatever mover of this id came before: it fails from here on."""
        producer = confluent_kafka.Producer(self._config)
        self.insist(producer.init_transactions, "could not begin the redrive")
        self._producer = producer

    def require_topics(self, consumer: confluent_kafka.Consumer, topics: set[str]) -> None:
        """ClientError if a topic is gone that letters came from."""
        known = consumer.list_topics(timeout=TIMEOUT_S).topics
        gone = sorted(topics - known.keys())
        if gone:
            raise ClientError(
                f"dead letters came from topics that no longer exist: {', '.join(gone)}"
            )
        self.sizes = {topic: len(known[topic].partitions) for topic in topics}

    def send(
        self, topic: str, partition: int, key: bytes | None, value: bytes | None, headers: Headers
    ) -> None:
        """Write a message in the transaction, to its partition if that is still there."""
        more: dict[str, Any] = {}
        if partition < self.sizes.get(topic, partition + 1):
            more["partition"] = partition
        self.producer.produce(topic, value=value, key=key, headers=headers, **more)

    def commit(self, write: Callable[[], None]) -> None:
        """Do what `write` does in one transaction, or nothing of it."""
        self.producer.begin_transaction()
        try:
            write()
            self.insist(self.producer.commit_transaction, "could not move letters")
        except ProducerFenced:
            # The one who came after has ended the transaction.
            raise
        except BaseException:
            with suppress(ClientError, TimeoutError):
                self.insist(self.producer.abort_transaction, "could not abort")
            raise

    def insist(self, attempt: Callable[[float], Any], what: str) -> None:
        """Make a call of the producer until it goes well, but not for ever."""
        deadline = time.monotonic() + TIMEOUT_S
        while True:
            try:
                attempt(max(deadline - time.monotonic(), 0.001))
                return
            except KafkaException as problem:
                if not problem.args[0].retriable() or time.monotonic() > deadline:
                    raise failure(f"{what} of {self._of}", problem.args[0]) from None
                time.sleep(_RETRY_S)

    @property
    def producer(self) -> confluent_kafka.Producer:
        if self._producer is None:
            raise ClientError("claim the redrive before you move its letters")
        return self._producer
