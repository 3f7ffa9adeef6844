"""Closing the logs of a broker that stops."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from moldau.log.errors import StorageError
from moldau.log.files import can_sync_file_systems, sync_file_system
from moldau.log.flush import Flush
from moldau.log.log import Log

logger = logging.getLogger("moldau.log")

_THREADS = 16
# So many logs are forced to disk by one call for all.
_MANY = 200


def close_logs(logs: Sequence[Log], lock: int) -> bool:
    """Close all logs; whether everything is on disk. `lock` is an open file beside them. Blocks.

    Few of them are forced to disk one by one, many at a time. Of thousands the small files alone
    would take a minute, so they are only written, and then the whole file system is forced to disk
    at once.
    """
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
    is_many = len(flushes) > _MANY and can_sync_file_systems()
    with ThreadPoolExecutor(_THREADS, "moldau-close") as threads:
        running = [
            (log, threads.submit(flush.write if is_many else flush.run)) for log, flush in flushes
        ]
        for log, closing in running:
            try:
                closing.result()
            except StorageError as error:
                is_clean = False
                logger.error("could not close %s-%d: %s", log.topic, log.partition, error)
    if is_many:
        sync_file_system(lock)
    for _, flush in flushes:
        flush.done()
    for log in logs:
        log.abandon()
    return is_clean
