"""Redrives: dead letters of a share group go back to the topics that they came from, once each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, Self

from confluent_kafka import KafkaException
from confluent_kafka import TopicPartition as Position

from moldau.client.connection import librdkafka_settings
from moldau.client.errors import ClientError, words_of
from moldau.client.letters.ahead import offsets_in, text_of
from moldau.client.letters.letter_topic import TIMEOUT_S, LetterTopic, Ranges
from moldau.client.letters.mover import AT_ONCE, Headers, Mover
from moldau.client.producer.partitioner import partition_for_key

PREFIX = "__dlq.errors."


class Letter(NamedTuple):
    """A dead letter: the message as it was, where it was, why it was given up, its own place."""

    topic: str
    partition: int
    reason: str
    key: bytes | None
    value: bytes | None
    headers: Headers
    at: tuple[int, int]


# Takes a letter; returns it with the key and value that it is to have, or None if it stays.
Choose = Callable[[Letter], Letter | None]


class Redrive:
    """Moves the dead letters of one group out of their topic: all of them, or chosen ones.

    The letters stay where they are, and how far they were moved is committed for a group of this
    name: `moldau-redrive.GROUP`, with the chosen ones behind that position as its text. That
    happens in the transaction that writes the messages, so that none is moved twice, whenever a
    redrive ends or another begins. Letters that come after the redrive began are left for the next
    one.
    """

    def __init__(
        self,
        group: str,
        topic: str,
        *,
        choose: Choose | None = None,
        bootstrap: str | None = None,
        **settings: Any,
    ) -> None:
        self.group = group
        self.topic = topic
        self._choose = choose
        name = f"moldau-redrive.{group}"
        config = librdkafka_settings(bootstrap, settings)
        self._letter_topic = LetterTopic(topic, config, name)
        self._mover = Mover(config, name, group)
        # Where the redrive begins and ends.
        self._ranges: Ranges = {}
        # By partition, what was moved behind where it begins.
        self._ahead: dict[int, set[int]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *problem: object) -> None:
        self._letter_topic.__exit__(*problem)

    def claim(self) -> None:
        """End whatever redrive of this group came before; it fails from here on."""
        self._mover.claim()

    def plan(self) -> Counter[tuple[str, str]]:
        """Return how many letters there are to move, by topic and reason.

        ClientError if a topic is gone that letters came from.
        """
        try:
            self._ranges = self._look()
            found = Counter((letter.topic, letter.reason) for letter in self._letters())
            topics = {topic for topic, _ in found}
            self._mover.require_topics(self._letter_topic.consumer, topics)
        except KafkaException as problem:
            raise ClientError(
                f"dead letters of {self.group}: {words_of(problem.args[0])}", problem.args[0]
            ) from None
        return found

    def move(self, moved: Callable[[int], None] | None = None) -> int:
        """Move what was planned; return how many. `moved` is told the number now and then."""
        total = 0
        batch: list[Letter] = []
        for letter in self._letters():
            batch.append(letter)
            if len(batch) == AT_ONCE:
                self._write(batch)
                total += len(batch)
                batch = []
                if moved is not None:
                    moved(total)
        if batch or self._choose is None:
            self._write(batch)
        return total + len(batch)

    def _write(self, letters: list[Letter]) -> None:
        """Write messages, and how far the letters were read, in one transaction."""

        def write() -> None:
            for each in letters:
                self._mover.send(each.topic, each.partition, each.key, each.value, each.headers)
            member = self._letter_topic.consumer.consumer_group_metadata()
            send = self._mover.producer.send_offsets_to_transaction
            self._mover.insist(
                lambda left_s: send(positions, member, left_s),
                "could not record how far letters were moved",
            )

        positions = self._positions(letters)
        self._mover.commit(write)

    def _positions(self, letters: list[Letter]) -> list[Position]:
        """Return what is to be committed with these letters."""
        if self._choose is None:
            reached = self._letter_topic.read
        else:
            reached = {each.at[0]: self._ranges[each.at[0]][0] for each in letters}
            for index, offset in (each.at for each in letters):
                self._ahead[index].add(offset)
        return [
            Position(self.topic, index, offset, text_of(offset, self._ahead[index]))
            for index, offset in reached.items()
        ]

    def _look(self) -> Ranges:
        """Return the offsets of all partitions that were not moved so far."""
        ranges = self._letter_topic.ranges()
        places = [Position(self.topic, index) for index in ranges]
        found = {}
        for place in self._letter_topic.consumer.committed(places, TIMEOUT_S):
            if place.error is not None:
                raise KafkaException(place.error)
            low, high = ranges[place.partition]
            found[place.partition] = max(place.offset, low), high
            self._ahead[place.partition] = offsets_in(place.offset, place.metadata)
        return found

    def _letters(self) -> Iterator[Letter]:
        """Yield the group's letters of the ranges, as they are to be sent."""
        before = {index: frozenset(offsets) for index, offsets in self._ahead.items()}
        for message in self._letter_topic.messages(self._ranges):
            found = _letter(message)
            if found is None or found[0] != self.group:
                continue
            letter = found[1]
            index, offset = letter.at
            if offset in before[index]:
                continue
            chosen = letter if self._choose is None else self._choose(letter)
            if chosen is not None:
                yield self._placed(letter, chosen)

    def _placed(self, letter: Letter, chosen: Letter) -> Letter:
        """Send a letter with another key to the partition of that key."""
        count = self._mover.sizes.get(chosen.topic)
        if chosen.key is None or chosen.key == letter.key or count is None:
            return chosen
        return chosen._replace(partition=partition_for_key(chosen.key, count))


def _letter(message: Any) -> tuple[str, Letter] | None:
    """Return a dead letter and the group that gave it up; None for what is none."""
    told: dict[str, str] = {}
    kept: Headers = []
    for name, value in message.headers() or []:
        if name.startswith(PREFIX):
            told[name.removeprefix(PREFIX)] = (value or b"").decode(errors="replace")
        else:
            kept.append((name, value))
    topic, partition = told.get("topic"), told.get("partition", "")
    if not topic or not partition.isdecimal():
        return None
    letter = Letter(
        topic, int(partition), told.get("message", ""), message.key(), message.value(), kept,
        (int(message.partition() or 0), int(message.offset() or 0)),
    )  # fmt: skip
    return told.get("group", ""), letter
