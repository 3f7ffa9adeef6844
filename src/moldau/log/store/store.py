"""A data folder full of logs."""

from __future__ import annotations

import fcntl
import logging
import os
import shutil
import threading
import time
import uuid
from collections.abc import Callable
from functools import partial

from moldau.log.config import LogConfig
from moldau.log.errors import CorruptFile, FolderInUse, LogError, StorageError
from moldau.log.files.checkpoint import (
    HIGH_WATERMARKS,
    LOG_STARTS,
    RECOVERY_POINTS,
    read_offsets,
    write_offsets,
)
from moldau.log.files.disk import remove_file, replace_file
from moldau.log.files.open_files import FilePool
from moldau.log.files.properties import (
    META_PROPERTIES,
    PARTITION_METADATA,
    encode_topic_id,
    read_properties,
    write_properties,
)
from moldau.log.files.trash import Trash
from moldau.log.log import Log
from moldau.log.recovery import Recovered, create_log, load_log
from moldau.log.store import folders
from moldau.log.store.closing import close_logs
from moldau.log.store.ends import FILE_NAME as ENDS_FILE
from moldau.log.store.ends import LogEnds, expect_registration
from moldau.log.store.last_life import LastLife, last_life, leave_marker, new_marker, take_marker
from moldau.topic_partition import TopicPartition

logger = logging.getLogger("moldau.log")

LOCK = ".lock"

# Logs that are open, with a share of the one at hand; all logs; bytes checked.
Progress = Callable[[float, int, int], None]


class LogStore:
    """All logs of a broker, each in `<topic>-<partition>/` of one folder.

    Beside them lie `.lock` (held while the store is open), three checkpoint files (recovery points,
    log starts and high watermarks), `meta.properties`, `log-ends` where there are other replicas
    (see `ends`), and, between a clean stop and the next start, the marker `.kafka_cleanshutdown`
    with the epoch of the broker's registration. Event loop only; `open` and `close` block.

    A crash leaves no marker, so the next start checks what lies after the recovery points. A log
    that is being deleted has been renamed to `<name>.<unique>-delete`, and the next start removes
    what is left of it.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        *,
        defaults: LogConfig,
        max_open_files: int,
        on_progress: Progress | None = None,
    ) -> None:
        self.folder = os.fspath(folder)
        self.defaults = defaults
        self.logs: dict[TopicPartition, Log] = {}
        self.pool = FilePool(max_open_files)
        self.trash = Trash()
        self.recovered = Recovered()
        self.was_clean = False
        self.last_life = LastLife()
        self.broker_epoch = -1
        self._ends: LogEnds | None = None
        self._on_progress = on_progress
        # Checkpoints are written by several threads; an older one must not replace a newer one.
        self._writing = threading.Lock()
        self._prepared = 0
        self._newest_written = self._newest_watermarks = 0
        self._checkpointed: dict[TopicPartition, int] = {}
        self._high_watermarks: dict[TopicPartition, int] = {}
        self._lock: int | None = None

    def open(self) -> None:
        """Lock the folder, which is created if need be, and load all logs.

        FolderInUse if another process has it; StorageError if it cannot be used at all. A single
        log that cannot be trusted is loaded `offline`.
        """
        started = time.perf_counter()
        try:
            os.makedirs(self.folder, exist_ok=True)
            self._take_lock()
            marker = take_marker(self.folder)
            self.was_clean = marker is not None
            recovery_points = self._read_checkpoint(RECOVERY_POINTS)
            log_starts = self._read_checkpoint(LOG_STARTS) or {}
            high_watermarks = self._read_checkpoint(HIGH_WATERMARKS) or {}
            self.last_life = last_life(self.folder, marker, recovery_points, high_watermarks)
            self._checkpointed = log_starts | high_watermarks | (recovery_points or {})
            found = folders.find_logs(self.folder, self.trash)
            if recovery_points is None and not found:
                # From now on a log that the checkpoint does not name is known to be a new one.
                recovery_points = {}
                self.checkpoint()
        except OSError as error:
            self._drop_lock()
            raise StorageError.of(self.folder, error) from error
        except LogError:
            self._drop_lock()
            raise
        for number, (name, key) in enumerate(found):
            if self._on_progress is not None:
                self.recovered.on_progress = partial(self._tell, number, len(found))
            point = None
            if recovery_points is not None:
                point = recovery_points.get(key, None if self.was_clean else 0)
            log = load_log(
                f"{self.folder}/{name}",
                *key,
                self.defaults,
                self.pool,
                self.trash,
                left_clean=self.last_life.left_clean if self.was_clean else None,
                recovery_point=point,
                log_start=log_starts.get(key, 0),
                recovered=self.recovered,
            )
            log.advance_high_watermark(high_watermarks.get(key, log.log_start))
            self.logs[key] = log
            self._tell(number + 1, len(found), 0.0)
        took_ms = (time.perf_counter() - started) * 1000
        if self.was_clean:
            logger.info("opened %d logs after a clean stop in %.0f ms", len(found), took_ms)
        elif found:
            logger.warning(
                "recovered %d logs in %.0f ms: %d bytes checked, %d cut from %d logs, %d offline",
                len(found), took_ms, self.recovered.checked_bytes, self.recovered.cut_bytes,
                self.recovered.cut_logs, self.recovered.offline_logs,
            )  # fmt: skip

    def _tell(self, done: int, logs: int, share: float) -> None:
        if self._on_progress is not None:
            self._on_progress(done + share, logs, self.recovered.checked_bytes)

    def create(
        self, topic: str, partition: int, topic_id: uuid.UUID, config: LogConfig | None = None
    ) -> Log:
        """A new, empty log; StorageError if the disk refuses or there is one already."""
        key = (topic, partition)
        folder = f"{self.folder}/{topic}-{partition}"
        if key in self.logs:
            raise StorageError(folder, "the log exists already")
        if key in self._checkpointed or key in self._high_watermarks:
            # Of a deleted log. After a crash this one would begin, or be missed, where that ended.
            self.checkpoint()
        try:
            os.makedirs(folder, exist_ok=True)
            with open(f"{folder}/{PARTITION_METADATA}", "wb", buffering=0) as file:
                file.write(encode_topic_id(topic_id))
        except OSError as error:
            # Half made it would be taken for a log that nobody knows.
            shutil.rmtree(folder, ignore_errors=True)
            raise StorageError.of(folder, error) from error
        log = create_log(
            folder, topic, partition, topic_id, config or self.defaults, self.pool, self.trash
        )
        self._note_end(log, 0)
        self.logs[key] = log
        return log

    def begin_life(self, registration: int) -> None:
        """What the last life left has been dealt with: write down where the logs end from now on.

        Without room for it there are no such notes, and a crash counts as a loss.
        """
        ends, self.last_life = self.last_life.ends, LastLife()
        try:
            self._ends = LogEnds(f"{self.folder}/{ENDS_FILE}", registration)
            for log in self.logs.values():
                least = 0
                if log.offline is not None and log.topic_id is not None and ends is not None:
                    # Damaged: it should end where it did.
                    least = ends.end_of(log.topic_id, log.partition)
                self._note_end(log, max(log.log_end, least))
        except StorageError as error:
            logger.error("a crash will count as a loss: the ends of logs are not kept: %s", error)
            remove_file(f"{self.folder}/{ENDS_FILE}")

    def expect_registration(self, registration: int) -> None:
        """The broker is about to get another registration than this one, or to arrive."""
        if self._ends is not None:
            self._ends.expect_registration(registration)
        elif (ends := self.last_life.ends) is not None:
            path = f"{self.folder}/{ENDS_FILE}"
            self.last_life.ends = expect_registration(path, ends, registration)

    def registered(self, epoch: int, registration: int) -> None:
        """The broker is registered with this epoch, under this number."""
        self.broker_epoch = epoch
        if self._ends is not None:
            self._ends.register(registration)

    def _note_end(self, log: Log, end: int) -> None:
        if self._ends is not None and log.topic_id is not None:
            log.end_entry = self._ends.take(log.topic_id, log.partition, end)

    def _forget_end(self, log: Log) -> None:
        """Somebody gave the log up, and does not miss it at the next start."""
        if self._ends is not None and log.end_entry is not None:
            self._ends.drop(log.end_entry)
            log.end_entry = None

    def claim(self, topic: str, partition: int, topic_id: uuid.UUID) -> None:
        """Write down again whose a log is that has lost its `partition.metadata`."""
        log = self.logs[topic, partition]
        log.topic_id = topic_id
        log.durability.mark_new()
        path = f"{log.folder}/{PARTITION_METADATA}"
        try:
            replace_file(path, encode_topic_id(topic_id), sync=True)
        except OSError as error:
            # The next flush tries again.
            logger.warning("could not write %s: %s", path, error)

    def delete(self, topic: str, partition: int) -> None:
        """Remove a log: at once from sight, from the disk by and by. Readers finish undisturbed."""
        doomed = self._rename_away(topic, partition, folders.DELETE_SUFFIX)
        if doomed is not None:
            self.trash.add(doomed)

    def set_aside(self, topic: str, partition: int) -> None:
        """Take a log out of service that nobody here knows; its folder stays as `...-stray`."""
        stray = self._rename_away(topic, partition, folders.STRAY_SUFFIX)
        if stray is not None:
            logger.warning("%s-%d is no topic of this cluster; kept as %s", topic, partition, stray)

    def set_damaged_aside(self, topic: str, partition: int) -> str:
        """Take the folder of a log that has failed out of service; its new path, `...-damaged`.

        Of each partition the last one is kept, for people to look at.
        """
        log = self.logs[topic, partition]
        away = folders.path_away(log.folder, folders.DAMAGED_SUFFIX)
        try:
            os.rename(log.folder, away)
            earlier = folders.earlier_away(away)
        except OSError as error:
            raise StorageError.of(log.folder, error) from error
        self._forget_end(self.logs.pop((topic, partition)))
        for path in earlier:
            self.trash.add(path)
        return away

    def _rename_away(self, topic: str, partition: int, ending: str) -> str | None:
        """The new path of a log's folder; None if it was gone already."""
        log = self.logs.pop((topic, partition))
        self._forget_end(log)
        log.abandon(StorageError(log.folder, "the log has been deleted"))
        away = folders.path_away(log.folder, ending)
        try:
            os.rename(log.folder, away)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise StorageError.of(log.folder, error) from error
        return away

    def checkpoint(self) -> None:
        """Write the checkpoint files. Blocks for a few fsyncs."""
        self.prepare_checkpoint()()

    def prepare_checkpoint(self) -> Callable[[], None]:
        """Event loop: what `checkpoint` does, as a call that any thread may make.

        Offsets are read there, when it is their turn to be written: of 100,000 logs that takes
        longer than the loop may be held.
        """
        logs = list(self.logs.items())
        self._prepared += 1
        number = self._prepared

        def write() -> None:
            with self._writing:
                if number < self._newest_written:
                    return
                log_starts, recovery_points, high_watermarks = {}, {}, {}
                for key, log in logs:
                    # In this order: what is flushed never lies before the start.
                    if log.log_start > log.segments.base:
                        log_starts[key] = log.log_start
                    recovery_points[key] = log.flushed
                    high_watermarks[key] = log.high_watermark
                write_offsets(f"{self.folder}/{LOG_STARTS}", log_starts)
                write_offsets(f"{self.folder}/{RECOVERY_POINTS}", recovery_points)
                self._write_high_watermarks(number, high_watermarks)
                self._newest_written, self._checkpointed = number, recovery_points

        return write

    def prepare_high_watermarks(self) -> Callable[[], None]:
        """As `prepare_checkpoint`, but of the high watermarks alone, and only if one has moved."""
        logs = list(self.logs.items())
        self._prepared += 1
        number = self._prepared

        def write() -> None:
            with self._writing:
                high_watermarks = {key: log.high_watermark for key, log in logs}
                if high_watermarks != self._high_watermarks:
                    self._write_high_watermarks(number, high_watermarks)

        return write

    def _write_high_watermarks(self, number: int, offsets: dict[TopicPartition, int]) -> None:
        if number > self._newest_watermarks:
            write_offsets(f"{self.folder}/{HIGH_WATERMARKS}", offsets)
            self._newest_watermarks = number
            self._high_watermarks = offsets

    def close(self) -> None:
        """Flush and close all logs and mark a clean stop. Blocks.

        A log that could not be flushed is reported, and the stop is then not a clean one.
        """
        if self._lock is None:
            return
        try:
            is_clean = close_logs(list(self.logs.values()), self._lock)
            self.trash.join()
            self.checkpoint()
            if is_clean:
                if self._ends is not None:
                    for log in self.logs.values():
                        if log.end_entry is not None:
                            self._ends.note_size(log.end_entry, log.segments.size)
                    self._ends.stop(self.broker_epoch)
                leave_marker(self.folder, new_marker(self.broker_epoch))
        except OSError as error:
            raise StorageError.of(self.folder, error) from error
        finally:
            self._drop_lock()

    def leave_as_found(self) -> None:
        """Let go of everything, with the same signs for the next start as there were for this one:
        nobody has been told yet what they say."""
        if self._lock is None:
            return
        try:
            if self.last_life.marker is not None:
                leave_marker(self.folder, self.last_life.marker)
        except OSError as error:
            raise StorageError.of(self.folder, error) from error
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Let go of everything without writing, as a crash does; for tests and lost disks."""
        for log in self.logs.values():
            log.abandon()
        self.trash.join()
        self._drop_lock()

    @property
    def meta(self) -> dict[str, str]:
        """What `meta.properties` says of whose folder this is."""
        return read_properties(f"{self.folder}/{META_PROPERTIES}")

    @meta.setter
    def meta(self, values: dict[str, str]) -> None:
        write_properties(f"{self.folder}/{META_PROPERTIES}", values)

    def _take_lock(self) -> None:
        fd = os.open(f"{self.folder}/{LOCK}", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(fd)
            raise FolderInUse(self.folder) from None
        self._lock = fd

    def _drop_lock(self) -> None:
        if self._ends is not None:
            self._ends.close()
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _read_checkpoint(self, name: str) -> dict[TopicPartition, int] | None:
        try:
            return read_offsets(f"{self.folder}/{name}")
        except CorruptFile as error:
            # Without it more is checked than need be, and nothing is lost.
            logger.warning("ignoring a checkpoint: %s", error)
            return None
