"""Slow batches: a hint when those of a sink take longer than their trigger."""

from __future__ import annotations

from moldau.spark.pipeline.run.progress import SinkProgress

# So many in a row are no accident.
IN_A_ROW = 5


class SlowBatches:
    """The latest batches of one sink with something in them."""

    def __init__(self, trigger: str, trigger_s: float) -> None:
        self._trigger = trigger
        self._trigger_s = trigger_s
        self._slow: list[float] = []
        self._has_hinted = False

    @property
    def is_slow(self) -> bool:
        return len(self._slow) >= IN_A_ROW

    def note(self, progress: SinkProgress) -> str:
        """Take one more batch; return a hint when it is the one that makes the sink slow, once."""
        if not self._trigger_s or not progress.batch_rows:
            return ""
        if progress.batch_s <= self._trigger_s:
            self._slow.clear()
            return ""
        self._slow = [*self._slow, progress.batch_s][-IN_A_ROW:]
        if not self.is_slow or self._has_hinted:
            return ""
        self._has_hinted = True
        mean_s = sum(self._slow) / len(self._slow)
        return (
            f"sink {progress.sink}: the last {IN_A_ROW} batches took {mean_s:.1f} s each, longer "
            f"than the trigger of {self._trigger}, so batches follow each other without a pause; "
            "set a longer 'trigger', or give Spark more cores (--master)"
        )
