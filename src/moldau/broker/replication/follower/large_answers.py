"""Large answers: many megabytes for one partition, taken piece by piece.

The settings bound an answer, but a batch is always sent whole. A thread writes a large one, and
between two pieces the loop serves others. Everything may change meanwhile: whether this broker
still follows, whom, and from where. So each piece is taken as an answer of its own, which has to
count still.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

from moldau.broker.replication.follower.followed import Followed, Next
from moldau.records.batch import HEADER_SIZE, read_header
from moldau.wire.fetch.response import FetchedPartition

# More than answers have by default, so that it concerns only those with very large batches.
LARGE = 16 << 20
# What is taken at once, and the largest batch that the loop writes itself.
PIECE = 4 << 20


def pieces(records: memoryview) -> Iterator[memoryview]:
    """Split records between batches, into as much as is taken at once, or a batch that is more.

    What is no whole batch comes last.
    """
    start = end = 0
    while len(records) - end >= HEADER_SIZE:
        size = read_header(records, end).size
        if size < HEADER_SIZE or size > len(records) - end:
            break
        if start < end and end + size - start > PIECE:
            yield records[start:end]
            start = end
        end += size
    if start < end < len(records):
        yield records[start:end]
        start = end
    yield records[start:]


async def take_in_pieces(
    followed: Followed, fetched: FetchedPartition, question: int, is_current: Callable[[], bool]
) -> Next:
    """Apply a large answer, as long as it `is_current`; see `Followed.take`."""
    parts = list(pieces(fetched.records))
    for part in parts:
        fetched.records = part
        prewrite = followed.begin_prewrite(part, question) if len(part) > PIECE else None
        try:
            if prewrite is not None:
                await asyncio.to_thread(prewrite.run)
            elif part is not parts[0]:
                await asyncio.sleep(0)
            if not is_current():
                return Next.STAY
            outcome = followed.take(fetched, question, is_part=part is not parts[-1])
        finally:
            if prewrite is not None:
                prewrite.end()
        if outcome not in (Next.MOVE, Next.FLUSH):
            break
    return outcome
