"""Logs with transactions in them, and copies of their folders, for tests."""

from __future__ import annotations

import shutil
from pathlib import Path

from moldau.log.config import LogConfig
from moldau.log.flushes.flushing import prepare_flush
from moldau.log.log import Log
from tests.log.making import batch_of, put
from tests.log.transactions.transacting import Transactional, see_all, values

SMALL = LogConfig(segment_bytes=400, index_interval_bytes=100)


def flush(log: Log) -> None:
    work = prepare_flush(log)
    if work is not None:
        work.run()
        work.done()


def mixed(log: Log) -> list[bytes]:
    """Transactions of three producers across several segments; what was committed of them."""
    one, two, three = (Transactional(log, number) for number in (1, 2, 3))
    expected = []
    for number in range(8):
        keep, drop = b"keep-%d" % number, b"drop-%d" % number
        one.write((b"k", keep))
        two.write((b"k", drop), (b"k", drop))
        if number % 3 == 0:
            three.write((b"k", b"long-%d" % number))
        put(log, batch_of(size=20))
        two.end(commits=False)
        one.write((b"k", keep + b"!"))
        one.end(commits=True)
        expected += [keep, keep + b"!"]
    three.end(commits=False)
    see_all(log)
    assert len(log.segments) > 4
    return expected


def kept(log: Log, **more: int) -> list[bytes | None]:
    return [value for value in values(log, **more) if value and value[0] >= ord("a")]


# Restarts


def copy_folder(source: Path, target: Path) -> None:
    """Copies what a crash would leave; deleted files may go at any time."""
    shutil.copytree(source, target, ignore=shutil.ignore_patterns("*.deleted"))


def snapshots_gone(folder: Path) -> None:
    for path in folder.glob("*.snapshot"):
        path.unlink()


def nothing(folder: Path) -> None:
    pass
