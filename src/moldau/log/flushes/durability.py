"""The durability of a log: what of it is known to be on disk."""

from __future__ import annotations

from moldau.log.producers.snapshots import Snapshots
from moldau.log.producers.states import ProducerStates
from moldau.log.segments.segments import Segments

# After so many bytes a flush also takes a producer snapshot, which bounds what recovery reads.
_SNAPSHOT_BYTES = 16 << 20
NEW = -1


class Durability:
    """How much of the changes to a log's files and names has been forced to disk. Event loop only.

    `names` and `truncations` are the segments' `names_made` and the log's `truncations` as of the
    last flush; `names` is NEW when nothing of the log's folder is known to be on disk. The next
    recovery believes all before `recovery_point`, by the checkpoint that lies on disk; whoever
    writes that sets it, on any thread.
    """

    __slots__ = ("_snapped_base", "_snapped_size", "names", "recovery_point", "truncations")

    def __init__(self, segments: Segments) -> None:
        self.names = 0
        self.truncations = 0
        self.recovery_point = 0
        # The active segment at the last snapshot: its base offset and its size.
        last = segments.items[-1]
        self._snapped_base = last.base
        self._snapped_size = last.batches.size

    def mark_new(self) -> None:
        """Nothing of the log's folder is known to be on disk."""
        self.names = NEW

    def take_snapshot(
        self, at: int, snapshots: Snapshots, producers: ProducerStates, segments: Segments
    ) -> None:
        """Write the producer state as of `at`, so that recovery need not read what lies before."""
        if at not in snapshots.offsets:
            snapshots.take(at, producers, segments.bases)
        self.snapped(segments)

    def snapped(self, segments: Segments) -> None:
        """Note that a snapshot has the producers as of now."""
        self._snapped_base = segments.last.base
        self._snapped_size = segments.last.size

    def has_grown(self, segments: Segments) -> bool:
        """Return whether so much was written since the last snapshot that another is due."""
        last = segments.last
        before = self._snapped_size if last.base == self._snapped_base else 0
        return last.size - before >= _SNAPSHOT_BYTES

    def is_worth_a_snapshot(self, segments: Segments) -> bool:
        """Return whether a log without producers has so much that loading must not read it all."""
        return segments.size >= _SNAPSHOT_BYTES
