"""Fetching for streams, in a thread of its own."""

from __future__ import annotations

import logging
import threading
import time

import confluent_kafka
from confluent_kafka import TopicPartition as Position

from moldau.client.consumer.batch import RawMessage, place_of
from moldau.client.consumer.decoding import Decoder
from moldau.client.consumer.fetcher import Fetcher
from moldau.client.consumer.stream import MessageStream
from moldau.client.errors import ClientError, ConsumeFailed
from moldau.topic_partition import TopicPartition

BATCH = 1000
POLL_S = 0.1
# While a stream is paused, this loop has to check whether it has been drained.
PAUSED_POLL_S = 0.01
FULL = 2000
DRAINED = 500
GRACE_S = 0.1
HAND_OVER_S = 5.0
JOIN_WITHIN_S = 10.0

log = logging.getLogger("moldau.client")


class StreamFeeder:
    """Spreads partitions over streams and keeps the streams filled.

    It is the buffer of the fetcher it drives, so that rebalances find their way to the streams.
    """

    def __init__(self, n: int, decoder: Decoder) -> None:
        self._taken = threading.Event()
        self.streams = [MessageStream(number, decoder, self._taken) for number in range(n)]
        self._stream_of: dict[TopicPartition, MessageStream] = {}
        self._paused: set[TopicPartition] = set()
        self._user_paused: set[TopicPartition] = set()
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self, fetcher: Fetcher) -> None:
        self._thread = threading.Thread(
            target=self._run, args=(fetcher,), name="moldau-streams", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """Stop the streams and the thread."""
        for stream in self.streams:
            stream.stop()
        self._closing.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(JOIN_WITHIN_S)

    def stop(self) -> None:
        for stream in self.streams:
            stream.stop()

    def _run(self, fetcher: Fetcher) -> None:
        try:
            while not self._closing.is_set():
                self._turn(fetcher)
        except Exception as problem:
            log.exception("the streams of a consumer have ended")
            error = ClientError(f"the stream has ended: {problem}")
            error.__cause__ = problem
            for stream in self.streams:
                stream.fail(error)

    def _turn(self, fetcher: Fetcher) -> None:
        try:
            self._wait_for_room()
            self._pause_and_resume(fetcher.handle)
            raws = fetcher.fetch(BATCH, PAUSED_POLL_S if self._paused else POLL_S)
        except ConsumeFailed as problem:
            for stream in self._concerned(problem):
                stream.fail(problem)
            return
        self.add(raws)
        fetcher.store_if_due(last_is_done=False)

    def _concerned(self, problem: ConsumeFailed) -> list[MessageStream]:
        stream = self._stream_of.get((problem.topic or "", problem.partition or 0))
        return self.streams if stream is None else [stream]

    def _wait_for_room(self) -> None:
        """Give a full stream a moment, as long as no other has run dry.

        librdkafka forgets what it has fetched ahead of a partition that is paused, so that a pause
        is for readers who are really slow.
        """
        deadline = time.monotonic() + GRACE_S
        while not self._closing.is_set():
            self._taken.clear()
            going = [stream for stream in self.streams if not stream.stopped]
            queued = {stream: stream.queued for stream in going if not self._is_paused(stream)}
            if not any(count >= FULL for count in queued.values()) or 0 in queued.values():
                return
            if not self._taken.wait(max(0.0, deadline - time.monotonic())):
                return

    def _is_paused(self, stream: MessageStream) -> bool:
        return any(self._stream_of.get(place) is stream for place in self._paused)

    def _pause_and_resume(self, handle: confluent_kafka.Consumer) -> None:
        for stream in self.streams:
            queued = stream.queued
            own = {place for place, owner in self._stream_of.items() if owner is stream}
            if queued >= FULL or stream.stopped:
                self._change(handle.pause, own - self._paused)
                self._paused |= own
            elif queued <= DRAINED and own & self._paused:
                self._change(handle.resume, own & self._paused - self._user_paused)
                self._paused -= own

    @staticmethod
    def _change(change: object, chosen: set[TopicPartition]) -> None:
        if chosen:
            change([Position(*place) for place in sorted(chosen)])  # type: ignore[operator]

    def add(self, raws: list[RawMessage]) -> None:
        if len(self.streams) == 1:
            if raws:
                self.streams[0].put(raws)
            return
        parts: dict[MessageStream, list[RawMessage]] = {}
        for raw in raws:
            stream = self._stream_of.get(place_of(raw))
            if stream is None:
                self.assigned([place_of(raw)])
                stream = self._stream_of[place_of(raw)]
            parts.setdefault(stream, []).append(raw)
        for stream, part in parts.items():
            stream.put(part)

    def unfinished(self, last_is_done: bool) -> list[RawMessage]:
        return [raw for stream in self.streams for raw in stream.unfinished(last_is_done)]

    def drop(self, unwanted: set[TopicPartition] | None) -> None:
        for stream in self.streams:
            stream.drop(unwanted)
        for place in unwanted or set(self._stream_of):
            self._stream_of.pop(place, None)
            self._paused.discard(place)
            self._user_paused.discard(place)

    def assigned(self, came: list[TopicPartition]) -> None:
        for place in came:
            if place not in self._stream_of:
                owners = list(self._stream_of.values())
                self._stream_of[place] = min(self.streams, key=owners.count)

    def hand_over(self, going: set[TopicPartition]) -> None:
        for stream in self.streams:
            stream.hold(going)
        deadline = time.monotonic() + HAND_OVER_S
        for stream in self.streams:
            stream.wait_until_done(going, deadline)

    def hold(self, paused: set[TopicPartition]) -> None:
        self._user_paused |= paused

    def release(self, resumed: set[TopicPartition]) -> None:
        self._user_paused -= resumed
