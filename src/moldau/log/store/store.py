"""A data folder full of logs."""

from __future__ import annotations

import logging
import os
import shutil
import time
import uuid
from collections.abc import Callable
from functools import partial

from moldau.log.config import LogConfig
from moldau.log.errors import LogError, StorageError
from moldau.log.files.disk import replace_file
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
from moldau.log.store.checkpoints import Checkpoints
from moldau.log.store.closing import close_logs
from moldau.log.store.life import Life
from moldau.log.store.lock import FolderLock
from moldau.log.truncation import promises_more
from moldau.topic_partition import TopicPartition

logger = logging.getLogger("moldau.log")

# Logs that are open, with a share of the one at hand; all logs; bytes checked.
Progress = Callable[[float, int, int], None]


class LogStore:
    """All logs of a broker, each in `<topic>-<partition>/` of one folder.

    Beside them lie the `.lock`, the files of `Checkpoints`, `meta.properties`, which says
    whose folder this is, and what a `Life` leaves: `log-ends` and `.kafka_cleanshutdown`. Event
    loop only; `open` and `close` block.

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
        new_id: Callable[[], uuid.UUID] = uuid.uuid4,
    ) -> None:
        self.folder = os.fspath(folder)
        self.defaults = defaults
        self.logs: dict[TopicPartition, Log] = {}
        self.pool = FilePool(max_open_files)
        self.trash = Trash()
        self.recovered = Recovered()
        self.was_clean = False
        self.life = Life(self.folder)
        self._checkpoints = Checkpoints(self.folder)
        self._lock = FolderLock(self.folder)
        self._on_progress = on_progress
        self._new_id = new_id

    def open(self) -> None:
        """Lock the folder, which is created if need be, and load all logs.

        FolderInUse if another process has it; StorageError if it cannot be used at all. A single
        log that cannot be trusted is loaded `offline`. Where the disk is full there may be logs of
        which the checkpoint `promises_more`: it must be written before they grow.
        """
        started = time.perf_counter()
        try:
            os.makedirs(self.folder, exist_ok=True)
            self._lock.take()
            checkpoints = self._checkpoints
            checkpoints.read()
            self.was_clean = self.life.find_last(
                checkpoints.recovery_points, checkpoints.high_watermarks
            )
            found = folders.find_logs(self.folder, self.trash)
            if checkpoints.recovery_points is None and not found:
                # From now on a log that the checkpoint does not name is known to be a new one.
                self.checkpoint()
        except OSError as error:
            self._let_go()
            raise StorageError.of(self.folder, error) from error
        except LogError:
            self._let_go()
            raise
        recovery_points = checkpoints.recovery_points
        short = 0
        for number, (name, key) in enumerate(found):
            if self._on_progress is not None:
                self.recovered.on_progress = partial(self._tell, number, len(found))
            point = None
            if recovery_points is not None:
                point = recovery_points.get(key, None if self.was_clean else 0)
            high_watermark = checkpoints.high_watermarks.get(key, 0)
            log = load_log(
                f"{self.folder}/{name}",
                *key,
                self.defaults,
                self.pool,
                self.trash,
                left_clean=self.life.last.left_clean if self.was_clean else None,
                recovery_point=point,
                log_start=checkpoints.log_starts.get(key, 0),
                high_watermark=high_watermark,
                aborted=checkpoints.aborted.get(key, {}),
                recovered=self.recovered,
            )
            log.advance_high_watermark(high_watermark)
            self.logs[key] = log
            log.durability.recovery_point = (recovery_points or {}).get(key, 0)
            short += promises_more(log, log.log_end)
            self._tell(number + 1, len(found), 0.0)
        if short:
            # A follower was killed that had cut its log and not written it down. Once the log has
            # grown beyond that point again, the next recovery would believe what it does not know.
            self._save_points(short)
        took_ms = (time.perf_counter() - started) * 1000
        if self.was_clean:
            logger.info("opened %d logs after a clean stop in %.0f ms", len(found), took_ms)
        elif found:
            logger.warning(
                "recovered %d logs in %.0f ms: %d bytes checked, %d bytes truncated from %d logs,"
                " %d offline",
                len(found), took_ms, self.recovered.checked_bytes, self.recovered.cut_bytes,
                self.recovered.cut_logs, self.recovered.offline_logs,
            )  # fmt: skip

    def _save_points(self, short: int) -> None:
        try:
            self.checkpoint()
        except StorageError as error:
            if error.is_damage:
                self.abandon()
                raise
            logger.error(
                "%d logs are shorter than the checkpoint says, and take no records until one can "
                "be saved: %s", short, error,
            )  # fmt: skip

    def _tell(self, done: int, logs: int, share: float) -> None:
        if self._on_progress is not None:
            self._on_progress(done + share, logs, self.recovered.checked_bytes)

    def create(
        self, topic: str, partition: int, topic_id: uuid.UUID, config: LogConfig | None = None
    ) -> Log:
        """Return a new, empty log; StorageError if the disk refuses or there is one already."""
        key = (topic, partition)
        folder = f"{self.folder}/{topic}-{partition}"
        if key in self.logs:
            raise StorageError(folder, "the log already exists")
        if self.remembers(key):
            # It belongs to a deleted log: after a crash this one would begin, or be missed, where
            # that one ended.
            self.checkpoint()
        try:
            os.makedirs(folder, exist_ok=True)
            with open(f"{folder}/{PARTITION_METADATA}", "wb", buffering=0) as file:
                file.write(encode_topic_id(topic_id))
        except OSError as error:
            # A half-made one would be taken for an unknown log.
            shutil.rmtree(folder, ignore_errors=True)
            raise StorageError.of(folder, error) from error
        log = create_log(
            folder, topic, partition, topic_id, config or self.defaults, self.pool, self.trash
        )
        self.life.note(log, 0)
        self.logs[key] = log
        return log

    def remembers(self, key: TopicPartition) -> bool:
        """Return whether a checkpoint still names a log that has been deleted.

        `create` then writes another first, which blocks.
        """
        return key not in self.logs and self._checkpoints.names(key)

    def may_claim(self, topic: str, partition: int, topic_id: uuid.UUID) -> bool:
        """Return whether a log that has lost its `partition.metadata` can only be this topic's.

        After a power failure it may be that of a deleted topic with the same name. It has nothing
        then that was forced to disk by a flush: that forces the file, too.
        """
        is_empty = not self.logs[topic, partition].log_end
        return is_empty or self.life.last.held(topic_id, partition)

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
        topic_id = self.logs[topic, partition].topic_id
        stray = self._rename_away(topic, partition, folders.STRAY_SUFFIX)
        if stray is None:
            return
        if topic_id is None:
            what = "may belong to a deleted topic of this name: its partition.metadata is lost"
        else:
            what = "does not belong to a topic of this cluster"
        logger.warning("%s-%d %s; kept as %s", topic, partition, what, stray)

    def set_damaged_aside(self, topic: str, partition: int) -> str:
        """Take the folder of a log that has failed out of service; its new path, `...-damaged`.

        Of each partition the last one is kept, for people to look at.
        """
        log = self.logs[topic, partition]
        away = folders.path_away(log.folder, self._new_id(), folders.DAMAGED_SUFFIX)
        try:
            os.rename(log.folder, away)
            earlier = folders.earlier_away(away)
        except OSError as error:
            raise StorageError.of(log.folder, error) from error
        self.life.forget(self.logs.pop((topic, partition)))
        for path in earlier:
            self.trash.add(path)
        return away

    def _rename_away(self, topic: str, partition: int, ending: str) -> str | None:
        """Return the new path of a log's folder; None if it was gone already."""
        log = self.logs.pop((topic, partition))
        self.life.forget(log)
        log.abandon(StorageError(log.folder, "the log has been deleted"))
        away = folders.path_away(log.folder, self._new_id(), ending)
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
        """Event loop: what `checkpoint` does, as a call that any thread may make."""
        return self._checkpoints.prepare(self.logs)

    def prepare_high_watermarks(self) -> Callable[[], None]:
        """As `prepare_checkpoint`, but of the high watermarks alone, and only if one has moved."""
        return self._checkpoints.prepare_high_watermarks(self.logs)

    def close(self) -> None:
        """Flush and close all logs and mark a clean stop. Blocks.

        A log that could not be flushed is reported, and the stop is then not a clean one.
        """
        if self._lock.fd is None:
            return
        try:
            logs = list(self.logs.values())
            is_clean = close_logs(logs, self._lock.fd)
            self.trash.join()
            self.checkpoint()
            if is_clean:
                self.life.end_well(logs)
        except OSError as error:
            raise StorageError.of(self.folder, error) from error
        finally:
            self._let_go()

    def leave_as_found(self) -> None:
        """Let go of everything, with the same signs for the next start as there were for this one:
        nobody has been told yet what they say."""
        if self._lock.fd is None:
            return
        try:
            self.life.leave_as_found()
        except OSError as error:
            raise StorageError.of(self.folder, error) from error
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Let go of everything without writing, as a crash does; for tests and lost disks."""
        for log in self.logs.values():
            log.abandon()
        self.trash.join()
        self._let_go()

    @property
    def meta(self) -> dict[str, str]:
        """Return what `meta.properties` says about the owner of this folder."""
        return read_properties(f"{self.folder}/{META_PROPERTIES}")

    @meta.setter
    def meta(self, values: dict[str, str]) -> None:
        write_properties(f"{self.folder}/{META_PROPERTIES}", values)

    def _let_go(self) -> None:
        self.life.close()
        self._lock.drop()
