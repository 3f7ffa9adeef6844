"""`moldau consume --group`: one member of a group, which commits exactly what it has printed."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from moldau.cli.clients import failure_of, failures
from moldau.cli.views.output import Failure, show

if TYPE_CHECKING:
    from confluent_kafka import Consumer, Message, TopicPartition

COMMIT_EVERY_S = 1.0
# Joining takes its time, above all when members are being missed: only then does a timeout begin.
JOIN_WITHIN_S = 30.0
POLL_S = 0.2
FLUSH_EVERY = 1000

Render = Callable[["Message"], bytes]


class GroupReader:
    """Prints messages as a member of a group.

    An offset is committed once its message is printed, that is, once stdout has taken it: every
    second, when a partition goes to another member, and at the end. What was fetched but not
    printed is not committed, and another member reads it.
    """

    def __init__(self, consumer: Consumer, group: str, topic: str, render: Render) -> None:
        self._consumer = consumer
        self._group = group
        self._topic = topic
        self._render = render
        self._out = sys.stdout.buffer
        self._written: dict[int, int] = {}
        self._printed: dict[int, int] = {}
        self._committed: dict[int, int] = {}
        self._next_commit = time.monotonic() + COMMIT_EVERY_S
        self._joined = False
        self.count = 0

    def run(
        self,
        stop: threading.Event,
        maximum: int | None,
        timeout: float | None,
        on_message: Callable[[], None],
    ) -> None:
        """Print until told to stop, or so many, or until none came for `timeout` seconds."""
        with failures():
            self._consumer.subscribe(
                [self._topic],
                on_assign=self._assigned,
                on_revoke=self._revoked,
                on_lost=self._lost,
            )
            try:
                self._print_messages(stop, maximum, timeout, on_message)
                self._flush()
            finally:
                self._commit_at_the_end()

    def _print_messages(
        self,
        stop: threading.Event,
        maximum: int | None,
        timeout: float | None,
        on_message: Callable[[], None],
    ) -> None:
        began = last_arrival = time.monotonic()
        while not stop.is_set() and (maximum is None or self.count < maximum):
            # Output is flushed before any wait.
            message = self._consumer.poll(0) if self._written else None
            if message is None:
                self._flush()
                self._commit_if_due()
                message = self._consumer.poll(POLL_S)
            now = time.monotonic()
            if message is None:
                waits_for_group = not self._joined and now < began + JOIN_WITHIN_S
                if timeout is not None and not waits_for_group and now >= last_arrival + timeout:
                    return
                if waits_for_group:
                    last_arrival = now
                continue
            if self._is_message(message):
                self._print(message)
                on_message()
                last_arrival = now
                if self.count % FLUSH_EVERY == 0:
                    self._flush()
                    self._commit_if_due()

    def _is_message(self, message: Message) -> bool:
        from confluent_kafka import KafkaError

        error = message.error()
        if error is None:
            return True
        if error.code() == KafkaError._MAX_POLL_EXCEEDED:
            # The reader of our output was too slow; the partitions are gone, so join again.
            show(
                "the group has continued without this member; joining again", "yellow", stderr=True
            )
            return False
        raise failure_of(error, message.topic() or self._topic)

    def _print(self, message: Message) -> None:
        partition, offset = message.partition(), message.offset()
        assert partition is not None
        assert offset is not None
        self._out.write(self._render(message))
        self._written[partition] = offset + 1
        self.count += 1

    def _flush(self) -> None:
        written, self._written = self._written, {}
        if written:
            self._out.flush()
            self._printed |= written

    def _uncommitted(self) -> list[TopicPartition]:
        from confluent_kafka import TopicPartition

        return [
            TopicPartition(self._topic, partition, offset)
            for partition, offset in self._printed.items()
            if self._committed.get(partition) != offset
        ]

    def _commit_if_due(self) -> None:
        """Commit in the background; if it fails, a later commit covers it."""
        if time.monotonic() < self._next_commit:
            return
        self._next_commit = time.monotonic() + COMMIT_EVERY_S
        offsets = self._uncommitted()
        if offsets:
            self._consumer.commit(offsets=offsets, asynchronous=True)

    def _commit(self) -> None:
        from confluent_kafka import KafkaException

        offsets = self._uncommitted()
        if not offsets:
            return
        for place in self._consumer.commit(offsets=offsets, asynchronous=False):
            if place.error is not None:
                raise KafkaException(place.error)
            self._committed[place.partition] = place.offset

    def _commit_at_the_end(self) -> None:
        from confluent_kafka import KafkaException

        try:
            self._commit()
        except KafkaException as problem:
            reason = failure_of(problem.args[0])
            raise Failure(
                f"group {self._group} may read printed messages again, because "
                f"their offsets were not committed: {reason.message}",
                reason.advice,
            ) from None

    def _assigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._joined = True
        names = ", ".join(str(each) for each in sorted(place.partition for place in partitions))
        what = f"reads partition{'s' if len(partitions) > 1 else ''} {names}" if names else "waits"
        show(f"group {self._group}: this member {what}", "dim", stderr=True)

    def _revoked(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._flush()
        self._commit_at_the_end()
        self._forget(partitions)

    def _lost(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        """Others have these partitions already: a commit would be refused."""
        self._flush()
        self._forget(partitions)

    def _forget(self, partitions: list[TopicPartition]) -> None:
        for place in partitions:
            self._printed.pop(place.partition, None)
            self._committed.pop(place.partition, None)
