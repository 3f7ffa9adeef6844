"""Stalls of the event loop: how long it served nobody, and what held it.

A timer beats on the loop. A beat that comes late tells how long the loop was held, and a thread
that watches the beats reads from the loop's own stack what it is doing meanwhile. What lies between
two beats counts from the second one, so a stall may have been longer than reported by one beat.

Beats wake the processor, so an idle loop has few. A request that meets one has it beat quickly
again before it is handled.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
import time
from types import FrameType

logger = logging.getLogger("moldau.broker")

# Nothing may hold the loop for longer. If something does, it is a bug or an overloaded machine, and
# is logged.
TOLERATED_S = 0.05
_BEAT_S = 0.02
_IDLE_BEAT_S = 0.1
# The loop is idle after this many beats in a row with at most this much CPU time.
_QUIET_BEATS = 3
_QUIET_CPU_S = 0.0005
# Between two lines about single stalls, and between two summaries.
_QUIET_S = 10.0
_SUMMARY_S = 600.0
_UNSEEN = "cause not seen"


class Stalls:
    """The beats of one event loop. Event loop only, but for the thread that watches it."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        # The longest stall since the start, in seconds, and what held the loop then.
        self.longest_s = 0.0
        self.longest_cause = ""
        # The most CPU time of a stall: what the machine is to blame for is not among it.
        self.most_cpu_s = 0.0
        # How many were longer than is tolerated.
        self.count = 0
        # How long all of these took together.
        self.total_s = 0.0
        self._thread_id = threading.get_ident()
        self._due = 0.0
        self._cause = ""
        self._cpu_s = 0.0
        self.is_idle = False
        self._quiet_beats = 0
        self._timer: asyncio.TimerHandle | None = None
        self._stopped = threading.Event()
        # Since the last summary, and since the last line about a single one.
        self._recent_s = 0.0
        self._recent_count = self._untold = 0
        self._summary_due = self._quiet_until = 0.0

    def start(self) -> None:
        now = time.monotonic()
        self._summary_due = now + _SUMMARY_S
        self._schedule(now)
        threading.Thread(target=self._watch, name="moldau-stalls", daemon=True).start()

    def stop(self) -> None:
        """Stop the beats and log the longest stall."""
        if self._timer is None:
            return
        self._timer.cancel()
        self._stopped.set()
        self._note(time.monotonic())
        self._timer = None
        cause = f" ({self.longest_cause})" if self.longest_cause else ""
        logger.info(
            "longest stall of the event loop: %.0f ms%s; %d were longer than %.0f ms",
            self.longest_s * 1000, cause, self.count, TOLERATED_S * 1000,
        )  # fmt: skip

    def rouse(self) -> None:
        """Beat quickly: an idle loop is about to have something to do."""
        self.is_idle = False
        self._quiet_beats = 0
        if self._timer is not None:
            self._timer.cancel()
            self._note(time.monotonic())
            self._schedule(time.monotonic())

    def _schedule(self, now: float) -> None:
        cpu_s = time.thread_time()
        is_quiet = cpu_s - self._cpu_s < _QUIET_CPU_S
        self._quiet_beats = self._quiet_beats + 1 if is_quiet else 0
        self.is_idle = self._quiet_beats >= _QUIET_BEATS
        interval_s = _IDLE_BEAT_S if self.is_idle else _BEAT_S
        self._due = now + interval_s
        self._cpu_s = cpu_s
        self._timer = self._loop.call_later(interval_s, self._beat)

    def _beat(self) -> None:
        now = time.monotonic()
        self._note(now)
        if now > self._summary_due:
            self._summarize(now)
        self._schedule(now)

    def _note(self, now: float) -> None:
        late_s = now - self._due
        if late_s > self._recent_s:
            self._recent_s = late_s
        if late_s > self.longest_s:
            self.longest_s, self.longest_cause = late_s, self._cause
        if late_s > TOLERATED_S:
            busy_s = min(time.thread_time() - self._cpu_s, late_s)
            self.most_cpu_s = max(self.most_cpu_s, busy_s)
            self._tell(now, late_s, busy_s)
        self._cause = ""

    def _tell(self, now: float, late_s: float, busy_s: float) -> None:
        self.count += 1
        self.total_s += late_s
        self._recent_count += 1
        if now < self._quiet_until:
            self._untold += 1
            return
        more = f"; {self._untold} more since the last line about them" if self._untold else ""
        logger.warning(
            "the event loop was blocked for %.0f ms, with %.0f ms of CPU time: %s%s",
            late_s * 1000, busy_s * 1000, self._cause or _UNSEEN, more,
            extra={
                "held_ms": round(late_s * 1000), "cpu_ms": round(busy_s * 1000),
                "cause": self._cause or _UNSEEN,
            },
        )  # fmt: skip
        self._untold = 0
        self._quiet_until = now + _QUIET_S

    def _summarize(self, now: float) -> None:
        logger.info(
            "stalls of the event loop in the last %.0f minutes: longest %.0f ms, %d over %.0f ms",
            _SUMMARY_S / 60, self._recent_s * 1000, self._recent_count, TOLERATED_S * 1000,
        )  # fmt: skip
        self._recent_s, self._recent_count = 0.0, 0
        self._summary_due = now + _SUMMARY_S

    def _watch(self) -> None:
        """Note, on a thread, what the loop is doing while a beat is late."""
        while not self._stopped.wait(_IDLE_BEAT_S if self.is_idle else _BEAT_S):
            due = self._due
            if time.monotonic() - due > _BEAT_S and not self._cause:
                cause = describe(sys._current_frames().get(self._thread_id))
                if due == self._due:
                    self._cause = cause


def describe(frame: FrameType | None) -> str:
    """Return the innermost functions of ours on a stack, the innermost first."""
    names: list[str] = []
    while frame is not None and len(names) < 3:
        module = frame.f_globals.get("__name__", "")
        if module.startswith("moldau."):
            names.append(f"{module.removeprefix('moldau.')}.{frame.f_code.co_qualname}")
        frame = frame.f_back
    return ", called by ".join(names) or "outside moldau"
