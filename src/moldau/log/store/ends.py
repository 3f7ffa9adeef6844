"""The ends of all logs, kept outside their folders: what a restarted broker should find there.

    log-ends      chunks of 64 KiB. The first begins with 128 bytes: a magic number, the boot id
                  of the machine, the number of the broker's registration, how many chunks there
                  are, the number of the next registration, and since a clean stop the epoch that
                  its marker names. All else is entries of 32 bytes: topic id, partition, log end,
                  and since a clean stop the low half of the log's size. An entry without a topic id
                  is free.

The file is mapped into memory, and a log stores its end there after each write. That costs no call
to the system, and survives the process: the pages are the system's. It does not survive a power
failure in any order that could be relied on, so after another boot of the machine the ends mean
nothing, unless the file was forced to disk at a clean stop.

The cluster counts registrations, and an arrival counts as one. The next number is written down
before ZooKeeper is asked for it, and the present one when it has answered. So whenever the process
ends in between, one of the two is the cluster's. A life of the broker with another folder, with a
copy of this one, or with a version that keeps no record takes at least two numbers before it writes
anything (it arrives, then registers), so neither of the two is the cluster's after it.
"""

from __future__ import annotations

import errno
import mmap
import os
from collections.abc import Iterator
from struct import Struct
from uuid import UUID

import msgspec
from msgspec.structs import replace

from moldau.log.errors import StorageError
from moldau.log.files.disk import remove_file

FILE_NAME = "log-ends"

_MAGIC = b"moldau-log-ends 1\n"
_CHUNK = 64 << 10
_HEADER = Struct("=18s46sqqqq")
_HEADER_SIZE = 128
_ENTRY = Struct("=16sIIq")
_SIZE = Struct("=I")
_SIZE_MASK = 0xFFFFFFFF
_NUMBER = Struct("=q")
_REGISTRATION, _CHUNKS, _NEXT, _STOPPED = 8, 9, 10, 11
_NOBODY = bytes(16)
# Where the end is in an entry, in steps of 8 bytes, and so in all entries of a chunk.
_END = 3
_PLACES = tuple(range(_END, _CHUNK // 8, _ENTRY.size // 8))
_BOOT_ID = "/proc/sys/kernel/random/boot_id"

Entry = tuple[memoryview, int]


class KnownEnds(msgspec.Struct, frozen=True):
    """The ends that an earlier life of the broker recorded."""

    boot_id: str
    # The number of the broker's registration, and the one that it was about to get.
    registrations: tuple[int, int]
    # The epoch in the marker of its clean stop, if it was one.
    stopped: int
    # Log end and low half of the size by topic and partition.
    entries: dict[tuple[UUID, int], tuple[int, int]]

    def end_of(self, topic_id: UUID, partition: int) -> int:
        """Return where a log ended; 0 for one that was not there."""
        return self.entries.get((topic_id, partition), (0, 0))[0]

    def is_size(self, topic_id: UUID, partition: int, size: int) -> bool:
        """Return whether a log had this size at a clean stop; True for one that is not known."""
        entry = self.entries.get((topic_id, partition))
        return entry is None or entry[1] == size & _SIZE_MASK


def boot_id() -> str:
    """Return the boot id, which changes with each start of the machine; empty if the system has
    none.
    """
    try:
        with open(_BOOT_ID, encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return ""


def read_ends(path: str) -> KnownEnds | None:
    """Return the file of an earlier life; None if there is none, or it is not whole."""
    try:
        with open(path, "rb") as file:
            data = file.read()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StorageError.of(path, error) from error
    if len(data) < _CHUNK:
        return None
    magic, boot, registration, chunks, upcoming, stopped = _HEADER.unpack_from(data)
    # A chunk that was only just added is not counted yet, and nothing is in it.
    if magic != _MAGIC or not 0 < chunks * _CHUNK <= len(data):
        return None
    data = data[: chunks * _CHUNK]
    entries = {
        (UUID(bytes=topic_id), partition): (end, size)
        for topic_id, partition, size, end in _ENTRY.iter_unpack(memoryview(data)[_HEADER_SIZE:])
        if topic_id != _NOBODY
    }
    boot_id = boot.rstrip(b"\0").decode("ascii", "replace")
    return KnownEnds(boot_id, (registration, upcoming), stopped, entries)


def expect_registration(path: str, known: KnownEnds, registration: int) -> KnownEnds:
    """Write down in the file of an earlier life that the number after this one is next.

    Not if this is another than the file knows: then the file is not that of the last life.
    """
    if registration not in known.registrations:
        return known
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
        try:
            # In this order, so that one of the two is right at any time.
            os.pwrite(fd, _NUMBER.pack(registration), _REGISTRATION * _NUMBER.size)
            os.pwrite(fd, _NUMBER.pack(registration + 1), _NEXT * _NUMBER.size)
            os.fsync(fd)
        finally:
            os.close(fd)
    except OSError as error:
        raise StorageError.of(path, error) from error
    return replace(known, registrations=(registration, registration + 1))


class LogEnds:
    """The file of this life. Event loop only.

    `take` gives a log its entry: a view, and where in it the log's end is to be stored.
    """

    def __init__(self, path: str, registration: int) -> None:
        """Replace the file of the last life. StorageError if the disk refuses: there is none."""
        self._path = path
        self._maps: list[mmap.mmap] = []
        # Entries that nobody has had yet, in the last chunk, and those that are free again.
        self._unused: Iterator[int] = iter(())
        self._view = memoryview(b"")
        self._free: list[Entry] = []
        # A new file, so that nothing of it counts as forced to disk that was not.
        new = f"{path}.new"
        remove_file(new)
        try:
            self._fd = os.open(new, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
            self._grow(_HEADER_SIZE // _ENTRY.size)
            self._header = self._view
            numbers = (registration, 1, registration, 0)
            _HEADER.pack_into(self._maps[0], 0, _MAGIC, boot_id().encode(), *numbers)
            # A kill leaves either file whole.
            os.replace(new, path)
        except OSError as error:
            raise StorageError.of(path, error) from error
        finally:
            remove_file(new)

    def expect_registration(self, registration: int) -> None:
        """The broker is registered under this number, and may soon be under the next."""
        # In this order, so that one of the two is right at any time.
        self._header[_REGISTRATION] = registration
        self._header[_NEXT] = registration + 1

    def register(self, registration: int) -> None:
        """The broker is registered under another number from now on."""
        self._header[_REGISTRATION] = registration
        self._header[_NEXT] = registration

    def take(self, topic_id: UUID, partition: int, end: int) -> Entry:
        """Return an entry for a log that ends here; StorageError if the disk has no room for it."""
        if self._free:
            view, place = self._free.pop()
        else:
            unused = next(self._unused, None)
            if unused is None:
                self._grow(0)
                self._header[_CHUNKS] = len(self._maps)
                unused = next(self._unused)
            view, place = self._view, unused
        _ENTRY.pack_into(view.obj, (place - _END) * 8, topic_id.bytes, partition, 0, end)
        return view, place

    def drop(self, entry: Entry) -> None:
        """The log is gone, and is not to be missed."""
        view, place = entry
        view[place - _END] = view[place - _END + 1] = 0
        self._free.append(entry)

    def note_size(self, entry: Entry, size: int) -> None:
        """The log has been closed, and its files are this long."""
        view, place = entry
        _SIZE.pack_into(view.obj, place * 8 - _SIZE.size, size & _SIZE_MASK)

    def stop(self, epoch: int) -> None:
        """Have all of it on disk, before a marker with this epoch is; OSError if it refuses."""
        self._header[_STOPPED] = epoch
        for chunk in self._maps:
            chunk.flush()
        os.fsync(self._fd)

    def close(self) -> None:
        """Let go of the file. Logs that store into it still do no harm."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _grow(self, first: int) -> None:
        size = len(self._maps) * _CHUNK
        try:
            # Written, and not only made longer: storing into a page for which the disk has no room
            # would end the process.
            if os.pwrite(self._fd, bytes(_CHUNK), size) != _CHUNK:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            chunk = mmap.mmap(self._fd, _CHUNK, offset=size)
        except OSError as error:
            raise StorageError.of(self._path, error) from error
        self._maps.append(chunk)
        self._view = memoryview(chunk).cast("q")
        self._unused = iter(_PLACES[first:])
