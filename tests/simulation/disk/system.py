"""The system calls of simulated processes: `os`, `open`, `mmap`, `fcntl` and `shutil` over disks.

What concerns no file is the real module's. A process that may do only so many more operations dies
in the midst of the next one: before it, or after it without having heard of it.
"""

from __future__ import annotations

import errno
import io
import os
import stat
from collections.abc import Callable, Iterator
from types import SimpleNamespace, TracebackType
from typing import Any

from tests.simulation.core.loop import VirtualLoop
from tests.simulation.core.process import EPOCH_S, Process, ProcessDied
from tests.simulation.disk.disk import Disk, File, Mapped

_FIRST_FD = 1 << 24
_BOOT_ID = "/proc/sys/kernel/random/boot_id"


class _Open:
    """An open file, or folder (`file` is None)."""

    __slots__ = ("disk", "file", "flags", "path", "position", "process")

    def __init__(
        self, disk: Disk, path: str, file: File | None, flags: int, process: Process
    ) -> None:
        self.disk = disk
        self.path = path
        self.file = file
        self.flags = flags
        self.position = 0
        self.process = process


def _error(number: int, path: str = "") -> OSError:
    return OSError(number, os.strerror(number), path)


class System:
    """The calls of all processes on all disks; `loop.process` says whose a call is."""

    def __init__(self, loop: VirtualLoop, new_random: Callable[[int], bytes]) -> None:
        self._loop = loop
        self._new_random = new_random
        self.disks: dict[str, Disk] = {}
        self._open_files: dict[int, _Open] = {}
        self._next_fd = _FIRST_FD
        self.operations = 0
        self.path = _Paths(self)

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)

    def getppid(self) -> int:
        """The parent of a worker is the broker that runs it."""
        return os.getpid()

    def urandom(self, size: int) -> bytes:
        return self._new_random(size)

    # -- help

    def _disk(self, path: str) -> Disk:
        for root, disk in self.disks.items():
            if path.startswith(root):
                return disk
        raise _error(errno.ENOENT, path)

    def _step(self) -> Process:
        """Count one operation; ProcessDied if the process is dead or dies of it."""
        process = self._loop.process
        if not process.is_alive or self._loop.is_over:
            raise ProcessDied
        self.operations += 1
        if process.operations_left >= 0:
            process.operations_left -= 1
            if process.operations_left < 0:
                # At once: a task would keep the error to itself and let the others go on.
                self._loop.kill(process)
                raise ProcessDied
        return process

    def _of(self, fd: int) -> _Open:
        found = self._open_files.get(fd)
        if found is None:
            raise _error(errno.EBADF)
        return found

    def _file(self, fd: int) -> tuple[_Open, File]:
        found = self._of(fd)
        if found.file is None:
            raise _error(errno.EISDIR, found.path)
        return found, found.file

    # -- descriptors

    def open(self, path: Any, flags: int, mode: int = 0o777) -> int:
        process = self._step()
        path = os.fspath(path)
        disk = self._disk(path)
        if path not in disk.names:
            if not flags & os.O_CREAT or path.rpartition("/")[0] not in disk.names:
                raise _error(errno.ENOENT, path)
            if disk.is_full:
                raise _error(errno.ENOSPC, path)
            disk.names[path] = disk.new_file()
        elif flags & os.O_EXCL:
            raise _error(errno.EEXIST, path)
        file = disk.names[path]
        if file is not None and flags & os.O_TRUNC:
            file.truncate(0)
        self._next_fd += 1
        self._open_files[self._next_fd] = _Open(disk, path, file, flags, process)
        return self._next_fd

    def close(self, fd: int) -> None:
        found = self._open_files.pop(fd, None)
        if found is not None and found.file is not None and found.file.lock is found:
            found.file.lock = None

    def fsync(self, fd: Any) -> None:
        self._step()
        found = self._of(fd if isinstance(fd, int) else fd.fileno())
        if found.disk.fails:
            if found.file is not None:
                found.file.is_refused = True
            raise _error(errno.EIO, found.path)
        if found.file is None:
            found.disk.force_folder(found.path)
        else:
            found.disk.force_file(found.path, found.file)

    def write(self, fd: int, data: Any) -> int:
        return self._write(fd, data, None)

    def pwrite(self, fd: int, data: Any, position: int) -> int:
        return self._write(fd, data, position)

    def writev(self, fd: int, parts: Any) -> int:
        return self._write(fd, b"".join(parts), None)

    def _write(self, fd: int, data: Any, position: int | None) -> int:
        self._step()
        found, file = self._file(fd)
        if found.disk.is_full:
            raise _error(errno.ENOSPC, found.path)
        if position is None:
            if found.flags & os.O_APPEND:
                found.position = len(file.content)
            position = found.position
            found.position += len(data)
        file.write(position, data)
        file.mtime_s = found.disk.now_s()
        return len(data)

    def read(self, fd: int, size: int) -> bytes:
        found, file = self._file(fd)
        data = file.read(found.position, size)
        found.position += len(data)
        return data

    def pread(self, fd: int, size: int, position: int) -> bytes:
        return self._file(fd)[1].read(position, size)

    def preadv(self, fd: int, buffers: Any, position: int, flags: int = 0) -> int:
        file = self._file(fd)[1]
        done = 0
        for buffer in buffers:
            data = file.read(position + done, len(buffer))
            buffer[: len(data)] = data
            done += len(data)
        return done

    def ftruncate(self, fd: int, size: int) -> None:
        self._step()
        self._file(fd)[1].truncate(size)

    def fstat(self, fd: int) -> Any:
        found = self._of(fd)
        return _stat(found.file)

    def dup(self, fd: int) -> int:
        found = self._of(fd)
        return self.open(found.path, found.flags & ~(os.O_CREAT | os.O_TRUNC | os.O_EXCL))

    # -- names

    def stat(self, path: Any) -> Any:
        path = os.fspath(path)
        disk = self._disk(path)
        if path not in disk.names:
            raise _error(errno.ENOENT, path)
        return _stat(disk.names[path])

    def unlink(self, path: Any) -> None:
        self._step()
        path = os.fspath(path)
        disk = self._disk(path)
        if path not in disk.names:
            raise _error(errno.ENOENT, path)
        if disk.names[path] is None:
            raise _error(errno.EISDIR, path)
        del disk.names[path]

    remove = unlink

    def utime(self, path: Any, times: tuple[float, float]) -> None:
        self._step()
        file = self._disk(os.fspath(path)).names[os.fspath(path)]
        assert file is not None
        file.mtime_s = times[1] - EPOCH_S

    def rename(self, old: Any, new: Any) -> None:
        self._step()
        old, new = os.fspath(old), os.fspath(new)
        disk = self._disk(old)
        if old not in disk.names or new.rpartition("/")[0] not in disk.names:
            raise _error(errno.ENOENT, old)
        disk.rename(old, new)

    replace = rename

    def makedirs(self, path: Any, mode: int = 0o777, exist_ok: bool = False) -> None:
        self._step()
        path = os.fspath(path)
        disk = self._disk(path)
        if disk.is_full and path not in disk.names:
            raise _error(errno.ENOSPC, path)
        parts = path[len(disk.root) :].split("/")
        for count in range(len(parts) + 1):
            disk.names.setdefault(disk.root + "/".join(parts[:count]).rstrip("/"), None)

    def listdir(self, path: Any) -> list[str]:
        path = os.fspath(path)
        disk = self._disk(path)
        if path not in disk.names:
            raise _error(errno.ENOENT, path)
        return disk.children(path)

    def scandir(self, path: Any) -> _Entries:
        path = os.fspath(path)
        disk = self._disk(path)
        return _Entries(path, [(name, disk.names[f"{path}/{name}"]) for name in self.listdir(path)])

    def statvfs(self, path: Any) -> Any:
        return SimpleNamespace(f_frsize=4096, f_blocks=1 << 28, f_bavail=1 << 27)

    def rmtree(self, path: Any, ignore_errors: bool = False) -> None:
        self._step()
        path = os.fspath(path)
        disk = self._disk(path)
        disk.remove(path)

    # -- open(), mmap, flock

    def open_file(self, path: Any, mode: str = "r", *arguments: Any, **options: Any) -> Any:
        path = os.fspath(path)
        if path == _BOOT_ID:
            return io.StringIO(self._loop.process.machine.boot_id + "\n")
        flags = {
            "rb": os.O_RDONLY,
            "r": os.O_RDONLY,
            "wb": os.O_WRONLY | os.O_CREAT | os.O_TRUNC,
            "r+b": os.O_RDWR,
        }[mode]
        return _FileObject(self, self.open(path, flags))

    def map(self, fd: int, size: int, offset: int = 0) -> Mapped:
        self._step()
        file = self._file(fd)[1]
        piece = Mapped(file.read(offset, size))
        file.maps[offset] = piece
        return piece

    def flock(self, fd: int, operation: int) -> None:
        found, file = self._file(fd)
        if file.lock is not None and file.lock is not found:
            raise BlockingIOError(errno.EWOULDBLOCK, "locked", found.path)
        file.lock = found


def _stat(file: File | None) -> Any:
    if file is None:
        return SimpleNamespace(st_mode=stat.S_IFDIR, st_size=0, st_mtime=EPOCH_S, st_ino=0)
    return SimpleNamespace(
        st_mode=stat.S_IFREG,
        st_size=len(file.content),
        st_mtime=EPOCH_S + file.mtime_s,
        st_ino=file.inode,
    )


class _Paths:
    """The module `os.path`: what concerns files that there are."""

    def __init__(self, system: System) -> None:
        self._system = system

    def __getattr__(self, name: str) -> Any:
        return getattr(os.path, name)

    def exists(self, path: Any) -> bool:
        path = os.fspath(path)
        return path in self._system._disk(path).names

    def getsize(self, path: Any) -> int:
        return int(self._system.stat(path).st_size)


class _Entry:
    def __init__(self, folder: str, name: str, file: File | None) -> None:
        self.name = name
        self.path = f"{folder}/{name}"
        self._is_dir = file is None

    def is_dir(self) -> bool:
        return self._is_dir


class _Entries:
    """What `scandir` returns."""

    def __init__(self, folder: str, found: list[tuple[str, File | None]]) -> None:
        self._entries = [_Entry(folder, name, file) for name, file in found]

    def __enter__(self) -> Iterator[_Entry]:
        return iter(self._entries)

    def __exit__(self, *problem: object) -> None:
        """Do nothing."""


class _FileObject:
    """What `open` returns: unbuffered, for bytes."""

    def __init__(self, system: System, fd: int) -> None:
        self._system = system
        self._fd = fd

    def __enter__(self) -> _FileObject:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: object, trace: TracebackType | None
    ) -> None:
        self._system.close(self._fd)

    def fileno(self) -> int:
        return self._fd

    def read(self, size: int = -1) -> bytes:
        return self._system.read(self._fd, 1 << 62 if size < 0 else size)

    def write(self, data: Any) -> int:
        return self._system.write(self._fd, data)

    def truncate(self, size: int) -> int:
        self._system.ftruncate(self._fd, size)
        return size
