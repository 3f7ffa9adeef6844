"""The consumer."""

from __future__ import annotations

import threading
import time as clock
from collections.abc import Iterator
from itertools import chain
from typing import Any, Self

import confluent_kafka
from confluent_kafka import OFFSET_STORED
from confluent_kafka import TopicPartition as Position

from moldau.client.connection import librdkafka_settings
from moldau.client.consumer.decoding import DecodeErrorHandler, Decoder
from moldau.client.consumer.feeder import StreamFeeder
from moldau.client.consumer.fetcher import Fetcher, PartitionsHandler
from moldau.client.consumer.positions import NAMED_OFFSETS, offset_number, partition_list
from moldau.client.consumer.read_ahead import ReadAhead
from moldau.client.consumer.stream import MessageStream
from moldau.client.consumer.subscription import WholeTopics
from moldau.client.errors import ClientError, words_of
from moldau.client.message import ConsumedMessage, Timestamp, timestamp_ms
from moldau.topic_partition import TopicPartition

PARTITION_REFRESH_S = 5.0
POLL_S = 0.1
MAX_BATCH = 1000
FIRST_BATCH = 100
# Fetched messages should last about this long, so that they delay neither a rebalance nor the
# group's poll interval.
BATCH_TIME_S = 0.5
REQUEST_TIMEOUT_S = 10.0


class Consumer:
    """Reads messages.

    With a `group`, its members share the partitions among them, and the group remembers how far it
    has read. They speak the protocol of KIP-848 where brokers have it, unless `group_protocol` says
    otherwise, a pattern is subscribed to, or a setting is given that only the classic one knows
    (`session_timeout_ms`, `partition_assignment_strategy`).

    Without a group, this consumer sees everything, from `start` ("earliest" or "latest") on,
    and remembers nothing. Address and settings are given as for a `Producer`.

    Offsets are committed every few seconds and on closing (Kafka's `enable.auto.commit`), never
    beyond what has been given out. A message counts as done when the next one is asked for, or when
    the consumer is closed; not when the `with` block is left by an exception.

    One thread reads at a time. `stop` may be called from any thread, `commit` from the one that
    reads; with streams, each has a thread of its own and the consumer's methods may be called from
    any of them.
    """

    def __init__(
        self,
        bootstrap: str | None = None,
        group: str | None = None,
        start: str = "earliest",
        *,
        key_deserializer: Any = None,
        value_deserializer: Any = None,
        on_undecodable: DecodeErrorHandler | None = None,
        partition_refresh_s: float = PARTITION_REFRESH_S,
        **settings: Any,
    ) -> None:
        if start not in NAMED_OFFSETS:
            raise ValueError(f"start must be earliest or latest, not {start!r}")
        config = librdkafka_settings(
            bootstrap,
            settings,
            defaults={
                # librdkafka wants a group's name even where there is none to take part in.
                "group.id": group or "moldau-no-group",
                "auto.offset.reset": start,
                "enable.auto.commit": group is not None,
                "enable.auto.offset.store": False,
                # How long a partition rests when enough is fetched ahead; at librdkafka's one
                # second, a fast reader has long worked that off and waits.
                "fetch.queue.backoff.ms": 20,
            },
        )
        self.group = group
        self.commits_by_itself = str(config["enable.auto.commit"]).lower() == "true"
        self._start = NAMED_OFFSETS[start]
        self._refresh_s = partition_refresh_s
        self._ahead = ReadAhead()
        self._feeder: StreamFeeder | None = None
        self._fetcher = Fetcher(
            config,
            self._ahead,
            group is not None,
            lambda: _brokers_assign(str(config["bootstrap.servers"]), settings),
        )
        self._decoder = Decoder(key_deserializer, value_deserializer, on_undecodable)
        self._batch_size = FIRST_BATCH
        self._began = clock.monotonic()
        self._stopped = threading.Event()
        self._closed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *problem: object) -> None:
        self._close(last_is_done=kind is None)

    def subscribe(
        self,
        *topics: str,
        pattern: str | None = None,
        on_assign: PartitionsHandler | None = None,
        on_revoke: PartitionsHandler | None = None,
    ) -> None:
        """Read these topics, and those whose names match the pattern; replaces what was before.

        The handlers are called with (topic, partition) pairs when partitions come and go.
        """
        names = list(topics)
        if pattern is not None:
            names.append(pattern if pattern.startswith("^") else f"^{pattern}")
        if not names:
            raise ValueError("name a topic or give a pattern to subscribe to")
        self._check_open()
        self._fetcher.on_assign, self._fetcher.on_revoke = on_assign, on_revoke
        self._fetcher.buffer.drop(None)
        if self.group is None:
            self._fetcher.read_whole(WholeTopics(names, self._start, self._refresh_s))
        else:
            self._fetcher.subscribe(names)

    def assign(self, *partitions: Any) -> None:
        """Read exactly these: (topic, partition) pairs, or triples with the offset to start at."""
        self._check_open()
        self._fetcher.buffer.drop(None)
        default = self._start if self.group is None else OFFSET_STORED
        self._fetcher.assign(partition_list(partitions, default))

    def assignment(self) -> list[TopicPartition]:
        """Return the partitions that are read."""
        return sorted(self._fetcher.assignment)

    def create_message_streams(self, topic: str, n: int = 1) -> list[MessageStream]:
        """Read a topic as n streams, each for a thread of its own.

        The partitions are spread evenly over the streams; a partition feeds one stream, in order.
        A stream that is not drained pauses its own partitions and no others.
        """
        if n < 1:
            raise ValueError(f"{n} streams are too few; ask for at least one")
        self._check_open()
        if self._feeder is not None:
            raise ClientError("this consumer already has streams; create another consumer")
        self._feeder = self._fetcher.buffer = StreamFeeder(n, self._decoder)
        self.subscribe(topic)
        self._feeder.start(self._fetcher)
        return self._feeder.streams

    createMessageStreams = create_message_streams

    def __iter__(self) -> Iterator[ConsumedMessage]:
        """Messages as they come; waits for more instead of ending, until `stop`."""
        return self.messages()

    def messages(self, timeout: float | None = None) -> Iterator[ConsumedMessage]:
        """Messages as they come, for `timeout` seconds in all."""
        self._check_open()
        if self._feeder is not None:
            raise ClientError("this consumer has streams; read from those")
        self._stopped.clear()
        if timeout is None:
            return chain.from_iterable(_Fetched(self))
        return self._messages_until(clock.monotonic() + timeout)

    def poll(self, timeout: float = 0.0) -> ConsumedMessage | None:
        """Return the next message, or None when none comes within the timeout."""
        return next(self.messages(timeout), None)

    def stop(self) -> None:
        """End the iteration, and all streams, once the message in hand is done. From any thread."""
        self._stopped.set()
        self._ahead.stop()
        if self._feeder is not None:
            self._feeder.stop()

    def commit(self, message: ConsumedMessage | None = None, *, wait: bool = True) -> None:
        """Commit what has been given out, or everything up to and including this message.

        With streams, what other threads have in hand is not committed.
        """
        if self.group is None:
            raise ClientError("a consumer without a group cannot commit; give it a group")
        if message is not None:
            offsets = [Position(message.topic, message.partition, message.offset + 1)]
        else:
            offsets = self._fetcher.done_offsets(last_is_done=True)
        if not offsets:
            return
        try:
            if wait:
                for done in self._fetcher.handle.commit(offsets=offsets, asynchronous=False):
                    if done.error is not None:
                        raise confluent_kafka.KafkaException(done.error)
            else:
                self._fetcher.handle.commit(offsets=offsets, asynchronous=True)
        except confluent_kafka.KafkaException as problem:
            raise _failed("offsets were not committed", problem) from None

    def committed(self, *partitions: Any) -> dict[TopicPartition, int | None]:
        """Return the group's offsets, of these partitions or of those that are read."""
        try:
            found = self._fetcher.handle.committed(self._chosen(partitions), REQUEST_TIMEOUT_S)
        except confluent_kafka.KafkaException as problem:
            raise _failed("could not get the committed offsets", problem) from None
        return {(at.topic, at.partition): at.offset if at.offset >= 0 else None for at in found}

    def position(self) -> dict[TopicPartition, int]:
        """For each partition read from, the offset of the message to be given out next."""
        done = self._fetcher.done_offsets(last_is_done=True)
        return {(at.topic, at.partition): at.offset for at in done}

    def seek(
        self,
        topic: str,
        partition: int | None = None,
        *,
        offset: int | str | None = None,
        time: Timestamp | None = None,
    ) -> None:
        """Go on at an offset (a number, "earliest" or "latest"), or at the first message of a time.

        In one partition, or in all of the topic's that are read. Not for a consumer with streams.
        """
        if self._feeder is not None:
            raise ClientError("a consumer with streams cannot seek; use `assign` and iterate")
        if (offset is None) == (time is None):
            raise ValueError("give either an offset or a time to seek to")
        number = 0 if offset is None else offset_number(offset)
        targets = [
            Position(name, found, number)
            for name, found in self.assignment()
            if name == topic and partition in (None, found)
        ]
        if not targets:
            raise ClientError(
                f"{topic} is not assigned to this consumer"
                if partition is None
                else f"{topic} [{partition}] is not assigned to this consumer"
            )
        if time is not None:
            for target in targets:
                target.offset = timestamp_ms(time)
            try:
                targets = self._fetcher.handle.offsets_for_times(targets, REQUEST_TIMEOUT_S)
            except confluent_kafka.KafkaException as problem:
                raise _failed(f"could not get the offsets of {topic}", problem) from None
        for target in targets:
            self._fetcher.seek(target)

    def rewind(self) -> None:
        """Go back to what the group has committed: what came after it is given out again."""
        for (topic, partition), offset in self.committed().items():
            number = self._start if offset is None else offset
            self._fetcher.seek(Position(topic, partition, number))

    def progress(self) -> tuple[list[Position], Any]:
        """Return the offsets of what has been given out, and this member of its group.

        A transaction needs both.
        """
        offsets = self._fetcher.done_offsets(last_is_done=True)
        return offsets, self._fetcher.handle.consumer_group_metadata()

    def pause(self, *partitions: Any) -> None:
        """Give out nothing more of these partitions, or of all, until `resume`."""
        chosen = self._chosen(partitions)
        self._fetcher.handle.pause(chosen)
        paused = {(at.topic, at.partition) for at in chosen}
        self._ahead.hold(paused)
        if self._feeder is not None:
            self._feeder.hold(paused)

    def resume(self, *partitions: Any) -> None:
        """Go on with paused partitions, or with all."""
        chosen = self._chosen(partitions)
        resumed = {(at.topic, at.partition) for at in chosen}
        self._ahead.release(resumed)
        if self._feeder is not None:
            self._feeder.release(resumed)
        self._fetcher.handle.resume(chosen)

    def close(self) -> None:
        """Commit, leave the group, and let go."""
        self._close(last_is_done=True)

    def _close(self, last_is_done: bool) -> None:
        if self._closed:
            return
        self._closed = True
        self.stop()
        if self._feeder is not None:
            self._feeder.close()
        self._fetcher.close(last_is_done)

    def _check_open(self) -> None:
        if self._closed:
            raise RuntimeError("the consumer is closed")

    def _chosen(self, partitions: tuple[Any, ...]) -> list[Position]:
        if partitions:
            return partition_list(partitions, 0)
        return [Position(*place) for place in self.assignment()]

    def _messages_until(self, deadline: float) -> Iterator[ConsumedMessage]:
        while (messages := self._next_messages(deadline)) is not None:
            for message in messages:
                yield message
                if clock.monotonic() >= deadline:
                    return

    def _next_messages(self, deadline: float | None = None) -> Iterator[ConsumedMessage] | None:
        """Return the next batch, waited for; None once stopped or when the deadline is over."""
        self._ahead.asked()
        self._adapt()
        while not self._stopped.is_set() and not self._closed:
            batch = self._ahead.begin()
            if batch is None:
                wait_s = POLL_S
                if deadline is not None:
                    wait_s = max(0.0, min(POLL_S, deadline - clock.monotonic()))
                self._ahead.add(self._fetcher.fetch(self._batch_size, wait_s))
                self._fetcher.store_if_due(last_is_done=False)
                batch = self._ahead.begin()
            if batch is not None:
                self._ahead.given()
                self._began = clock.monotonic()
                return self._decoder.messages(batch.raws, batch.iterator())
            if deadline is not None and clock.monotonic() >= deadline:
                return None
        return None

    def _adapt(self) -> None:
        """Make batches as large as can be worked off in time."""
        took = clock.monotonic() - self._began
        if took > BATCH_TIME_S:
            self._batch_size = max(1, int(self._batch_size * BATCH_TIME_S / took))
        elif took < BATCH_TIME_S / 4:
            self._batch_size = min(MAX_BATCH, self._batch_size * 2)


class _Fetched:
    """The messages of a consumer, batch by batch; continues after an error."""

    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer

    def __iter__(self) -> _Fetched:
        return self

    def __next__(self) -> Iterator[ConsumedMessage]:
        messages = self._consumer._next_messages()
        if messages is None:
            raise StopIteration
        return messages


def _brokers_assign(bootstrap: str, settings: dict[str, Any]) -> bool:
    from moldau.client.brokers import assign_to_groups

    return assign_to_groups(bootstrap, settings)


def _failed(what: str, problem: confluent_kafka.KafkaException) -> ClientError:
    error = problem.args[0]
    return ClientError(f"{what}: {words_of(error)}", error)
