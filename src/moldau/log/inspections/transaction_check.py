"""Transaction checks: whether the indexes of a log know all that was aborted in it. Any thread."""

from __future__ import annotations

import os
import time

from moldau.log.segments.aborted_index import ENTRY_SIZE, unpack_entries
from moldau.log.segments.names import LOG_SUFFIX, TXN_INDEX_SUFFIX
from moldau.records.batch import BatchError, BatchHeader
from moldau.records.record import read_end_marker

# How often, and how far apart, an index is looked at again: a broker may be about to write it.
_LOOKS = 5
_LOOK_AGAIN_S = 0.02


class TransactionCheck:
    """Follows the batches of a log in their order, segment by segment."""

    def __init__(self) -> None:
        # Producer id to the first offset of its open transaction.
        self._open: dict[int, int] = {}
        # (producer id, offset of the marker) to the first offset, of the segment at hand.
        self._aborted: dict[tuple[int, int], int] = {}

    def follow(self, header: BatchHeader, batch: memoryview) -> None:
        """Take note of the next batch."""
        if not header.is_transactional or not header.count:
            return
        if not header.is_control:
            self._open.setdefault(header.producer_id, header.base_offset)
            return
        try:
            marker = read_end_marker(batch)
        except BatchError:
            return
        if marker is not None:
            first = self._open.pop(header.producer_id, None)
            if first is not None and not marker.commits:
                self._aborted[header.producer_id, header.base_offset] = first

    def forget(self) -> None:
        """Let go of a segment that could not be read to its end, and of what is open there."""
        self._open.clear()
        self._aborted.clear()

    def end_segment(self, log_path: str) -> list[tuple[str, int, str, bool]]:
        """Compare what was aborted in a segment with its index: (path, position, reason, heals)."""
        aborted, self._aborted = self._aborted, {}
        path = log_path.removesuffix(LOG_SUFFIX) + TXN_INDEX_SUFFIX
        for _ in range(_LOOKS):
            content = _read(path)
            known = {(entry[1], entry[3]): entry[2] for entry in unpack_entries(content)}
            missing = [key for key, first in aborted.items() if known.get(key, first + 1) > first]
            if not missing or not os.path.exists(log_path):
                break
            time.sleep(_LOOK_AGAIN_S)
        else:
            producer_id, offset = missing[0]
            reason = f"the transaction of producer {producer_id} aborted at {offset} is missing"
            return [(path, len(content), reason, False)]
        torn = len(content) % ENTRY_SIZE
        return [(path, len(content) - torn, "the last entry is torn", True)] if torn else []


def _read(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except FileNotFoundError:
        return b""
