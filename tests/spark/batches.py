"""Record batches for tests: strategies, and what a decoder should make of them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import strategies as st

from moldau.records.record import Record, build_batch, build_end_marker

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
LATEST_MS = 4_000_000_000_000

small_bytes = st.none() | st.binary(max_size=40)
headers = st.lists(st.tuples(st.text(max_size=5), small_bytes), max_size=3)


@st.composite
def record_lists(draw: st.DrawFn, base: int = 0) -> list[Record]:
    """Records with rising offsets, with gaps as compaction leaves them."""
    records = []
    offset = base
    for _ in range(draw(st.integers(1, 12))):
        offset += draw(st.integers(0, 3))
        records.append(
            Record(
                offset,
                draw(st.integers(-1, LATEST_MS)),
                draw(small_bytes),
                draw(small_bytes),
                draw(headers),
            )
        )
        offset += 1
    return records


def as_row(
    record: Record, topic: str, partition: int, append_time: int | None = None
) -> dict[str, Any]:
    """The row that a record should become."""
    milliseconds = record.timestamp if append_time is None else append_time
    pairs = [{"key": name, "value": content} for name, content in record.headers]
    return {
        "key": record.key,
        "value": record.value,
        "topic": topic,
        "partition": partition,
        "offset": record.offset,
        "timestamp": EPOCH + timedelta(milliseconds=milliseconds),
        "timestampType": 0 if append_time is None else 1,
        "headers": pairs or None,
    }


def select(rows: Sequence[dict[str, Any]], columns: Sequence[str]) -> list[dict[str, Any]]:
    return [{name: row[name] for name in columns} for row in rows]


def transactional(offset: int, producer_id: int) -> bytearray:
    """A batch of one record, in a transaction."""
    record = Record(offset, 0, None, b"%d" % offset)
    return build_batch([record], producer_id=producer_id, producer_epoch=0, is_transactional=True)


def marked(offset: int, producer_id: int, commits: bool) -> bytearray:
    """What ends a transaction."""
    marker = build_end_marker(
        commits=commits, coordinator_epoch=0, producer_id=producer_id, producer_epoch=0, timestamp=0
    )
    marker[:8] = offset.to_bytes(8, "big")
    return marker
