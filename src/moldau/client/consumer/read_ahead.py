"""Read-ahead: messages that an iterated consumer has fetched but not yet handed out."""

from __future__ import annotations

import threading

from moldau.client.consumer.batch import Batch, RawMessage, place_of
from moldau.topic_partition import TopicPartition


class ReadAhead:
    """A batch that is being given out, what follows it, and what belongs to paused partitions.

    Filled and emptied by the thread that iterates; `stop` may come from any.
    """

    def __init__(self) -> None:
        self._batch = Batch([])
        self._next: list[RawMessage] = []
        self._held: list[RawMessage] = []
        self._lock = threading.Lock()
        self._asked = True

    def add(self, raws: list[RawMessage]) -> None:
        self._next += raws

    def begin(self) -> Batch | None:
        """Return the next batch to give out; None when more has to be fetched."""
        with self._lock:
            # An iteration that was broken off leaves part of its batch.
            raws = self._batch.cut() + self._next
            self._next = []
            self._batch = Batch(raws)
        return self._batch if raws else None

    def asked(self) -> None:
        """The message given out last is done: the next one has been asked for."""
        self._asked = True

    def given(self) -> None:
        self._asked = False

    def stop(self) -> None:
        with self._lock:
            self._next = self._batch.cut() + self._next

    def unfinished(self, last_is_done: bool) -> list[RawMessage]:
        with self._lock:
            unfinished = self._batch.left() + self._next + self._held
            last = self._batch.last
        if last is not None and not last_is_done and not self._asked:
            unfinished.insert(0, last)
        return unfinished

    def drop(self, unwanted: set[TopicPartition] | None) -> None:
        with self._lock:
            if unwanted is None:
                self._batch.cut()
                self._next, self._held = [], []
                return
            self._batch.cut(lambda raw: place_of(raw) in unwanted)
            self._next = [raw for raw in self._next if place_of(raw) not in unwanted]
            self._held = [raw for raw in self._held if place_of(raw) not in unwanted]

    def hold(self, paused: set[TopicPartition]) -> None:
        """Keep the messages of these partitions back."""
        with self._lock:
            self._held += self._batch.cut(lambda raw: place_of(raw) in paused)
            self._held += [raw for raw in self._next if place_of(raw) in paused]
            self._next = [raw for raw in self._next if place_of(raw) not in paused]

    def release(self, resumed: set[TopicPartition]) -> None:
        with self._lock:
            released = [raw for raw in self._held if place_of(raw) in resumed]
            self._held = [raw for raw in self._held if place_of(raw) not in resumed]
            self._next = released + self._next

    def assigned(self, came: list[TopicPartition]) -> None:
        return None

    def hand_over(self, going: set[TopicPartition]) -> None:
        self.hold(going)
