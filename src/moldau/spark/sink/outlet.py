"""The way out at least once: an idempotent producer, for tasks without transactions."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from moldau.spark.errors import OptionError, WriteFailed
from moldau.spark.sink.options import WRITTEN, SinkOptions, meant

if TYPE_CHECKING:
    import pyarrow as pa

REACH_WITHIN_S = 8.0
# How long one wait for room in the producer's queue lasts; it is repeated until there is some.
ROOM_POLL_S = 0.1
# Callbacks of failures are served this often while all goes well.
ROWS_PER_POLL = 1024

_producers: dict[tuple[int, tuple[tuple[str, str | bool], ...]], Outlet] = {}
_checked: set[tuple[int, int]] = set()


class Outlet:
    """An idempotent producer, kept by the process from task to task until something fails."""

    def __init__(self, settings: dict[str, str | bool]) -> None:
        self._bootstrap = settings["bootstrap.servers"]
        self._failure: KafkaError | None = None
        self._failed_topic = ""
        self._failures = 0
        self._checked: set[str] = set()
        try:
            self._producer = Producer(dict(settings), logger=_quiet())
        except KafkaException as problem:
            why = problem.args[0].str()
            raise OptionError(f"the producer refuses a setting: {why}{meant(why)}") from None

    def check(self, topic: str) -> None:
        """Check once per topic that it exists and that a broker answers; raise WriteFailed within
        seconds if not.
        """
        if topic in self._checked:
            return
        try:
            found = self._producer.list_topics(topic, timeout=REACH_WITHIN_S).topics[topic]
        except KafkaException as problem:
            raise WriteFailed(
                f"no broker answered within {REACH_WITHIN_S:g} s; tried {self._bootstrap}: "
                f"{problem.args[0].str()}"
            ) from None
        # A topic that brokers create on demand has no leader for a moment.
        if found.error is not None and not found.error.retriable():
            raise WriteFailed(f"topic {topic!r} cannot be written: {found.error.str()}")
        self._checked.add(topic)

    def send(self, topic: str, key: Any, value: Any, partition: int, headers: Any) -> None:
        while True:
            try:
                self._producer.produce(
                    topic, value, key, partition, on_delivery=self._report, headers=headers
                )
            except BufferError:
                self._producer.poll(ROOM_POLL_S)
                self.raise_failure()
            except KafkaException as problem:
                error = problem.args[0]
                raise WriteFailed(f"a record for {topic!r} was refused: {error.str()}") from None
            else:
                return

    def poll(self) -> None:
        self._producer.poll(0)
        self.raise_failure()

    def flush(self) -> None:
        """Wait until everything has arrived, or failed for good after delivery.timeout.ms."""
        while self._producer.flush(1.0):
            self.raise_failure()
        self.raise_failure()

    def raise_failure(self) -> None:
        if self._failure is not None:
            raise WriteFailed(
                f"{self._failures} or more records for topic {self._failed_topic!r} were not "
                f"written: {self._failure.str()}"
            )

    def _report(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self._failures += 1
            if self._failure is None:
                self._failure, self._failed_topic = error, message.topic() or ""


def check_settings(options: SinkOptions) -> None:
    """Check once per process that librdkafka knows all settings; OptionError names a wrong one."""
    key = (os.getpid(), hash(options.producer))
    if key not in _checked:
        Outlet(dict(options.producer))
        _checked.add(key)


def send_all(options: SinkOptions, batches: Iterator[pa.RecordBatch]) -> int:
    """Send all rows; everything is acknowledged when this returns how many there were."""
    key = (os.getpid(), options.producer)
    outlet = _producers.pop(key, None) or Outlet(dict(options.producer))
    records = 0
    for batch in batches:
        _send_batch(outlet, options, batch)
        records += batch.num_rows
    outlet.flush()
    # Not reached after a failure: the next task gets a producer that knows nothing of it.
    _producers[key] = outlet
    return records


def _send_batch(outlet: Outlet, options: SinkOptions, batch: pa.RecordBatch) -> None:
    rows = batch.num_rows
    columns = {
        name: batch.column(index).to_pylist()
        for index, name in enumerate(options.columns)
        if name in WRITTEN and (name != "topic" or options.topic is None)
    }
    nothing = [None] * rows
    topics = [options.topic] * rows if options.topic is not None else columns["topic"]
    for topic in set(topics):
        if topic is None:
            raise WriteFailed("a row has no topic; set the option 'topic' or fill the column")
        outlet.check(topic)
    records = zip(
        topics,
        columns.get("key", nothing),
        columns["value"],
        columns.get("partition", nothing),
        columns.get("headers", nothing),
        strict=True,
    )
    for number, (topic, key, value, partition, headers) in enumerate(records):
        pairs = None if headers is None else [(item["key"], item["value"]) for item in headers]
        outlet.send(topic, key, value, -1 if partition is None else partition, pairs)
        if number % ROWS_PER_POLL == 0:
            outlet.poll()
    outlet.poll()


def _quiet() -> Any:
    """librdkafka reports every lost connection on stderr; what matters comes as an error."""
    import logging

    logger = logging.getLogger("moldau.spark.producer")
    logger.addHandler(logging.NullHandler())
    logger.propagate = False
    return logger
