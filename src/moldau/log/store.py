"""A data folder full of logs."""

from __future__ import annotations

import fcntl
import json
import logging
import os
import re
import shutil
import threading
import time
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from moldau.log.checkpoint import (
    HIGH_WATERMARKS,
    LOG_STARTS,
    RECOVERY_POINTS,
    Partition,
    read_offsets,
    write_offsets,
)
from moldau.log.config import LogConfig
from moldau.log.errors import CorruptFile, FolderInUse, LogError, StorageError
from moldau.log.files import (
    FilePool,
    Trash,
    can_sync_file_systems,
    replace_file,
    sync_file_system,
    sync_folder,
)
from moldau.log.flush import Flush
from moldau.log.log import Log
from moldau.log.properties import (
    META_PROPERTIES,
    PARTITION_METADATA,
    encode_topic_id,
    read_properties,
    write_properties,
)
from moldau.log.recovery import Recovered, create_log, load_log

logger = logging.getLogger("moldau.log")

CLEAN_MARKER = ".kafka_cleanshutdown"
LOCK = ".lock"
_DELETE_SUFFIX = "-delete"
_STRAY_SUFFIX = "-stray"
_DAMAGED_SUFFIX = "-damaged"
_LOG_FOLDER = re.compile(r"(.+)-(\d{1,10})")
_MAX_NAME = 255
_UNIQUE = 32
_CLOSING_THREADS = 16
# So many logs are forced to disk by one call for all.
_MANY_LOGS = 200

# Logs that are open, with a share of the one at hand; all logs; bytes checked.
Progress = Callable[[float, int, int], None]


class LogStore:
    """All logs of a broker, each in `<topic>-<partition>/` of one folder.

    Beside them lie `.lock` (held while the store is open), three checkpoint files (recovery points,
    log starts and high watermarks), `meta.properties`, and, between a clean stop and the next
    start, the marker `.kafka_cleanshutdown`. Event loop only; `open` and `close` block.

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
        self.logs: dict[Partition, Log] = {}
        self.pool = FilePool(max_open_files)
        self.trash = Trash()
        self.recovered = Recovered()
        self.was_clean = False
        self._on_progress = on_progress
        # Checkpoints are written by several threads; an older one must not replace a newer one.
        self._writing = threading.Lock()
        self._prepared = 0
        self._newest_written = 0
        self._newest_watermarks = 0
        self._high_watermarks: dict[Partition, int] = {}
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
            self.was_clean = self._take_marker()
            recovery_points = self._read_checkpoint(RECOVERY_POINTS)
            log_starts = self._read_checkpoint(LOG_STARTS) or {}
            high_watermarks = self._read_checkpoint(HIGH_WATERMARKS) or {}
            found = self._find_logs()
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
                is_clean=self.was_clean,
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
        self.logs[key] = log
        return log

    def claim(self, topic: str, partition: int, topic_id: uuid.UUID) -> None:
        """Write down again whose a log is that has lost its `partition.metadata`."""
        log = self.logs[topic, partition]
        log.topic_id = topic_id
        log.mark_new()
        path = f"{log.folder}/{PARTITION_METADATA}"
        try:
            replace_file(path, encode_topic_id(topic_id), sync=True)
        except OSError as error:
            # The next flush tries again.
            logger.warning("could not write %s: %s", path, error)

    def delete(self, topic: str, partition: int) -> None:
        """Remove a log: at once from sight, from the disk by and by. Readers finish undisturbed."""
        doomed = self._rename_away(topic, partition, _DELETE_SUFFIX)
        if doomed is not None:
            self.trash.add(doomed)

    def set_aside(self, topic: str, partition: int) -> None:
        """Take a log out of service that nobody here knows; its folder stays as `...-stray`."""
        stray = self._rename_away(topic, partition, _STRAY_SUFFIX)
        if stray is not None:
            logger.warning("%s-%d is no topic of this cluster; kept as %s", topic, partition, stray)

    def set_damaged_aside(self, topic: str, partition: int) -> str:
        """Take the folder of a log that has failed out of service; its new path, `...-damaged`.

        Of each partition the last one is kept, for people to look at.
        """
        log = self.logs[topic, partition]
        away = self._path_away(log, _DAMAGED_SUFFIX)
        # All but the part that makes it unique.
        start, end = away[: -_UNIQUE - len(_DAMAGED_SUFFIX)], _DAMAGED_SUFFIX
        try:
            os.rename(log.folder, away)
            paths = [f"{self.folder}/{name}" for name in os.listdir(self.folder)]
        except OSError as error:
            raise StorageError.of(log.folder, error) from error
        earlier = [path for path in paths if path.startswith(start) and path.endswith(end)]
        del self.logs[topic, partition]
        for path in earlier:
            if path != away:
                self.trash.add(path)
        return away

    def _path_away(self, log: Log, ending: str) -> str:
        suffix = f".{uuid.uuid4().hex}{ending}"
        return f"{self.folder}/{os.path.basename(log.folder)[: _MAX_NAME - len(suffix)]}{suffix}"

    def _rename_away(self, topic: str, partition: int, ending: str) -> str | None:
        """The new path of a log's folder; None if it was gone already."""
        log = self.logs.pop((topic, partition))
        log.abandon(StorageError(log.folder, "the log has been deleted"))
        away = self._path_away(log, ending)
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
        """Event loop: what `checkpoint` writes, as a call that any thread may make."""
        recovery_points, log_starts, high_watermarks = {}, {}, {}
        for key, log in self.logs.items():
            recovery_points[key] = log.flushed
            high_watermarks[key] = log.high_watermark
            if log.log_start > log.first_base:
                log_starts[key] = log.log_start
        self._prepared += 1
        number = self._prepared

        def write() -> None:
            with self._writing:
                if number < self._newest_written:
                    return
                write_offsets(f"{self.folder}/{LOG_STARTS}", log_starts)
                write_offsets(f"{self.folder}/{RECOVERY_POINTS}", recovery_points)
                if number > self._newest_watermarks:
                    write_offsets(f"{self.folder}/{HIGH_WATERMARKS}", high_watermarks)
                    self._newest_watermarks = number
                self._newest_written = number

        return write

    def prepare_high_watermarks(self) -> Callable[[], None] | None:
        """As `prepare_checkpoint`, but of the high watermarks alone; None if none has moved."""
        high_watermarks = {key: log.high_watermark for key, log in self.logs.items()}
        if high_watermarks == self._high_watermarks:
            return None
        self._high_watermarks = high_watermarks
        self._prepared += 1
        number = self._prepared

        def write() -> None:
            with self._writing:
                if number > self._newest_watermarks:
                    write_offsets(f"{self.folder}/{HIGH_WATERMARKS}", high_watermarks)
                    self._newest_watermarks = number

        return write

    def close(self) -> None:
        """Flush and close all logs and mark a clean stop. Blocks.

        A log that could not be flushed is reported, and the stop is then not a clean one.
        """
        if self._lock is None:
            return
        try:
            is_clean = self._close_logs()
            self.trash.join()
            self.checkpoint()
            if is_clean:
                content = json.dumps({"version": 0, "brokerEpoch": -1}).encode()
                replace_file(f"{self.folder}/{CLEAN_MARKER}", content, sync=True)
                sync_folder(self.folder)
        except OSError as error:
            raise StorageError.of(self.folder, error) from error
        finally:
            self._drop_lock()

    def _close_logs(self) -> bool:
        """Close all logs; whether everything is on disk.

        Few of them are forced to disk one by one, many at a time. Of thousands the small files
        alone would take a minute, so they are only written, and then the whole file system is
        forced to disk at once.
        """
        logs = list(self.logs.values())
        is_clean = all(log.offline is None for log in logs)
        flushes: list[tuple[Log, Flush]] = []
        for log in logs:
            try:
                flush = log.prepare_close()
            except StorageError as error:
                is_clean = False
                logger.error("could not close %s-%d: %s", log.topic, log.partition, error)
                continue
            if flush is not None:
                flushes.append((log, flush))
        is_many = len(flushes) > _MANY_LOGS and can_sync_file_systems()
        with ThreadPoolExecutor(_CLOSING_THREADS, "moldau-close") as threads:
            running = [
                (log, flush, threads.submit(flush.write if is_many else flush.run))
                for log, flush in flushes
            ]
            for log, _, closing in running:
                try:
                    closing.result()
                except StorageError as error:
                    is_clean = False
                    logger.error("could not close %s-%d: %s", log.topic, log.partition, error)
        if is_many and self._lock is not None:
            sync_file_system(self._lock)
        for _, flush in flushes:
            flush.done()
        for log in logs:
            log.abandon()
        return is_clean

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
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _take_marker(self) -> bool:
        """Was the last stop clean? The marker goes for good before anything can change."""
        try:
            os.unlink(f"{self.folder}/{CLEAN_MARKER}")
        except FileNotFoundError:
            return False
        sync_folder(self.folder)
        return True

    def _read_checkpoint(self, name: str) -> dict[Partition, int] | None:
        try:
            return read_offsets(f"{self.folder}/{name}")
        except CorruptFile as error:
            # Without it more is checked than need be, and nothing is lost.
            logger.warning("ignoring a checkpoint: %s", error)
            return None

    def _find_logs(self) -> list[tuple[str, Partition]]:
        found = []
        with os.scandir(self.folder) as entries:
            for entry in entries:
                if not entry.is_dir():
                    continue
                if entry.name.endswith(_DELETE_SUFFIX):
                    self.trash.add(entry.path)
                    continue
                match = _LOG_FOLDER.fullmatch(entry.name)
                if match is None:
                    logger.info("%s is not a log's folder", entry.path)
                    continue
                found.append((entry.name, (match[1], int(match[2]))))
        found.sort(key=lambda item: item[1])
        return found
