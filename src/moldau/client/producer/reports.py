"""Delivery reports: who asks librdkafka for them, and when.

librdkafka takes and gives back the interpreter's lock for each report. A thread that did nothing
but poll would, beside a busy sender, wait a switch interval (5 ms) for every single one. So reports
are served by whoever sends, when a flag says that it is time; a background thread sets the flag,
and polls itself only when nobody sends or somebody waits.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from moldau.client.errors import DeliveryFailed

if TYPE_CHECKING:
    from confluent_kafka import Producer as Handle

    from moldau.client.producer.handles import Closed

TICK_S = 0.005
WAITING_POLL_S = 0.1
JOIN_WITHIN_S = 5.0
# A producer whose user never looks may fail without end; of these, the first tell the story.
KEPT_FAILURES = 1000
_MERGES_HEAP_BYTES = 8192

log = logging.getLogger("moldau.client")

ErrorHandler = Callable[[DeliveryFailed], object]


class DeliveryReports:
    """Serves the delivery reports of one producer, and keeps the failures nobody has claimed.

    `due` is read by senders after every message, from any thread; `serve` is what they then call.
    """

    handle: Handle | Closed

    def __init__(self, on_error: ErrorHandler | None) -> None:
        self.due = True
        self._on_error = on_error
        self._awaited = 0
        self._parked = False
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._closed = False
        self._failures: list[DeliveryFailed] = []
        self._more_failures = 0
        self._thread: threading.Thread | None = None

    def serve(self) -> None:
        """Serve what has come, without waiting."""
        self.due = self._awaited > 0
        if self._thread is None:
            self._start()
        if self._parked:
            self._wake.set()
        self.handle.poll(0)
        # Messages leave the heap in small pieces. glibc merges them when something large is asked
        # for; without that, the next ones end up scattered over them, at a tenth more per message.
        bytes(_MERGES_HEAP_BYTES)

    @contextmanager
    def awaited(self) -> Iterator[None]:
        """Inside, somebody waits: reports are served as they come."""
        with self._lock:
            self._awaited += 1
        self.due = True
        if self._thread is None:
            self._start()
        self._wake.set()
        try:
            yield
        finally:
            with self._lock:
                self._awaited -= 1

    def unclaimed(self, failure: DeliveryFailed) -> None:
        """A failure that no result will tell anybody about."""
        if self._on_error is not None:
            try:
                self._on_error(failure)
            except Exception:
                log.exception("the producer's error handler failed on: %s", failure)
            return
        with self._lock:
            if self._closed:
                log.error("%s", failure)
            elif len(self._failures) < KEPT_FAILURES:
                self._failures.append(failure)
            else:
                self._more_failures += 1

    def raise_unclaimed(self) -> None:
        """Raise what has failed since the last time, if anything."""
        with self._lock:
            failures, self._failures = self._failures, []
            more, self._more_failures = self._more_failures, 0
        if failures:
            first = failures[0]
            first.others = tuple(failures[1:])
            if len(failures) + more > 1:
                first.add_note(f"and {len(failures) + more - 1} more messages")
            raise first

    def close(self) -> None:
        self._closed = True
        self._wake.set()
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(JOIN_WITHIN_S)

    def _start(self) -> None:
        with self._lock:
            if self._thread is not None or self._closed:
                return
            self._thread = threading.Thread(
                target=self._run, name="moldau-delivery-reports", daemon=True
            )
        self._thread.start()

    def _run(self) -> None:
        while not self._closed:
            try:
                self._turn()
            except Exception:
                log.exception("a delivery report could not be handled")

    def _turn(self) -> None:
        if self._awaited:
            self.due = True
            self.handle.poll(WAITING_POLL_S)
            return
        if self.due:
            # Nobody has sent, and so served, since the last tick.
            self.handle.poll(0)
        self._wake.clear()
        # Flag and mark go up before the look at the queue, and a sender looks at them after its
        # message is queued: one of the two sees the other, and no message is left alone.
        self.due = self._parked = True
        if len(self.handle) > 0:
            self._parked = False
        if not self._is_needed():
            self._wake.wait(None if self._parked else TICK_S)
        self._parked = False

    def _is_needed(self) -> bool:
        return self._awaited > 0 or self._closed
