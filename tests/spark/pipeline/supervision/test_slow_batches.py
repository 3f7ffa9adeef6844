"""The hint about batches that take longer than their trigger."""

from __future__ import annotations

from moldau.spark.pipeline.run.progress import SinkProgress
from moldau.spark.pipeline.supervision.slow_batches import SlowBatches


def batch(seconds: float, rows: int = 10) -> SinkProgress:
    return SinkProgress("raw", batch_rows=rows, batch_s=seconds)


def test_five_slow_batches_in_a_row_give_one_hint() -> None:
    slow = SlowBatches("1 second", 1.0)
    # One that is quick enough ends a row, and an idle query says nothing.
    noted = [slow.note(batch(s)) for s in (3, 3, 3, 3, 0.5, 2, 2, 2)]
    noted += [slow.note(batch(9, rows=0)), slow.note(batch(2))]
    assert noted == [""] * 10
    hint = slow.note(batch(2))
    assert "the last 5 batches took 2.0 s each, longer than the trigger of 1 second" in hint
    assert [slow.note(batch(2)) for _ in range(9)] == [""] * 9
    assert slow.is_slow


def test_a_quick_batch_ends_it() -> None:
    slow = SlowBatches("1 second", 1.0)
    for seconds in (2, 2, 2, 2, 2, 0.1):
        slow.note(batch(seconds))
    assert not slow.is_slow


def test_without_a_trigger_nothing_is_slow() -> None:
    slow = SlowBatches("0 seconds", 0.0)
    assert [slow.note(batch(60)) for _ in range(9)] == [""] * 9
