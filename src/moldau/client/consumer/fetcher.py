"""librdkafka's consumer, and the bookkeeping of offsets around it.

librdkafka counts a message as consumed when it hands it over. Ours are handed over in batches, and
must not be committed before somebody has worked on them; so librdkafka's own offset store is off,
and what is done is worked out when it is needed: its position, less what lies unfinished here.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

import confluent_kafka
from confluent_kafka import KafkaError
from confluent_kafka import TopicPartition as Position

from moldau.client.consumer.batch import RawMessage, first_offsets
from moldau.client.consumer.positions import places
from moldau.client.consumer.subscription import WholeTopics
from moldau.client.errors import ConsumeFailed, words_of
from moldau.topic_partition import TopicPartition

STORE_EVERY_S = 0.5
SEEK_WITHIN_S = 10.0
# While messages come in masses, a batch is given a moment to fill: a reader that runs ahead of the
# network would otherwise wake up for every few of them.
BUSY_WAIT_S = 0.005

PartitionsHandler = Callable[[list[TopicPartition]], object]

_PROTOCOL, _CLASSIC, _CONSUMER = "group.protocol", "classic", "consumer"
# What only the classic protocol knows: librdkafka refuses it in the other.
_OF_CLASSIC = frozenset(
    {
        "group.protocol.type",
        "heartbeat.interval.ms",
        "partition.assignment.strategy",
        "session.timeout.ms",
    }
)


class Buffer(Protocol):
    """The buffer of fetched messages that have not been handed out."""

    def add(self, raws: list[RawMessage]) -> None: ...

    def unfinished(self, last_is_done: bool) -> list[RawMessage]:
        """Messages not given out; also those given out and still worked on, unless told."""
        ...

    def drop(self, unwanted: set[TopicPartition] | None) -> None:
        """Forget the messages of these partitions, or all."""
        ...

    def assigned(self, came: list[TopicPartition]) -> None: ...

    def hand_over(self, going: set[TopicPartition]) -> None:
        """Give out nothing more of these partitions, and wait for what is being worked on.

        What is held back stays unfinished until it is dropped.
        """
        ...


class Fetcher:
    """One thread fetches at a time; offsets may be asked for from any.

    A member speaks the protocol of KIP-848 if `brokers_assign`, unless the settings say otherwise,
    or have what only the classic one knows. That is found out when it subscribes: before, there
    need not be a broker.
    """

    def __init__(
        self,
        settings: Mapping[str, Any],
        buffer: Buffer,
        in_group: bool,
        brokers_assign: Callable[[], bool] = lambda: False,
    ) -> None:
        self._settings = dict(settings)
        self.handle = confluent_kafka.Consumer(dict(settings))
        self._brokers_assign = brokers_assign
        self._may_choose = not self._settings.keys() & {_PROTOCOL, *_OF_CLASSIC}
        self.buffer = buffer
        self.on_assign: PartitionsHandler | None = None
        self.on_revoke: PartitionsHandler | None = None
        commits = str(settings["enable.auto.commit"]).lower() in ("true", "1")
        self._stores = in_group and commits
        self._whole_topics: WholeTopics | None = None
        # Kept here, because librdkafka asks its own thread for it and holds the interpreter's lock
        # while it waits: with a rebalance at the same time, both wait for ever.
        self.assignment: frozenset[TopicPartition] = frozenset()
        self._subscribed = False
        self._busy = False
        self._stored = time.monotonic()
        self._last_is_done = False

    def subscribe(self, names: list[str]) -> None:
        """As a member of the group."""
        if self._may_choose:
            self._choose_protocol(names)
        self._whole_topics = None
        self._subscribed = True
        self.handle.subscribe(
            names, on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._lost
        )

    def _choose_protocol(self, names: list[str]) -> None:
        """Speak the protocol that suits the subscription.

        Patterns are left to the classic one: in the other, brokers match them, whole names only,
        and a member hears of what they found with its second heartbeat, seconds later.
        """
        before = self._settings.get(_PROTOCOL, _CLASSIC)
        wanted = _CLASSIC
        if not any(name.startswith("^") for name in names):
            wanted = _CONSUMER if before == _CONSUMER or self._brokers_assign() else _CLASSIC
        if wanted != before:
            self.handle.close()
            self.assignment = frozenset()
            self._settings[_PROTOCOL] = wanted
            self.handle = confluent_kafka.Consumer(dict(self._settings))

    def read_whole(self, topics: WholeTopics) -> None:
        """Every partition, without a group."""
        self.handle.unassign()
        self.assignment = frozenset()
        self._whole_topics = topics
        self.refresh()

    def assign(self, partitions: list[Position]) -> None:
        self._whole_topics = None
        self._subscribed = False
        self.handle.assign(partitions)
        self.assignment = frozenset(places(partitions))
        self.buffer.assigned(places(partitions))

    def refresh(self) -> None:
        """Take in partitions that have come into being, if it is time to look."""
        if self._whole_topics is None or not self._whole_topics.due():
            return
        try:
            new = self._whole_topics.new_partitions(self.handle)
        except confluent_kafka.KafkaException as problem:
            error = problem.args[0]
            raise ConsumeFailed(
                f"could not get the list of topics: {words_of(error)}", error, None, None
            ) from None
        if new:
            self.handle.incremental_assign(new)
            self._tell_assigned(places(new))

    def fetch(self, most: int, wait_s: float) -> list[RawMessage]:
        """Return what is there, or the first that comes within the wait; may be nothing.

        Raises `ConsumeFailed` where librdkafka reports an error; messages fetched beside it are in
        the buffer then.
        """
        self.refresh()
        raws = self.handle.consume(most, min(wait_s, BUSY_WAIT_S) if self._busy else 0)
        self._busy = len(raws) > most // 4
        if not raws:
            # To consume with a wait would wait until the batch is full.
            raw = self.handle.poll(wait_s)
            if raw is None:
                return []
            raws = [raw, *self.handle.consume(most - 1, 0)] if most > 1 else [raw]
        if any(map(RawMessage.error, raws)):
            return self._without_errors(raws)
        return raws

    def _without_errors(self, raws: list[RawMessage]) -> list[RawMessage]:
        good = [raw for raw in raws if raw.error() is None]
        for raw in raws:
            error = raw.error()
            if error is not None and error.code() != KafkaError._PARTITION_EOF:
                self.buffer.add(good)
                topic, partition = raw.topic(), raw.partition()
                place = f"{topic} [{partition}]: " if topic else ""
                raise ConsumeFailed(f"{place}{words_of(error)}", error, topic, partition)
        return good

    def done_offsets(self, last_is_done: bool) -> list[Position]:
        """For each partition read from, the offset after the last message that is done."""
        # Unfinished messages are checked last: in the meantime more may be done, but no more
        # fetched.
        position = self.handle.position([Position(*place) for place in self.assignment])
        unfinished = first_offsets(self.buffer.unfinished(last_is_done))
        found = []
        for at in position:
            offset = unfinished.get((at.topic, at.partition), at.offset)
            if offset >= 0:
                found.append(Position(at.topic, at.partition, offset))
        return found

    def store(self, last_is_done: bool, only: Iterable[TopicPartition] | None = None) -> None:
        """Tell librdkafka what is done; it commits that when its interval is over."""
        self._stored = time.monotonic()
        if not self._stores:
            return
        offsets = self.done_offsets(last_is_done)
        if only is not None:
            wanted = set(only)
            offsets = [at for at in offsets if (at.topic, at.partition) in wanted]
        for at in offsets:
            try:
                self.handle.store_offsets(offsets=[at])
            except confluent_kafka.KafkaException as problem:
                # The partition has just been given away: its new owner goes on from the commit.
                if problem.args[0].code() not in (KafkaError._STATE, KafkaError._INVALID_ARG):
                    raise

    def store_if_due(self, last_is_done: bool) -> None:
        if self._stores and time.monotonic() - self._stored > STORE_EVERY_S:
            self.store(last_is_done)

    def seek(self, target: Position) -> None:
        """Go on elsewhere.

        Outside of a group, by assigning the partition anew: librdkafka may otherwise still be
        asking where it begins, and goes there when the answer comes.
        """
        if not self._subscribed:
            self.handle.incremental_unassign([Position(target.topic, target.partition)])
            self.handle.incremental_assign([target])
            self.buffer.drop({(target.topic, target.partition)})
            return
        # A partition that has only just been assigned takes a moment.
        deadline = time.monotonic() + SEEK_WITHIN_S
        while True:
            try:
                self.handle.seek(target)
                break
            except confluent_kafka.KafkaException as problem:
                if time.monotonic() > deadline:
                    raise ConsumeFailed(
                        f"cannot seek in {target.topic} [{target.partition}]: "
                        f"{words_of(problem.args[0])}",
                        problem.args[0],
                        target.topic,
                        target.partition,
                    ) from None
                self.buffer.add(self.fetch(1, 0.05))
        self.buffer.drop({(target.topic, target.partition)})

    def close(self, last_is_done: bool) -> None:
        self._last_is_done = last_is_done
        self.store(last_is_done)
        self.handle.close()

    def _assigned(self, handle: object, partitions: list[Position]) -> None:
        self._tell_assigned(places(partitions))

    def _tell_assigned(self, came: list[TopicPartition]) -> None:
        self.assignment |= set(came)
        self.buffer.assigned(came)
        if self.on_assign is not None:
            self.on_assign(came)

    def _revoked(self, handle: object, partitions: list[Position]) -> None:
        went = places(partitions)
        self.buffer.hand_over(set(went))
        self.store(self._last_is_done, only=went)
        self._forget(went)
        if self.on_revoke is not None:
            self.on_revoke(went)

    def _lost(self, handle: object, partitions: list[Position]) -> None:
        # Somebody else owns them already: nothing may be committed.
        went = places(partitions)
        self._forget(went)
        if self.on_revoke is not None:
            self.on_revoke(went)

    def _forget(self, went: list[TopicPartition]) -> None:
        self.assignment -= set(went)
        self.buffer.drop(set(went))
