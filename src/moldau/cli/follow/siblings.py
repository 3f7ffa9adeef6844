"""Rotated siblings of a file: app.log.1, app.log-20240229, app-1.log."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path

# A counter or a moment, as logrotate, Python's handlers and lumberjack write them.
STAMP = r"[.\-_]\d[\d.\-_T:+Z]*"


def rotation_pattern(name: str) -> re.Pattern[str]:
    """Return a pattern for the names of rotations of `name`, except compressed ones."""
    stem, suffix = os.path.splitext(name)
    forms = [re.escape(name) + STAMP, re.escape(name) + r"\.old"]
    if suffix:
        forms.append(re.escape(stem) + STAMP + re.escape(suffix))
    return re.compile("|".join(forms))


def rotations_of(path: Path) -> list[Path]:
    """Return the rotated forms of a path that lie beside it, the one written to last at the end."""
    pattern = rotation_pattern(path.name)
    found = [
        (entry.stat().st_mtime_ns, entry.name)
        for entry in _files(path.parent)
        if pattern.fullmatch(entry.name)
    ]
    return [path.parent / name for _, name in sorted(found)]


def with_inode(folder: Path, device: int, inode: int) -> Path | None:
    """Return the file of a folder that has this inode, whatever its name."""
    for entry in _files(folder):
        if entry.inode() == inode and entry.stat().st_dev == device:
            return folder / entry.name
    return None


def _files(folder: Path) -> Iterator[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                try:
                    if entry.is_file():
                        yield entry
                except OSError:
                    continue
    except OSError:
        return


def open_file(path: Path) -> int | None:
    """Return a descriptor for reading; None when nothing is there. OSError for what cannot be
    read."""
    try:
        # Without O_NONBLOCK, to open a named pipe would wait for its writer.
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(None, "it is not a regular file", str(path))
    return fd
