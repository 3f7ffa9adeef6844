"""The status writer: tells the brokers how a pipeline is, and hears when it is asked to stop."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Self

import msgspec

from moldau.client.pipelines.status import EVERY_MS, TOPIC, PipelineStatus, Request
from moldau.client.pipelines.status_topic import StatusTopic
from moldau.peer.cluster import Cluster
from moldau.peer.errors import PeerError, Refused
from moldau.peer.retries import PeerSettings
from moldau.peer.view import parse_bootstrap
from moldau.spark.errors import log

# How often the topic is read for requests, and progress is written at most. A change of state is
# written with the next look.
LOOK_EVERY_S = 1.0
PROGRESS_EVERY_S = 5.0
# After brokers did not answer.
RETRY_EVERY_S = 15.0
# How long the end of a pipeline waits until its last status is written.
LAST_WITHIN_S = 5.0


class StatusWriter:
    """Writes from a thread of its own, so that brokers which do not answer hold up nothing.

    `tell` may be called from any thread; only the latest status counts. What goes wrong is logged
    once, and the pipeline goes on without.
    """

    def __init__(
        self,
        bootstrap: str,
        settings: PeerSettings,
        first: PipelineStatus,
        on_stop: Callable[[Request], None],
    ) -> None:
        self._bootstrap = bootstrap
        self._settings = settings
        self._status = first
        self._written: PipelineStatus | None = None
        self._written_at = float("-inf")
        self._on_stop = on_stop
        self._is_asked = False
        self._has_warned = False
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="moldau-status", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *problem: object) -> None:
        self._ending.set()
        self._thread.join(LAST_WITHIN_S)

    def tell(self, status: PipelineStatus) -> None:
        """Have this written soon, unless a later one comes before."""
        self._status = status

    def _run(self) -> None:
        while True:
            try:
                with Cluster(parse_bootstrap(self._bootstrap), self._settings) as cluster:
                    topic = StatusTopic(cluster)
                    topic.require()
                    if self._follow(topic):
                        return
            except PeerError as problem:
                self._warn(problem)
                if isinstance(problem, Refused) and not problem.is_retriable:
                    return
            if self._ending.wait(RETRY_EVERY_S):
                return

    def _follow(self, topic: StatusTopic) -> bool:
        """Write and read until the pipeline ends; True then."""
        while True:
            is_last = self._ending.wait(LOOK_EVERY_S)
            self._write(topic, is_last)
            if is_last:
                if self._is_asked:
                    topic.withdraw(self._status.name)
                return True
            self._look(topic)

    def _write(self, topic: StatusTopic, is_last: bool) -> None:
        status, written = self._status, self._written
        age_s = time.monotonic() - self._written_at
        is_due = (
            written is None
            or status.state != written.state
            or (status is not written and (is_last or age_s >= PROGRESS_EVERY_S))
            # Somewhat sooner than others expect it.
            or age_s >= EVERY_MS / 1000 * 0.8
        )
        if is_due:
            topic.write(msgspec.structs.replace(status, at_ms=int(time.time() * 1000)))
            self._written, self._written_at = status, time.monotonic()

    def _look(self, topic: StatusTopic) -> None:
        status = self._status
        request = topic.read().requests.get(status.name)
        is_new = request is not None and request.is_for(status.name, status.run, status.started_ms)
        if request is not None and is_new and not self._is_asked:
            self._is_asked = True
            self._on_stop(request)

    def _warn(self, problem: PeerError) -> None:
        if not self._has_warned:
            self._has_warned = True
            log.warning(
                "could not write the status of pipeline %s to topic %s: %s; the pipeline continues",
                self._status.name,
                TOPIC,
                problem,
            )
