"""A bad disk below a broker's process and its workers; see `tests/torture/disks.py`.

Python imports this module at its start when its folder is on the path. Files below the folder that
`MOLDAU_DISKS` names belong to the disk whose name is the first part of their path; `NAME.disk`
beside it says how that disk fares, and `NAME.durable` gets a line for all that fsync has made safe.
"""

from __future__ import annotations

import errno
import os
import stat
import time
from collections.abc import Callable
from typing import Any

_root = os.environ["MOLDAU_DISKS"]
_fsync = os.fsync


def _disk_of(fd: int) -> str | None:
    """The path, without an ending, of the disk that an open file is on."""
    path = os.readlink(f"/proc/self/fd/{fd}")
    if not path.startswith(_root + os.sep):
        return None
    name = path[len(_root) + 1 :].partition(os.sep)[0]
    return os.path.join(_root, name)


def _state_of(disk: str) -> list[str]:
    """How the disk fares: seconds that an fsync takes, and `full`, `failing` or `roomy`."""
    try:
        with open(f"{disk}.disk", encoding="ascii") as file:
            return file.read().split()
    except FileNotFoundError:
        return ["0", "roomy"]


def _forced(fd: Any) -> None:
    fd = fd if isinstance(fd, int) else fd.fileno()
    disk = _disk_of(fd)
    if disk is None:
        _fsync(fd)
        return
    # What is written while the fsync runs need not be part of it.
    before = os.fstat(fd)
    state = _state_of(disk)
    time.sleep(float(state[0]))
    if state[1] == "failing":
        raise OSError(errno.EIO, os.strerror(errno.EIO))
    _fsync(fd)
    if stat.S_ISREG(before.st_mode):
        with open(f"{disk}.durable", "a", encoding="ascii") as durable:
            durable.write(f"{before.st_ino} {before.st_size}\n")


def _refusing(write: Callable[..., int]) -> Callable[..., int]:
    def written(fd: int, *what: Any) -> int:
        disk = _disk_of(fd)
        if disk is not None and _state_of(disk)[1] == "full":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(fd, *what)

    return written


os.fsync = _forced
os.write = _refusing(os.write)
os.writev = _refusing(os.writev)
os.pwrite = _refusing(os.pwrite)
