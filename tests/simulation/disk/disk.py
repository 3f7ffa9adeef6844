"""Simulated disks: files in memory that remember what was forced to the disk.

A file has its content, as every process of the machine sees it, and what would be left of it after
a power failure: the content as of its last fsync. A name has the same: what folders hold now, and
what they held when they were last forced to the disk. A crash of a process loses nothing. A power
failure loses, of each file, what came after its last fsync, or tears it at a random place; names
that were not forced may be kept or be lost, each of them. Where a folder was made in the place of
another, one of the two is left, never files of both.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from moldau.log.epochs import FILE_NAME as EPOCHS

PAGE = 4096


class Mapped(bytearray):
    """A piece of a file that is mapped into memory."""

    def flush(self) -> None:
        """The fsync of the file that follows does it."""


@dataclass(eq=False)
class File:
    """A file. `safe` is what the disk surely has of it."""

    content: bytearray = field(default_factory=bytearray)
    safe: bytes = b""
    mtime_s: float = 0.0
    # Pieces that are mapped, by where they begin; they are the content there.
    maps: dict[int, Mapped] = field(default_factory=dict)
    lock: object | None = None
    inode: int = 0
    # The disk refused an fsync: the system takes what was written for clean, and nobody will ever
    # write it to the disk (fsyncgate).
    is_refused: bool = False

    def read(self, position: int, size: int) -> bytes:
        if self.maps:
            self.settle()
        return bytes(self.content[position : position + size])

    def settle(self) -> None:
        """Take what was stored into the mapped pieces."""
        for start, piece in self.maps.items():
            self.content[start : start + len(piece)] = piece

    def write(self, position: int, data: bytes | memoryview) -> None:
        if self.maps:
            for start, piece in self.maps.items():
                first, last = max(position, start), min(position + len(data), start + len(piece))
                if first < last:
                    piece[first - start : last - start] = data[first - position : last - position]
        content = self.content
        if position > len(content):
            content.extend(bytes(position - len(content)))
        content[position : position + len(data)] = data

    def truncate(self, size: int) -> None:
        if size < len(self.content):
            del self.content[size:]
        else:
            self.content.extend(bytes(size - len(self.content)))

    def force(self) -> None:
        if self.maps:
            self.settle()
        if not self.is_refused:
            self.safe = bytes(self.content)


class Names(dict[str, File | None]):
    """What is on a disk, by path; None is a folder. `changes` goes up with each name that comes or
    goes, so that nobody has to go through all of them to see that nothing has."""

    changes = 0

    def __setitem__(self, path: str, file: File | None) -> None:
        self.changes += 1
        super().__setitem__(path, file)

    def __delitem__(self, path: str) -> None:
        self.changes += 1
        super().__delitem__(path)

    def pop(self, path: str, *default: None) -> File | None:  # type: ignore[override]
        self.changes += 1
        return super().pop(path, *default)

    def setdefault(self, path: str, file: File | None = None) -> File | None:
        self.changes += 1
        return super().setdefault(path, file)


class Disk:
    """The disk of one machine: a tree of folders and files under absolute paths.

    `fsync_s` is what an fsync takes, `is_full` and `fails` refuse writes and fsyncs.
    """

    def __init__(self, root: str, dice: random.Random, now_s: Callable[[], float]) -> None:
        self.root = root
        self._dice = dice
        self.now_s = now_s
        self.names = Names({root: None})
        self._safe_names: dict[str, File | None] = {root: None}
        # Folders on the disk that have been renamed or removed since: what has such a name now is
        # another one.
        self._replaced: set[str] = set()
        self.is_full = False
        self.fails = False
        self.fsync_s = 0.0
        self._inodes = 0

    def new_file(self) -> File:
        self._inodes += 1
        return File(mtime_s=self.now_s(), inode=self._inodes)

    def children(self, folder: str) -> list[str]:
        prefix = folder.rstrip("/") + "/"
        size = len(prefix)
        found = [
            path[size:] for path in self.names if path.startswith(prefix) and "/" not in path[size:]
        ]
        # A file system promises no order.
        self._dice.shuffle(found)
        return found

    def below(self, folder: str) -> Iterator[str]:
        prefix = folder.rstrip("/") + "/"
        return (path for path in list(self.names) if path.startswith(prefix))

    def rename(self, old: str, new: str) -> None:
        moved = self.names.pop(old)
        if moved is None:
            self._folder_gone(old)
            for path in self.below(old):
                self.names[new + path[len(old) :]] = self.names.pop(path)
        self.names[new] = moved

    def remove(self, folder: str) -> None:
        """Remove a folder with all that is in it."""
        for path in self.below(folder):
            del self.names[path]
        self.names.pop(folder, None)
        self._folder_gone(folder)

    def _folder_gone(self, folder: str) -> None:
        if folder in self._safe_names:
            self._replaced.add(folder)

    def force_folder(self, folder: str) -> None:
        """What is in a folder now is there after a power failure, and what is not is not."""
        self._replace(folder)
        safe = self._safe_names
        prefix = folder.rstrip("/") + "/"
        size = len(prefix)
        now = {
            path: file for path, file in self.names.items()
            if path.startswith(prefix) and "/" not in path[size:]
        }  # fmt: skip
        inside = [path for path in safe if path.startswith(prefix) and "/" not in path[size:]]
        for path in inside:
            if path not in now or path in self._replaced:
                self._unsafe(path)
        for path, file in now.items():
            if file is None and path not in safe:
                # A folder that was renamed brings what the disk had of its files.
                safe[path] = None
                for inner in self.below(path):
                    held = self.names[inner]
                    if held is None or held.safe:
                        safe[inner] = held
            elif file is not None:
                safe[path] = file
        safe[folder] = None

    def _replace(self, folder: str) -> None:
        """The disk has the folder that is there now, in the place of the other one."""
        if folder in self._replaced:
            self._unsafe(folder)

    def _unsafe(self, path: str) -> None:
        gone = self._safe_names.pop(path)
        self._replaced.discard(path)
        if gone is None:
            prefix = path + "/"
            for inner in [each for each in self._safe_names if each.startswith(prefix)]:
                del self._safe_names[inner]

    def force_file(self, path: str, file: File) -> None:
        """The file's content; its name too, as journalling file systems do for a new file."""
        file.force()
        if self.names.get(path) is not file:
            return
        self._replace(path.rpartition("/")[0])
        if path not in self._safe_names:
            parent = path
            while parent and parent not in self._safe_names:
                self._safe_names[parent] = self.names.get(parent)
                parent = parent.rpartition("/")[0]

    # -- what happens to disks

    def lose_power(self) -> str:
        """Keep what is safe, and at random some of the rest; return what was lost."""
        dice = self._dice
        names: dict[str, File | None] = {}
        # Of folders in whose place there is another: whether they are what is left.
        is_back = {
            path: dice.random() < 0.5 for path in sorted(self._replaced) if path in self.names
        }
        for path in sorted({*self.names, *self._safe_names}):
            former = is_back.get(path.rpartition("/")[0])
            is_now = path in self.names and former is not True
            was_safe = path in self._safe_names and former is not False
            now, safe = self.names.get(path), self._safe_names.get(path)
            if is_now and was_safe:
                names[path] = now if now is safe or dice.random() < 0.5 else safe
            elif is_now and dice.random() < 0.7:
                names[path] = now
            elif was_safe and dice.random() < 0.3:
                names[path] = safe
        # Nothing is left of a folder that is not there.
        kept: dict[str, File | None] = {self.root: None}
        for path in sorted(names):
            if path.rpartition("/")[0] in kept or path == self.root:
                kept[path] = names[path]
        lost = 0
        for file in {id(each): each for each in kept.values() if each is not None}.values():
            lost += self._tear(file)
        self.names = Names(kept)
        self._safe_names = dict(kept)
        self._replaced.clear()
        return f"{lost} bytes"

    def _tear(self, file: File) -> int:
        file.settle()
        file.maps.clear()
        file.lock = None
        now, safe, dice = bytes(file.content), file.safe, self._dice
        choice = dice.random()
        if now.startswith(safe):
            # Bytes were appended: some of them may have got there, and be followed by zeros.
            if choice < 0.5:
                left = safe
            else:
                end = len(safe) + int(dice.random() * (len(now) - len(safe) + 1))
                left = now[:end]
                if choice > 0.9 and end < len(now):
                    left += bytes(min(len(now) - end, PAGE))
        elif choice < 0.4:
            left = safe
        else:
            # Written over, or cut: each page is the old one or the new one.
            pages = []
            for start in range(0, max(len(now), len(safe)), PAGE):
                pages.append((now if dice.random() < 0.5 else safe)[start : start + PAGE])
            left = b"".join(pages)
        file.content = bytearray(left)
        file.safe = left
        file.is_refused = False
        return max(0, len(now) - len(left))

    def wipe(self) -> None:
        """Put an empty disk in its place."""
        self.names = Names({self.root: None})
        self._safe_names = {self.root: None}
        self._replaced.clear()

    def process_died(self) -> None:
        """The system lets go of what a process had locked and mapped."""
        for file in self.names.values():
            if file is not None:
                if file.maps:
                    file.settle()
                    file.maps.clear()
                file.lock = None

    def flip_bit(self, suffix: str) -> str | None:
        """Change one bit of a file of that kind; return which, None if there is none.

        Of a log only what was not forced to the disk: nobody looks at old data before it is read,
        and clients check it themselves. Not the epoch of a batch nor the low half of its base
        offset, nor a number among the starts of epochs, which no checksum covers.
        """
        found: list[tuple[str, File, int]] = []
        for path in sorted(self.names):
            file = self.names[path]
            if file is not None and path.endswith(suffix) and file.content:
                is_log = suffix == ".log"
                first = _shared(file.safe, file.content) if is_log else 0
                if first < len(file.content):
                    found.append((path, file, first))
        if not found:
            return None
        path, file, first = self._dice.choice(found)
        place = self._dice.randrange(first, len(file.content))
        if suffix == ".log" and _is_uncovered(file.content, place):
            return None
        flipped = file.content[place] ^ (1 << self._dice.randrange(8))
        if path.endswith(EPOCHS) and chr(flipped).isdigit():
            return None
        file.content[place] = flipped
        file.safe = bytes(file.content)
        return f"{path} at byte {place}"


def _shared(one: bytes, other: bytearray) -> int:
    """How many bytes both begin with."""
    return next(
        (place for place, pair in enumerate(zip(one, other, strict=False)) if pair[0] != pair[1]),
        min(len(one), len(other)),
    )


def _is_uncovered(content: bytearray, place: int) -> bool:
    """Whether nothing can tell that a byte in the header of a batch is another."""
    start = 0
    while start + 12 <= len(content):
        end = start + 12 + int.from_bytes(content[start + 8 : start + 12], "big")
        if place < end:
            return 4 <= place - start < 8 or 12 <= place - start < 16
        start = end
    return False
