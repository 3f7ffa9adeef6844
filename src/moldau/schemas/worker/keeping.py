"""Schemas that a worker process keeps, so that it is told each of them once. No I/O here.

A subject may have hundreds of versions, and each question about it concerns all of them. They go to
the process before the first question that needs them, in pieces, and from then on by numbers. No
number is used twice, so a process that has been replaced is found out by what it does not know.
"""

from __future__ import annotations

import itertools

import msgspec

from moldau.schemas.schema import Dependency, Schema
from moldau.schemas.worker.messages import Keep, Known, Numbered

# How much a process keeps beyond what the last question was about.
_MOST_BYTES = 64 << 20
# How much is encoded at once.
_PIECE = 1 << 20
# The most that metadata, or rules, are taken for: to measure them would be to encode them.
_OF_PARTS = 64 << 10


class _Kept(msgspec.Struct, frozen=True):
    number: int
    schema: Schema
    dependencies: list[Dependency]
    size: int


class Keeping:
    """What a process was told. Schemas are known by their identity: they never change."""

    def __init__(self, most_bytes: int = _MOST_BYTES) -> None:
        self._most_bytes = most_bytes
        self._numbers = itertools.count(1)
        # By the id of each schema; what was used last comes last.
        self._kept: dict[int, _Kept] = {}
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._kept)

    def refer(self, versions: list[Known]) -> tuple[list[tuple[int, int]], list[Keep]]:
        """Return each version with the number of its schema, and what has to be told before."""
        numbers: list[tuple[int, int]] = []
        new: list[_Kept] = []
        gone: list[int] = []
        for each in versions:
            kept = self._kept.pop(id(each.schema), None)
            if kept is None or kept.dependencies != each.dependencies:
                if kept is not None:
                    self._bytes -= kept.size
                    gone.append(kept.number)
                kept = _Kept(next(self._numbers), each.schema, each.dependencies, _size(each))
                self._bytes += kept.size
                new.append(kept)
            self._kept[id(each.schema)] = kept
            numbers.append((each.version, kept.number))
        used = len({id(each.schema) for each in versions})
        while self._bytes > self._most_bytes and len(self._kept) > used:
            oldest = self._kept.pop(next(iter(self._kept)))
            self._bytes -= oldest.size
            gone.append(oldest.number)
        return numbers, _pieces(new, gone)

    def forget_all(self) -> None:
        """Take note that the process is another one."""
        self._kept.clear()
        self._bytes = 0


def _size(known: Known) -> int:
    schema = known.schema
    parts = (schema.metadata is not None) + (schema.rule_set is not None)
    texts = len(schema.schema) + sum(len(each.schema) for each in known.dependencies)
    return texts + parts * _OF_PARTS


def _pieces(new: list[_Kept], gone: list[int]) -> list[Keep]:
    found = [Keep([], gone)] if gone else []
    piece: list[Numbered] = []
    size = 0
    for kept in new:
        if piece and size + kept.size > _PIECE:
            found.append(Keep(piece))
            piece, size = [], 0
        piece.append(Numbered(kept.number, kept.schema, kept.dependencies))
        size += kept.size
    return [*found, Keep(piece)] if piece else found
