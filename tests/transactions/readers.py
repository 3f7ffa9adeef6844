"""Readers: consumers that read partitions from their beginning on, in threads of their own."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from typing import Self

from confluent_kafka import OFFSET_BEGINNING, Consumer
from confluent_kafka import TopicPartition as Position

from tests.scenarios.clients import IMPATIENT
from tests.scenarios.ledger import TopicPartition, Wrong
from tests.transactions.copiers import take
from tests.transactions.history import Reading

PATIENCE_S = 90.0
ANOTHER_S = 10.0


def reader(bootstrap: str, *, is_committed: bool) -> Consumer:
    return Consumer(
        {
            **IMPATIENT,
            "bootstrap.servers": bootstrap,
            "group.id": "-",
            "enable.auto.commit": False,
            "isolation.level": "read_committed" if is_committed else "read_uncommitted",
            # What retention has deleted is jumped over; the checker knows what may be.
            "auto.offset.reset": "earliest",
            "fetch.wait.max.ms": 100,
            "check.crcs": True,
            "enable.partition.eof": True,
        }
    )


class Reader:
    """Reads on and on until the `with` block ends; `reading` is what it got."""

    def __init__(
        self,
        bootstrap: str,
        places: Sequence[TopicPartition],
        name: str,
        *,
        is_committed: bool,
    ) -> None:
        self.reading = Reading(name, is_committed)
        self.problems: list[str] = []
        self._ends: dict[TopicPartition, int] = {}
        self._bootstrap = bootstrap
        self._consumer = reader(bootstrap, is_committed=is_committed)
        self._consumer.assign([Position(*place, OFFSET_BEGINNING) for place in places])
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *problem: object) -> None:
        self._is_over.set()
        self._thread.join(PATIENCE_S)

    def _run(self) -> None:
        try:
            while not self._is_over.is_set():
                self.reading.seen += take(self._consumer, 500, 0.2, self._ends)
        except Exception as problem:
            self.problems.append(f"{self.reading.name} failed: {problem!r}")
        finally:
            self._consumer.close()

    def wait_until_at(self, ends: Mapping[TopicPartition, int]) -> None:
        """Return when it has read up to these offsets."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            at = dict(self._ends)
            behind = {
                place: (at.get(place), end)
                for place, end in ends.items()
                if at.get(place, -1) < end
            }
            if not behind:
                return
            if self.problems:
                raise Wrong(self.problems[0])
            if time.monotonic() > deadline:
                shown = {str(place): found for place, found in behind.items()}
                another = self._ends_of_another(list(behind))
                raise Wrong(
                    f"{self.reading.name} is stuck at (of) {shown}; another consumer that begins "
                    f"there gets to {another}"
                )
            time.sleep(0.05)

    def _ends_of_another(self, places: Sequence[TopicPartition]) -> dict[str, int]:
        """How far a new consumer gets: then it is this one that is stuck, and not the brokers."""
        at, ends = dict(self._ends), dict[TopicPartition, int]()
        deadline = time.monotonic() + ANOTHER_S
        another = reader(self._bootstrap, is_committed=self.reading.is_committed)
        try:
            another.assign([Position(*place, at.get(place, OFFSET_BEGINNING)) for place in places])
            while time.monotonic() < deadline and len(ends) < len(places):
                take(another, 500, 0.2, ends)
        finally:
            another.close()
        return {str(place): end for place, end in ends.items()}
