"""Small requests at a steady rate, and how long each answer takes."""

from __future__ import annotations

import select
import sys
import time

from bench.tasks import PacedRequests, RoundTrips
from moldau.bench.load.requests import produce_sender


def paced_requests(task: PacedRequests) -> RoundTrips:
    sender = produce_sender(task.host, task.port, task.topic, task.size)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    sent: list[float] = []
    took: list[float] = []
    interval = 1 / task.rate
    due = answered = time.monotonic()
    while True:
        # Also the pacing: the wait ends when the next request is due or the bench has had enough.
        stop, _, _ = select.select([sys.stdin], [], [], max(0.0, due - time.monotonic()))
        if stop:
            return RoundTrips(sent, took)
        # A request held up behind a slow one counts from when it was due: it was slow as well.
        start = due if answered > due else time.monotonic()
        sender.round_trip()
        answered = time.monotonic()
        sent.append(start)
        took.append(answered - start)
        due += interval
