"""One of a consumer's streams."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from itertools import chain

from moldau.client.consumer.batch import Batch, RawMessage, place_of
from moldau.client.consumer.decoding import Decoder
from moldau.client.errors import ClientError
from moldau.client.message import ConsumedMessage
from moldau.topic_partition import TopicPartition


class MessageStream:
    """An iterator over the messages of some of a topic's partitions, for one thread.

    It waits for more instead of ending. `stop`, from any thread, ends it after the message in hand;
    `messages(timeout)` ends by itself. An error (an undecodable message, a broker that refuses) is
    raised once, and the next `next()` goes on after it.
    """

    def __init__(self, number: int, decoder: Decoder, taken: threading.Event) -> None:
        self.number = number
        self._taken = taken
        self._decoder = decoder
        self._changed = threading.Condition()
        self._batches: deque[Batch] = deque()
        self._current: Batch | None = None
        self._held: list[RawMessage] = []
        self._errors: deque[ClientError] = deque()
        self._stopped = False
        self._reader: int | None = None
        self._own_chain: Iterator[ConsumedMessage] | None = None

    def __iter__(self) -> Iterator[ConsumedMessage]:
        return chain.from_iterable(_Taken(self, None))

    def __next__(self) -> ConsumedMessage:
        if self._own_chain is None:
            self._own_chain = iter(self)
        try:
            return next(self._own_chain)
        except (ClientError, StopIteration):
            self._own_chain = None
            raise

    def messages(self, timeout: float) -> Iterator[ConsumedMessage]:
        """Messages as they come, for `timeout` seconds in all."""
        deadline = time.monotonic() + timeout
        for message in chain.from_iterable(_Taken(self, deadline)):
            yield message
            if time.monotonic() >= deadline:
                return

    def stop(self) -> None:
        """End the iteration once the message in hand is done."""
        with self._changed:
            self._stopped = True
            if self._current is not None:
                self._batches.appendleft(Batch(self._current.cut()))
            self._changed.notify_all()

    @property
    def stopped(self) -> bool:
        return self._stopped

    @property
    def queued(self) -> int:
        """How many messages wait in it."""
        with self._changed:
            return sum(map(len, self._batches))

    def put(self, raws: list[RawMessage]) -> None:
        with self._changed:
            self._batches.append(Batch(raws))
            self._changed.notify_all()

    def fail(self, error: ClientError) -> None:
        with self._changed:
            self._errors.append(error)
            self._changed.notify_all()

    def drop(self, unwanted: set[TopicPartition] | None) -> None:
        """Forget what has not been given out of these partitions, or at all."""

        def unwanted_raw(raw: RawMessage) -> bool:
            return unwanted is None or place_of(raw) in unwanted

        with self._changed:
            self._cut(unwanted_raw)
            self._held = [raw for raw in self._held if not unwanted_raw(raw)]

    def hold(self, going: set[TopicPartition]) -> None:
        """Give out nothing more of these partitions."""
        with self._changed:
            self._held += self._cut(lambda raw: place_of(raw) in going)

    def _cut(self, unwanted: Callable[[RawMessage], bool]) -> list[RawMessage]:
        current = [] if self._current is None else [self._current]
        return [raw for batch in (*current, *self._batches) for raw in batch.cut(unwanted)]

    def unfinished(self, last_is_done: bool) -> list[RawMessage]:
        """Return the messages that have not been handed out, and the current one.

        The latter not if it counts as done and no other thread has it in hand.
        """
        with self._changed:
            found: list[RawMessage] = []
            current = self._current
            if current is not None:
                if current.last is not None and not (last_is_done and self._is_read_here()):
                    found.append(current.last)
                found += current.left()
            for batch in self._batches:
                found += batch.left()
            return found + self._held

    def _is_read_here(self) -> bool:
        """Return whether the reader is this thread, or one that has ended."""
        others = {thread.ident for thread in threading.enumerate()} - {threading.get_ident()}
        return self._reader not in others

    def wait_until_done(self, went: set[TopicPartition], deadline: float) -> None:
        """Wait, until the deadline at most, while a message of these partitions is worked on."""

        def done() -> bool:
            last = None if self._current is None else self._current.last
            return self._stopped or last is None or place_of(last) not in went

        with self._changed:
            self._changed.wait_for(done, max(0.0, deadline - time.monotonic()))

    def take(self, deadline: float | None) -> Iterator[ConsumedMessage] | None:
        """Return the next messages, waited for; None at the end of the stream."""
        with self._changed:
            self._reader = threading.get_ident()
            if self._current is not None:
                # The rest of an iteration that was broken off.
                left = self._current.cut()
                if left:
                    self._batches.appendleft(Batch(left))
                self._current = None
                self._changed.notify_all()
            while True:
                if self._stopped:
                    return None
                if self._errors:
                    raise self._errors.popleft()
                while self._batches:
                    batch = self._batches.popleft()
                    if len(batch):
                        self._current = batch
                        self._taken.set()
                        return self._decoder.messages(batch.raws, batch.iterator())
                remaining = None if deadline is None else deadline - time.monotonic()
                if remaining is not None and remaining <= 0:
                    return None
                self._changed.wait(remaining)


class _Taken:
    """The messages of a stream, batch by batch."""

    def __init__(self, stream: MessageStream, deadline: float | None) -> None:
        self._stream = stream
        self._deadline = deadline

    def __iter__(self) -> _Taken:
        return self

    def __next__(self) -> Iterator[ConsumedMessage]:
        messages = self._stream.take(self._deadline)
        if messages is None:
            raise StopIteration
        return messages
