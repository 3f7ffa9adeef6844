"""The producer snapshots of a log."""

from __future__ import annotations

import logging

from moldau.log.errors import CorruptFile
from moldau.log.files.disk import read_small, remove_file
from moldau.log.producers.snapshot_format import decode_snapshot, encode_snapshot
from moldau.log.producers.states import ProducerStates
from moldau.log.segments.names import SNAPSHOT_SUFFIX, path_of

logger = logging.getLogger("moldau.log")


class Snapshots:
    """The files `<offset>.snapshot` beside the segments: the producer state just before `offset`.

    There is one for the beginning of each segment, as Kafka has it, and one newer than those at
    most; `ProducerStates` has the layout. They are there to save reading: a crash may leave one
    missing or torn, which costs recovery time only. Event loop only; a flush writes one on its
    thread, and a log that was cut meanwhile removes it again.
    """

    __slots__ = ("folder", "offsets")

    def __init__(self, folder: str, offsets: list[int] | None = None) -> None:
        self.folder = folder
        self.offsets = offsets or []

    def path_of(self, offset: int) -> str:
        return path_of(self.folder, offset, SNAPSHOT_SUFFIX)

    def take(self, offset: int, producers: ProducerStates, bases: set[int]) -> None:
        """Write a snapshot, not forced to disk."""
        path = self.path_of(offset)
        try:
            with open(path, "wb", buffering=0) as file:
                file.write(encode_snapshot(producers))
        except OSError as error:
            logger.warning("could not write a producer snapshot: %s: %s", path, error)
            return
        self.add(offset, bases)

    def add(self, offset: int, bases: set[int]) -> None:
        """Note a new snapshot; of those that begin none of the segments `bases` the rest go."""
        for old in self.offsets[:]:
            if old not in bases and old < offset:
                self.remove(old)
        if offset not in self.offsets:
            self.offsets.append(offset)

    def remove(self, offset: int) -> None:
        """Drop a snapshot, whether it is known or a late flush has just written it."""
        if offset in self.offsets:
            self.offsets.remove(offset)
        remove_file(self.path_of(offset))

    def remove_above(self, offset: int) -> None:
        for old in self.offsets[:]:
            if old > offset:
                self.remove(old)

    def remove_below(self, offset: int) -> None:
        for old in self.offsets[:]:
            if old < offset:
                self.remove(old)

    def before(self, offset: int, first_base: int) -> ProducerStates:
        """Return the state of the newest snapshot up to `offset` that can be read; if none can, the
        empty one that the log begins with."""
        for known in sorted(self.offsets, reverse=True):
            path = self.path_of(known)
            content = read_small(path) if known <= offset else None
            if content is not None:
                try:
                    return decode_snapshot(content, path, known)
                except CorruptFile as error:
                    logger.warning("ignoring an invalid producer snapshot: %s", error)
        return ProducerStates(first_base)

    def latest(self, first_base: int) -> ProducerStates:
        """Return the state of the newest snapshot that can be read; if none can, the empty one that
        the log begins with."""
        while self.offsets:
            offset = max(self.offsets)
            path = self.path_of(offset)
            content = read_small(path)
            try:
                if content is not None:
                    return decode_snapshot(content, path, offset)
            except CorruptFile as error:
                logger.warning("ignoring an invalid producer snapshot: %s", error)
            self.remove(offset)
        return ProducerStates(first_base)
