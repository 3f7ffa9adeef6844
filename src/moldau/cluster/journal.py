"""The file format of the embedded store.

    moldau-metadata 1
    8c3f21aa 0 0 [{"change":"ClusterCreated",...}]
    5e02b7d1 1 1 [{"change":"TopicCreated",...},...]
    0917fe43 2 1 [...]

After the heading, one line per batch of changes: CRC-32 (of the rest of the line), the line's
sequence number, the sequence number of the first line of the same write, and the changes as JSON.
A batch is there whole or not at all.

A write is fsynced before the next one begins, so a line proves that everything before its own
write had reached the disk. A broken line that nothing later proves is the torn end of the last
write, which nobody was told about, and is cut. A broken line that a later write does prove was
acknowledged and is damaged: the file is refused, for what it held must not be forgotten quietly.
A write about access is followed by an empty batch as a write of its own, a seal. It is not flushed;
as soon as it is on the disk, the rules before it cannot be taken for a torn end any more.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Sequence

import msgspec

from moldau.cluster.state.changes import AnyChange

HEADING = b"moldau-metadata 1\n"

_LINE = re.compile(rb"([0-9a-f]{8}) ((\d{1,18}) (\d{1,18}) (.+))", re.DOTALL)
_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(list[AnyChange])


class DamagedJournal(Exception):
    """The file is no journal, or acknowledged changes in it are unreadable."""


class Journal(msgspec.Struct, frozen=True):
    """The content of a file: its batches, their length, and the next sequence number."""

    batches: list[list[AnyChange]]
    length: int
    next_sequence: int


def encode_changes(changes: Sequence[AnyChange]) -> bytes:
    """Return a batch as it stands in its line."""
    return _encoder.encode(changes)


def encode_line(sequence: int, write: int, changes: bytes) -> bytes:
    """Return the line of one encoded batch; `write` is the sequence number of its write's first
    line."""
    content = b"%d %d %s" % (sequence, write, changes)
    return b"%08x %s\n" % (zlib.crc32(content), content)


def read_journal(data: bytes) -> Journal:
    """Return the journal that `data` begins with, up to its torn end; DamagedJournal if it is
    damaged."""
    if not data.startswith(HEADING):
        raise DamagedJournal("it does not start like a metadata file of this format")
    batches: list[list[AnyChange]] = []
    length = len(HEADING)
    expected: int | None = None
    while (end := data.find(b"\n", length)) >= 0:
        line = _intact(data[length:end])
        if line is None or (expected is not None and line.sequence != expected):
            break
        try:
            batches.append(_decoder.decode(line.changes))
        except msgspec.DecodeError as error:
            raise DamagedJournal(f"line {line.sequence} is invalid: {error}") from error
        expected = line.sequence + 1
        length = end + 1
    if expected is None:
        raise DamagedJournal("its first line is unreadable")
    for text in data[length:].split(b"\n"):
        line = _intact(text)
        if line is not None and line.write > expected:
            raise DamagedJournal(
                f"line {expected} (byte {length}) is unreadable, and later changes build on it"
            )
    return Journal(batches, length, expected)


class _Line(msgspec.Struct, frozen=True):
    sequence: int
    write: int
    changes: bytes


def _intact(text: bytes) -> _Line | None:
    found = _LINE.fullmatch(text)
    if found is None or int(found[1], 16) != zlib.crc32(found[2]):
        return None
    return _Line(int(found[3]), int(found[4]), found[5])
