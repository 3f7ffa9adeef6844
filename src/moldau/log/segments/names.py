"""Names of the files of a segment.

Each is the segment's base offset in 20 digits and a suffix for what it holds. What follows that is
the state of the file: on its way out, or on its way in.
"""

from __future__ import annotations

import re

LOG_SUFFIX = ".log"
INDEX_SUFFIX = ".index"
TIME_INDEX_SUFFIX = ".timeindex"
# Aborted transactions
TXN_INDEX_SUFFIX = ".txnindex"
SUFFIXES = (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX)
# Producer snapshots lie beside the segments and are named alike, by the offset they were taken at.
SNAPSHOT_SUFFIX = ".snapshot"

# Out of the log, and about to be removed.
DELETED_SUFFIX = ".deleted"
# Being written by compaction, and worth nothing until it is whole.
CLEANED_SUFFIX = ".cleaned"
# Whole, and about to replace the segments that it covers.
SWAP_SUFFIX = ".swap"

SEGMENT_FILE = re.compile(r"(\d{20})(\.log|\.index|\.timeindex|\.txnindex|\.snapshot)")


def path_of(folder: str, base: int, suffix: str) -> str:
    return f"{folder}/{base:020d}{suffix}"
