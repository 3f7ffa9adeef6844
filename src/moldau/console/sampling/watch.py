"""The watch: a thread that takes samples, and tells those who look at the page."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable
from typing import Any

from moldau.console.pool import ClusterPool
from moldau.console.sampling.metrics import BytesOut
from moldau.console.sampling.problems import ERROR, Problem, Problems, Where
from moldau.console.sampling.ring import Ring
from moldau.console.sampling.sample import Sample, Sampler, numbers_of
from moldau.console.settings import ConsoleSettings
from moldau.peer.errors import PeerError
from moldau.topic_partition import TopicPartition

logger = logging.getLogger("moldau.console")

_HOURS = 6
# A cluster so large that a sample takes long is sampled less often.
_MOST_SHARE = 0.1

Listener = Callable[[str, Any], None]


class Watch:
    """Samples the cluster every few seconds from `start` to `stop`; readers may be in any thread.

    `listen` is told of `changed` kinds, new `series` numbers and `problems`, in the event loop.
    """

    def __init__(self, settings: ConsoleSettings, pool: ClusterPool) -> None:
        self._settings = settings
        self._pool = pool
        self._every_s = settings.sample_every_s
        self.ring = Ring(int(_HOURS * 3600 / max(self._every_s, 1.0)))
        self.sample: Sample | None = None
        self.problems: list[Problem] = []
        self._sampler = Sampler()
        self._finder = Problems()
        self._bytes_out = BytesOut(settings.metrics, settings.security, settings.metrics_login)
        self.out_bytes: float | None = None
        self._wake = threading.Event()
        self._is_stopped = False
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._listeners: set[Listener] = set()
        self._seen: dict[str, Any] = {}

    def start(self) -> None:
        if not self._settings.has_login:
            logger.info("the console shows no charts: it has no login to take samples with")
            return
        self._loop = asyncio.get_running_loop()
        self._thread = threading.Thread(target=self._run, name="moldau-watch", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Ask the thread to end; it does so within a request's time."""
        self._is_stopped = True
        self._wake.set()

    def soon(self) -> None:
        """Take the next sample now: something was changed."""
        self._wake.set()

    def listen(self, listener: Listener) -> Callable[[], None]:
        """Tell `listener` from now on; returns what ends that. Event loop only."""
        self._listeners.add(listener)
        return lambda: self._listeners.discard(listener)

    def trend(self, group: str, place: TopicPartition) -> float | None:
        return self._sampler.trend(group, place)

    def read_rate(self, group: str, place: TopicPartition) -> float | None:
        return self._sampler.read_rate(group, place)

    def fresh(self, within_s: float = 30.0) -> Sample | None:
        """Return the last sample, if it is not older than this."""
        sample = self.sample
        if sample is None or time.time() * 1000 - sample.at_ms > within_s * 1000:
            return None
        return sample

    def _run(self) -> None:
        was_down = False
        took_before = 0.0
        while not self._is_stopped:
            began = time.monotonic()
            try:
                with self._pool.borrowed(self._settings.security) as cluster:
                    sample = self._sampler.take(cluster)
                self.out_bytes = self._bytes_out.rate()
                self._take_in(sample)
                was_down = False
            except PeerError as problem:
                if not was_down:
                    logger.warning("could not take a sample of the cluster: %s", problem)
                was_down = True
                self._lost(problem)
            except Exception:
                logger.exception("taking a sample of the cluster failed")
            took = time.monotonic() - began
            # The first one, or one slow moment, says nothing about the next.
            usual, took_before = min(took, took_before), took
            self._wake.wait(max(self._every_s - took, usual / _MOST_SHARE - took, 0.2))
            self._wake.clear()

    def _take_in(self, sample: Sample) -> None:
        numbers = {**numbers_of(sample), "cluster.out_bytes": self.out_bytes}
        self.sample = sample
        self.ring.add(sample.at_ms, numbers)
        problems = self._finder.of(sample)
        kinds = self._changed_kinds(sample)
        if kinds:
            self._tell("changed", {"kinds": kinds})
        self._tell("series", {"at": sample.at_ms, "numbers": numbers})
        if problems != self.problems or "problems" not in self._seen:
            self._seen["problems"] = True
            self.problems = problems
            self._tell("problems", problems)

    def _lost(self, problem: PeerError) -> None:
        where = Where("cluster", self._settings.bootstrap)
        found = [Problem(ERROR, f"the cluster does not answer: {problem}", where, "start a broker")]
        if [each.where for each in self.problems] != [where]:
            found[0].since_ms = int(time.time() * 1000)
            self.problems = found
            self._seen["problems"] = True
            self._tell("problems", found)

    def _changed_kinds(self, sample: Sample) -> list[str]:
        """Return what looks different from the sample before."""
        looks = {
            "cluster": (sample.state.controller, tuple(sorted(sample.state.brokers))),
            "topics": hash((frozenset(sample.state.topics), frozenset(sample.bounds.items()))),
            "groups": hash(
                (
                    frozenset((each.name, each.state) for each in sample.groups.values()),
                    frozenset((name, lag.lag) for name, lag in sample.lags.items()),
                )
            ),
            "pipelines": tuple((each.name, each.state, each.seen_ms) for each in sample.pipelines),
        }
        changed = [kind for kind, look in looks.items() if self._seen.get(kind) != look]
        self._seen |= looks
        return changed

    def _tell(self, event: str, data: Any) -> None:
        loop = self._loop
        if loop is not None and not self._is_stopped:
            try:
                loop.call_soon_threadsafe(self._tell_all, event, data)
            except RuntimeError:
                # The loop has ended, and this thread is about to.
                self._is_stopped = True

    def _tell_all(self, event: str, data: Any) -> None:
        for listener in list(self._listeners):
            listener(event, data)
