"""The logs on simulated disks, read without the product's own reader."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from moldau.records.batch import CONTROL_BIT, HEADER, HEADER_SIZE, TRANSACTIONAL_BIT
from tests.simulation.disk.disk import Disk, File, Names


class Batch(NamedTuple):
    """What is compared of a batch. The CRC covers all of it but base offset and epoch."""

    base: int
    last: int
    epoch: int
    crc: int
    producer_id: int
    producer_epoch: int
    sequence: int
    records: int
    attributes: int = 0
    # All of it, of those whose records matter.
    data: bytes = b""

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL_BIT)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL_BIT)

    def __str__(self) -> str:
        return f"a batch from {self.base} to {self.last} of epoch {self.epoch}"


@dataclass
class LogFile:
    """The batches of one segment file, read as it grows."""

    file: File
    keeps_data: bool = False
    batches: list[Batch] = field(default_factory=list)
    position: int = 0

    def grow(self) -> None:
        content = self.file.content
        size = len(content)
        if size < self.position:
            self.batches.clear()
            self.position = 0
        while self.position + HEADER_SIZE <= size:
            (base, length, epoch, magic, crc, attributes, delta, _, _, producer, producer_epoch,
             sequence, count) = HEADER.unpack_from(content, self.position)  # fmt: skip
            end = self.position + 12 + length
            if magic != 2 or end > size:
                break
            data = b""
            if self.keeps_data or attributes & CONTROL_BIT:
                data = bytes(content[self.position : end])
            self.batches.append(
                Batch(
                    base, base + delta, epoch, crc, producer, producer_epoch, sequence, count,
                    attributes, data,
                )
            )  # fmt: skip
            self.position = end


class LogReader:
    """One partition's log on one disk."""

    def __init__(self, disk: Disk, folder: str, *, keeps_data: bool = False) -> None:
        self._disk = disk
        self._keeps_data = keeps_data
        self._folder = folder + "/"
        self._files: dict[str, LogFile] = {}
        # Its files in order, as of so many changes of those names.
        self._paths: list[str] = []
        self._names = Names()
        self._changes = -1

    def forget(self) -> None:
        """Read everything again: the log was cut."""
        self._files.clear()

    def batches(self, first: int, end: int) -> list[Batch]:
        """The batches that begin at `first` or later and before `end`, in order."""
        names, paths = self._disk.names, self._find()
        size = len(self._folder)
        found: list[Batch] = []
        for number, path in enumerate(paths):
            if number + 1 < len(paths) and int(paths[number + 1][size:-4]) <= first:
                continue
            file = names[path]
            assert file is not None
            known = self._files.get(path)
            if known is None or known.file is not file:
                known = self._files[path] = LogFile(file, self._keeps_data)
            known.grow()
            batches = known.batches
            start = len(batches)
            while start and batches[start - 1].base >= first:
                start -= 1
            found.extend(batch for batch in batches[start:] if batch.base < end)
        return found

    def _find(self) -> list[str]:
        names = self._disk.names
        if names is not self._names or names.changes != self._changes:
            self._names, self._changes = names, names.changes
            folder, size = self._folder, len(self._folder)
            self._paths = sorted(
                path
                for path in names
                if path.startswith(folder) and path.endswith(".log") and "/" not in path[size:]
            )
        return self._paths
