"""Pauses between a failure and the next start: each twice as long as the one before."""

from __future__ import annotations

from dataclasses import dataclass

from moldau.spark.pipeline.file.intervals import seconds_of
from moldau.spark.pipeline.file.settings import RestartSettings


@dataclass(slots=True)
class Pauses:
    """The failures in a row. One after a finished batch is the first of another row."""

    limit: int
    first_s: float
    longest_s: float
    failures: int = 0

    @classmethod
    def of(cls, settings: RestartSettings) -> Pauses:
        first, longest = seconds_of(settings.first_pause), seconds_of(settings.longest_pause)
        return cls(settings.limit, first, max(first, longest))

    def after_failure(self, has_progress: bool) -> float | None:
        """Return how long to wait before the next start; None if there is none any more.

        `has_progress` is whether a batch was finished since the last start.
        """
        self.failures = 1 if has_progress else self.failures + 1
        if self.failures > self.limit:
            return None
        # No power of two is needed beyond the longest pause, and large ones are no floats.
        return float(min(self.first_s * 2 ** min(self.failures - 1, 30), self.longest_s))
