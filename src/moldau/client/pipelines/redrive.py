"""Redrives of pipelines: dead letters go back to the topics that they came from, once each.

In one transaction are written: the record, to its origin, and a record of that in the compacted
topic `__moldau_redrives`, by its origin (of a record that was never written there, by the place of
the letter). So both are there, or neither. A redrive first claims the
transactional id of its letters' topic, which aborts what a predecessor has left open, finishes what
it was committing, and makes it fail from there on. Then it reads which letters were moved, up to
the end that the topic has at that moment. A transaction of another redrive may hide what follows
it: that one is waited for, because what it hides may be about our letters.

    crash before the commit      the next claim aborts it: nothing was moved
    crash during or after it     the next claim finishes it; the letters are among those moved
    two redrives at once         the one that claimed first fails at its next commit
    two letters of one record    (from two pipelines, or without transactions) one is moved
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import msgspec
from confluent_kafka import KafkaException

from moldau.client.connection import librdkafka_settings
from moldau.client.errors import ClientError, words_of
from moldau.client.letters.letter_topic import LetterTopic, Ranges
from moldau.client.letters.mover import AT_ONCE, Mover
from moldau.client.pipelines.letters import PipelineLetter, Redriven, letter_of
from moldau.client.pipelines.status_topic import who
from moldau.client.producer.partitioner import partition_for_key
from moldau.peer.cluster import LATEST, Cluster
from moldau.peer.ledger import Ledger

TOPIC = "__moldau_redrives"
_CONFIGS = {"segment.bytes": str(4 << 20), "min.cleanable.dirty.ratio": "0.1"}
# Longer than the transactions of a redrive that was killed stay open.
_OTHERS_WITHIN_S = 90.0

Choose = Callable[[PipelineLetter], bool]
# Takes letters; returns the values that they are to have, and None for those that are to stay.
Edit = Callable[[Sequence[PipelineLetter]], Sequence[bytes | None]]
# Takes a letter; returns the key that it is to have.
Rekey = Callable[[PipelineLetter], bytes | None]


@dataclass(slots=True)
class RedrivePlan:
    """What a redrive would do: how many letters by topic and reason, and how many it leaves."""

    letters: Counter[tuple[str, str]] = field(default_factory=Counter)
    # Moved before, or a second letter of one record.
    moved_before: int = 0
    # Those that the edit gives no value for.
    unedited: int = 0
    # Some letters, with the values that they would have.
    examples: list[tuple[PipelineLetter, bytes | None]] = field(default_factory=list)

    @property
    def count(self) -> int:
        return sum(self.letters.values())


class PipelineRedrive:
    """Moves dead letters out of one topic: those that are chosen, edited if need be.

    Letters that come after it began are left for the next one. For one thread.
    """

    def __init__(
        self,
        topic: str,
        *,
        choose: Choose = lambda _: True,
        edit: Edit | None = None,
        rekey: Rekey | None = None,
        by: str | None = None,
        bootstrap: str | None = None,
        **settings: Any,
    ) -> None:
        self.topic = topic
        name = f"moldau-redrive.{topic}"
        self._choose, self._edit, self._rekey = choose, edit, rekey
        self._by = by or who()
        self._config = librdkafka_settings(bootstrap, settings)
        self._letter_topic = LetterTopic(topic, self._config, name)
        self._name = name
        self._mover = Mover(self._config, name, topic)
        self._ranges: Ranges = {}
        # The id of the letters' topic, empty where brokers have none.
        self._topic_id = ""
        self._is_claimed = False
        # The keys of origins whose letters were moved when the plan was made.
        self._moved: frozenset[bytes] = frozenset()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *problem: object) -> None:
        self._letter_topic.__exit__(*problem)

    def claim(self, cluster: Cluster) -> None:
        """End whatever redrive of these letters came before; it fails from here on."""
        Ledger(cluster, TOPIC, _CONFIGS, lambda key, value, offset: None).require()
        self._mover.claim()
        self._is_claimed = True

    def plan(self, cluster: Cluster, examples: int = 3) -> RedrivePlan:
        """Return what there is to move; ClientError if a topic is gone that letters came from."""
        plan = RedrivePlan()
        try:
            self._moved = self._read_moved(cluster)
            self._topic_id = topic_id_of(cluster, self.topic)
            self._ranges = self._letter_topic.ranges()
            for letters in self._batches(plan):
                for letter, value in letters:
                    plan.letters[letter.origin.topic, letter.reason] += 1
                    if len(plan.examples) < examples:
                        plan.examples.append((letter, value))
            topics = {topic for topic, _ in plan.letters}
            self._mover.require_topics(self._letter_topic.consumer, topics)
        except KafkaException as problem:
            raise ClientError(
                f"dead letters in {self.topic}: {words_of(problem.args[0])}", problem.args[0]
            ) from None
        return plan

    def move(self, moved: Callable[[int], None] | None = None) -> int:
        """Move what was planned; return how many. `moved` is told the number now and then."""
        if not self._is_claimed:
            raise ClientError("claim the redrive before you move its letters")
        total = 0
        for letters in self._batches(RedrivePlan()):
            self._write(letters)
            total += len(letters)
            if moved is not None:
                moved(total)
        return total

    def _write(self, letters: Sequence[tuple[PipelineLetter, bytes | None]]) -> None:
        """Write messages, and that they were moved, in one transaction."""
        now_ms = int(time.time() * 1000)

        def write() -> None:
            for letter, value in letters:
                origin = letter.origin
                key = letter.key if self._rekey is None else self._rekey(letter)
                partition = self._partition(letter, key)
                self._mover.send(origin.topic, partition, key, value, letter.headers)
                redriven = Redriven(
                    letters=self.topic,
                    partition=letter.partition,
                    offset=letter.offset,
                    edited=self._edit is not None or key != letter.key,
                    by=self._by,
                    at_ms=now_ms,
                )
                self._mover.send(TOPIC, 0, self._key(letter), msgspec.json.encode(redriven), [])

        self._mover.commit(write)

    def _key(self, letter: PipelineLetter) -> bytes:
        return letter.key_in(self.topic, self._topic_id)

    def _partition(self, letter: PipelineLetter, key: bytes | None) -> int:
        """Return where a letter goes: back, or where messages with its new key go."""
        count = self._mover.sizes.get(letter.origin.topic)
        if key is None or key == letter.key or count is None:
            return letter.origin.partition
        return partition_for_key(key, count)

    def _batches(self, plan: RedrivePlan) -> Iterator[list[tuple[PipelineLetter, bytes | None]]]:
        """Yield letters to be moved with their values; what is left out is counted in the plan."""
        seen = set(self._moved)
        batch: list[PipelineLetter] = []
        for message in self._letter_topic.messages(self._ranges):
            letter = letter_of(message)
            if letter is None or not self._choose(letter):
                continue
            key = self._key(letter)
            if key in seen:
                plan.moved_before += 1
                continue
            seen.add(key)
            batch.append(letter)
            if len(batch) == AT_ONCE:
                yield self._edited(batch, plan)
                batch = []
        if batch:
            yield self._edited(batch, plan)

    def _edited(
        self, letters: list[PipelineLetter], plan: RedrivePlan
    ) -> list[tuple[PipelineLetter, bytes | None]]:
        if self._edit is None:
            return [(letter, letter.value) for letter in letters]
        values = self._edit(letters)
        found: list[tuple[PipelineLetter, bytes | None]] = [
            (letter, value)
            for letter, value in zip(letters, values, strict=True)
            if value is not None
        ]
        plan.unedited += len(letters) - len(found)
        return found

    def _read_moved(self, cluster: Cluster) -> frozenset[bytes]:
        """Return the keys of all origins whose letters were moved, for certain."""
        if not cluster.metadata([TOPIC]).topics[TOPIC].exists:
            return frozenset()
        place = (TOPIC, 0)
        # The end of all that was written, not of what is committed.
        end = cluster.list_offsets({place: LATEST})[place].offset
        with LetterTopic(TOPIC, self._config, self._name) as records:
            start = records.ranges()[0][0]
            return frozenset(
                key
                for message in records.messages({0: (start, end)}, _OTHERS_WITHIN_S)
                if (key := message.key()) is not None
            )


def topic_id_of(cluster: Cluster, topic: str) -> str:
    """Return a topic's id as keys of redriven letters have it; empty if there is none."""
    found = cluster.metadata([topic]).topics[topic].id
    return "" if found is None else str(found)
