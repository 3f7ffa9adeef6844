"""One path that is followed: the file that it leads to, and those that it led to before."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from moldau.cli.follow.marks import Marks
from moldau.cli.follow.siblings import open_file, rotations_of, with_inode
from moldau.cli.follow.source import Arrived, Source, holds_line
from moldau.cli.follow.state import KnownFile, State, StateFile
from moldau.cli.views.output import Failure, show

# Rotated files are still watched, since a writer may take a while to turn to the new one. Of older
# ones it is only remembered that they are known.
WATCHED_ROTATIONS = 8


class Line(Protocol):
    """A line under way."""

    source: Source
    done: bool
    arrived_before: bool
    end: int
    tail: bytes
    partition: int
    offset: int


class Followed:
    """The files of one path, oldest first, and their lines under way in the order they were sent.

    `changed` says that a file has become known or has moved: the state must be saved before a line
    of it is sent, or a crash would leave records that nobody can tell the origin of.
    """

    def __init__(self, path: Path, state: StateFile) -> None:
        self.path = path
        self.state = state
        self.sources: list[Source] = []
        self.under_way: deque[Line] = deque()
        self.changed = True
        self.unsaved = True
        self._leaving: list[Source] = []
        # Everything that the read-back found must be behind the saved place before the offsets to
        # read back from may move: `held` lines of it are not, yet.
        self._held = 0
        self._held_offsets: dict[str, int] = {}
        self._offsets: dict[str, int] = {}

    def resume(self, arrived: Mapping[str, Arrived], ends: Mapping[int, int]) -> None:
        """Find the files of the saved state again, and those that have come since.

        `arrived` are the lines that were read back, by the file's id; `ends` is where the topic's
        partitions ended before anything of this run was sent.
        """
        self._offsets = {str(partition): end for partition, end in ends.items()}
        saved = self.state.saved
        if saved is None:
            # Lines that were rotated away before the first run are not collected; lines added later
            # are.
            for sibling in rotations_of(self.path):
                fd = self._open(sibling)
                if fd is not None:
                    self._add(Source.start(fd, os.fstat(fd).st_size), rotated=True)
            self.scan(first=True)
            return
        for known in saved.files:
            self._resume_file(known, arrived.get(known.id, {}))
        if self._held:
            self._held_offsets = saved.offsets
        self.scan()

    def _resume_file(self, known: KnownFile, all_arrived: Arrived) -> None:
        position = known.place.position
        arrived = {start: line for start, line in all_arrived.items() if start >= position}
        fd = self._find(known, arrived)
        if fd is not None:
            self._add(Source.resume(fd, known.id, position, arrived), rotated=True)
            self._held += len(arrived)
        elif not known.rotated:
            show(
                f"{self.path}: the followed file is gone; lines after byte {position} are lost",
                "yellow",
                stderr=True,
            )

    def scan(self, *, first: bool = False) -> None:
        """See whether the path leads to another file than before, and which have come between."""
        current = self.current
        try:
            status: os.stat_result | None = os.stat(self.path)
        except FileNotFoundError:
            status = None
        except OSError as problem:
            raise Failure(f"{self.path} cannot be read: {problem.strerror}") from None
        if current is not None:
            if status is not None and current.is_file(status):
                return
            current.rotated = True
            self.changed = True
        elif status is None:
            return
        if not first:
            for sibling in rotations_of(self.path):
                self._meet(sibling, rotated=True)
        if status is not None:
            self._meet(self.path, rotated=False)
        self._let_old_ones_go()

    @property
    def current(self) -> Source | None:
        """The file that the path leads to."""
        return next((source for source in self.sources if not source.rotated), None)

    def content_changed(self, source: Source) -> None:
        """The file was cut. Its content goes on in a copy, if there is one (copytruncate)."""
        copy = self._copy_of(source.reading_place)
        self.changed = True
        if copy is not None:
            source.move_to(copy)
            source.rotated = True
        else:
            self.drop(source)
        self.scan()

    def drop(self, source: Source) -> None:
        """Nothing more will come of this file; its place is kept until all of it is delivered."""
        source.close()
        self.sources.remove(source)
        self._held -= len(source.arrived)
        if source.in_flight:
            self._leaving.append(source)
        self.changed = True

    def settle(self) -> bool:
        """Move places forward over the lines that are delivered; true if any moved."""
        moved = False
        while self.under_way and self.under_way[0].done:
            line = self.under_way.popleft()
            moved = True
            line.source.in_flight -= 1
            line.source.settle(line.end, line.tail)
            if line.arrived_before:
                self._held -= 1
            elif line.offset >= 0:
                self._offsets[str(line.partition)] = line.offset + 1
        if moved:
            self.unsaved = True
            self._leaving = [source for source in self._leaving if source.in_flight]
        return moved

    def save(self, *, clean: bool = False) -> None:
        empty = self.state.empty
        files = [
            KnownFile(source.id, source.device, source.inode, source.place, source.rotated)
            for source in (*self._leaving, *self.sources)
        ]
        offsets = self._held_offsets if self._held else self._offsets
        self.state.save(State(empty.topic, empty.cluster, empty.path, clean, dict(offsets), files))
        self.changed = self.unsaved = False

    def close(self) -> None:
        for source in self.sources:
            source.close()
        self.state.close()

    def _meet(self, path: Path, *, rotated: bool) -> None:
        """A file in the place of the path or of a rotation: one that we know, or a new one."""
        fd = self._open(path)
        if fd is None:
            return
        status = os.fstat(fd)
        for source in self.sources:
            if source.is_file(status) and source.reading_place.hold_for(fd):
                source.rotated = rotated
                os.close(fd)
                return
        if rotated and self._is_copy(fd, status.st_size):
            os.close(fd)
            return
        self._add(Source.start(fd), rotated=rotated)

    def _add(self, source: Source, *, rotated: bool) -> None:
        source.rotated = rotated
        self.sources.append(source)
        self.changed = True

    def _open(self, path: Path) -> int | None:
        try:
            return open_file(path)
        except OSError as problem:
            raise Failure(f"{path} cannot be read: {problem.strerror}") from None

    def _find(self, known: KnownFile, arrived: Arrived) -> int | None:
        """Return the file that a saved place is in: that inode or, if it holds something else, a
        copy."""
        first = min(arrived, default=None)

        def opened_if_it_is(path: Path | None) -> int | None:
            fd = None if path is None else self._open(path)
            if fd is None:
                return None
            if known.place.hold_for(fd) and (
                first is None or holds_line(fd, first, *arrived[first])
            ):
                return fd
            os.close(fd)
            return None

        fd = opened_if_it_is(with_inode(self.path.parent, known.device, known.inode))
        if fd is not None or (not known.place.position and first is None):
            return fd
        for path in (*rotations_of(self.path), self.path):
            fd = opened_if_it_is(path)
            if fd is not None:
                return fd
        return None

    def _copy_of(self, marks: Marks) -> int | None:
        """Return a rotated form of the path that holds what was read of a file which was cut
        since."""
        if not marks.position:
            return None
        for path in rotations_of(self.path):
            fd = self._open(path)
            if fd is None:
                continue
            status = os.fstat(fd)
            known = any(source.is_file(status) for source in self.sources)
            if not known and marks.hold_for(fd):
                return fd
            os.close(fd)
        return None

    def _is_copy(self, fd: int, size: int) -> bool:
        """Return whether all of a file is the beginning of one that we read: a copytruncate
        half-way."""
        if not size:
            return False
        marks = Marks.read(fd, size)
        return any(source.is_open and marks.hold_for(source.fd) for source in self.sources)

    def _let_old_ones_go(self) -> None:
        rotated = [source for source in self.sources if source.rotated]
        for source in rotated[:-WATCHED_ROTATIONS]:
            if source.in_flight or source.arrived:
                continue
            if source.is_open:
                if source.is_read:
                    source.close()
            elif with_inode(self.path.parent, source.device, source.inode) is None:
                self.sources.remove(source)
