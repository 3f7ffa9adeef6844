"""The life of a broker with its data folder, and the traces of the previous one."""

from __future__ import annotations

import logging
from collections.abc import Collection

from moldau.log.errors import StorageError
from moldau.log.files.disk import remove_file
from moldau.log.log import Log
from moldau.log.store.ends import FILE_NAME as ENDS_FILE
from moldau.log.store.ends import LogEnds, expect_registration
from moldau.log.store.last_life import LastLife, last_life, leave_marker, new_marker, take_marker
from moldau.topic_partition import TopicPartition

logger = logging.getLogger("moldau.log")


class Life:
    """From one opening of the folder to its close. Event loop only; all but `note` may block.

    What the folder tells of the `last` life stays until `begin`, or is there again for the next
    start if that is never called. From `begin` on `log-ends` is kept (see `ends`). A life that ends
    well leaves the marker `.kafka_cleanshutdown` with the epoch of the broker's registration; after
    a crash there is none, and `log-ends` is as it was at that moment.
    """

    def __init__(self, folder: str) -> None:
        self.last = LastLife()
        self._folder = folder
        self.epoch = -1
        self._ends: LogEnds | None = None
        self._ends_path = f"{folder}/{ENDS_FILE}"

    def find_last(
        self,
        recovery_points: dict[TopicPartition, int] | None,
        high_watermarks: dict[TopicPartition, int],
    ) -> bool:
        """Learn of the last life; whether it ended well. The marker of that is gone then."""
        marker = take_marker(self._folder)
        self.last = last_life(self._folder, marker, recovery_points, high_watermarks)
        return marker is not None

    def begin(self, registration: int, logs: Collection[Log]) -> None:
        """Record where the logs end from now on: the traces of the last life have been processed.

        Without room for it there are no such notes, and a crash counts as a loss.
        """
        ends, self.last = self.last.ends, LastLife()
        try:
            self._ends = LogEnds(self._ends_path, registration)
            for log in logs:
                least = 0
                if log.offline is not None and log.topic_id is not None and ends is not None:
                    # Damaged: it should end where it did.
                    least = ends.end_of(log.topic_id, log.partition)
                self.note(log, max(log.log_end, least))
        except StorageError as error:
            logger.error(
                "cannot record where logs end, so a crash will count as a power failure: %s", error
            )
            remove_file(self._ends_path)

    def expect_registration(self, registration: int) -> None:
        """The broker is about to get another registration than this one, or to arrive."""
        if self._ends is not None:
            self._ends.expect_registration(registration)
        elif (ends := self.last.ends) is not None:
            self.last.ends = expect_registration(self._ends_path, ends, registration)

    def registered(self, epoch: int, registration: int) -> None:
        """The broker is registered with this epoch, under this number."""
        self.epoch = epoch
        if self._ends is not None:
            self._ends.register(registration)

    def note(self, log: Log, end: int) -> None:
        """There is a log that ends here: from now on it writes its end down itself."""
        if self._ends is not None and log.topic_id is not None:
            log.end_entry = self._ends.take(log.topic_id, log.partition, end)

    def forget(self, log: Log) -> None:
        """Somebody gave the log up, and does not miss it at the next start."""
        if self._ends is not None and log.end_entry is not None:
            self._ends.drop(log.end_entry)
            log.end_entry = None

    def end_well(self, logs: Collection[Log]) -> None:
        """Everything is flushed and closed: leave word of that. OSError if the disk refuses."""
        if self._ends is not None:
            for log in logs:
                if log.end_entry is not None:
                    self._ends.note_size(log.end_entry, log.segments.stored_size)
            self._ends.stop(self.epoch)
        leave_marker(self._folder, new_marker(self.epoch))

    def leave_as_found(self) -> None:
        """Leave the same signs for the next start as there were for this one."""
        if self.last.marker is not None:
            leave_marker(self._folder, self.last.marker)

    def close(self) -> None:
        """Let go of the files."""
        if self._ends is not None:
            self._ends.close()
