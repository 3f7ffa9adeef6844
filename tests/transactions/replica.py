"""A replica's log as it lies on a disk, read without any of the code that serves it."""

from __future__ import annotations

import time
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

from moldau.records.batch import read_header
from moldau.records.record import read_end_marker, records_of

_PATIENCE_S = 60.0


class Entry(NamedTuple):
    """A record; `commits` says how its transaction ended, None if it has not."""

    offset: int
    value: bytes
    commits: bool | None


def read_replica(folder: Path) -> list[Entry]:
    """All records of a partition on one broker's disk, and what its own markers say of them."""
    content = _content(folder)
    entries: list[Entry] = []
    still_open: defaultdict[int, list[int]] = defaultdict(list)
    position = 0
    while position < len(content):
        header = read_header(content, position)
        if header.is_control:
            # None where the cleaner has left the batch without its record.
            marker = read_end_marker(content, position)
            if marker is not None:
                for at in still_open.pop(header.producer_id, ()):
                    entries[at] = entries[at]._replace(commits=marker.commits)
        else:
            for record in records_of(content, position) if header.count else ():
                if header.is_transactional:
                    still_open[header.producer_id].append(len(entries))
                commits = None if header.is_transactional else True
                entries.append(Entry(record.offset, record.value or b"", commits))
        position += header.size
    return entries


def _content(folder: Path) -> bytes:
    """The bytes of all segments, at a moment when the cleaner changed none of them."""
    deadline = time.monotonic() + _PATIENCE_S
    while True:
        before = _segments(folder)
        try:
            content = b"".join(path.read_bytes() for path, *_ in before)
        except FileNotFoundError:
            pass
        else:
            if before == _segments(folder):
                return content
        if time.monotonic() > deadline:
            raise TimeoutError(f"{folder} changes all the time")


def _segments(folder: Path) -> list[tuple[Path, int, int]]:
    found = []
    for path in sorted(folder.glob("*.log")):
        try:
            state = path.stat()
        except FileNotFoundError:
            continue
        found.append((path, state.st_ino, state.st_size))
    return found
