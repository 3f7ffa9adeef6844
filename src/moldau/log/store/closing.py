"""Closing all logs of a data folder."""

from __future__ import annotations

import logging
from collections.abc import Collection
from concurrent.futures import Future, ThreadPoolExecutor

from moldau.log.errors import StorageError
from moldau.log.files.disk import can_sync_file_systems, sync_file_system
from moldau.log.flushes.flush import Flush
from moldau.log.flushes.flushing import prepare_close
from moldau.log.log import Log

logger = logging.getLogger("moldau.log")

_THREADS = 16
# Up to this many logs are flushed file by file; more by one call for all.
FEW = 200
# Flushes that are under way hold their files open.
_AT_A_TIME = 2 * _THREADS


def close_logs(logs: Collection[Log], folder_fd: int) -> bool:
    """Close all logs; whether everything is on disk. Blocks.

    A few are forced to disk file by file, several at a time. With thousands the small files alone
    would take a minute, so they are only written, and then the file system of `folder_fd`, which
    was opened before anything was written, is forced to disk at once.
    """
    is_clean = all(log.offline is None for log in logs)
    few = FEW if can_sync_file_systems() else len(logs)
    flushes: list[Flush] = []
    with ThreadPoolExecutor(_THREADS, "moldau-close") as threads:
        running: list[tuple[Log, Future[None]]] = []
        for log in logs:
            try:
                flush = prepare_close(log)
            except StorageError as error:
                is_clean = _complain(log, error)
                continue
            if flush is None:
                continue
            flushes.append(flush)
            work = flush.run if len(flushes) <= few else flush.write
            running.append((log, threads.submit(work)))
            if len(running) == _AT_A_TIME:
                is_clean = _finish(running) and is_clean
        is_clean = _finish(running) and is_clean
    if len(flushes) > few:
        sync_file_system(folder_fd)
    for flush in flushes:
        flush.done()
    for log in logs:
        log.abandon()
    return is_clean


def _finish(running: list[tuple[Log, Future[None]]]) -> bool:
    is_clean = True
    for log, closing in running:
        try:
            closing.result()
        except StorageError as error:
            is_clean = _complain(log, error)
    running.clear()
    return is_clean


def _complain(log: Log, error: StorageError) -> bool:
    logger.error("could not close %s-%d: %s", log.topic, log.partition, error)
    return False
