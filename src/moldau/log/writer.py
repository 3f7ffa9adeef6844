"""The writable end of a log: staged batches, and the rollback when the disk refuses them."""

from __future__ import annotations

import contextlib

from moldau.log.errors import StorageError
from moldau.log.segments.batch_file import Buffer
from moldau.log.segments.segment import Segment
from moldau.log.segments.segments import Segments


class Writer:
    """Batches of the active segment that have their place there but are not in its file yet.

    A commit writes all of them with one call to the system, or, where the disk refuses, leaves
    segments and files as they were at the commit before. A roll in between writes what is staged,
    but keeps the mark: the new segment goes too if the commit fails.

    `bytes` and `appends` count what was ever written, and in how many batches.

    Event loop only. A crash leaves a prefix of what `write` was called with.
    """

    __slots__ = (
        "active", "appends", "bytes", "failure", "is_closed", "mark", "segments", "staged",
    )  # fmt: skip

    def __init__(self, segments: Segments) -> None:
        self.segments = segments
        # The last segment, once it is ready to be appended to.
        self.active: Segment | None = None
        self.staged: list[Buffer] = []
        # The state at the last commit, once anything has been appended since: the log's end, the
        # active segment and its state.
        self.mark: tuple[int, Segment, tuple[int, ...]] | None = None
        # Nothing is taken: what was staged was lost between two commits, or it is closed.
        self.failure: StorageError | None = None
        self.is_closed = False
        self.bytes = 0
        self.appends = 0

    def raise_failure(self) -> None:
        """Tell that what was staged is lost: once, unless no more is taken at all."""
        failure = self.failure
        if failure is not None:
            if not self.is_closed:
                self.failure = None
            raise failure

    def close(self, reason: StorageError) -> None:
        """Take nothing any more, and write nothing of what is staged. Any thread."""
        self.is_closed = True
        self.failure = reason

    def has_checked(self, batch: Buffer) -> bool:
        """Return whether the CRC of this batch was found right when it was written ahead."""
        prewrite = None if self.active is None else self.active.batches.prewrite
        return prewrite is not None and prewrite.has_checked(batch)

    def activate(self, now_ms: int) -> Segment:
        """Make the last segment ready to be appended to."""
        segment = self.segments.last
        segment.activate(now_ms)
        self.active = segment
        return segment

    def write(self) -> None:
        """Put what is staged into the file of the active segment."""
        staged = self.staged
        if staged:
            segment = self.active
            assert segment is not None
            size = segment.end - segment.batches.size
            segment.write(staged)
            self.bytes += size
            self.appends += len(staged)
            staged.clear()

    def roll(self, base: int, now_ms: int) -> Segment:
        """Write what is staged, close the active segment and begin one at `base`."""
        self.write()
        self.active = segment = self.segments.roll(base, now_ms)
        return segment

    def roll_back(self) -> int | None:
        """Go back to the last commit, in memory and on disk; where the log ended there.

        None if nothing was appended since.
        """
        self.staged.clear()
        mark, self.mark = self.mark, None
        if mark is None:
            return None
        log_end, segment, state = mark
        self.active = segment
        # If the disk refuses, the next write or start does it; the caller reports the error.
        with contextlib.suppress(StorageError):
            self.segments.drop_after(segment)
        with contextlib.suppress(StorageError):
            segment.restore(state)
        return log_end
