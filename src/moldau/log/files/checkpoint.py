"""Checkpoint files: Kafka's small text files of a version, a count, and one entry a line."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping

from moldau.log.errors import CorruptFile, StorageError
from moldau.log.files.disk import read_small, replace_file, sync_folder
from moldau.topic_partition import TopicPartition

VERSION = 0


def encode_entries(entries: Iterable[str]) -> bytes:
    lines = list(entries)
    return "\n".join([str(VERSION), str(len(lines)), *lines, ""]).encode()


def decode_entries(content: bytes, path: str, fields: int) -> list[list[str]]:
    """Return the entries of a checkpoint, each split into its `fields`; CorruptFile if it is
    none."""
    try:
        lines = content.decode().splitlines()
    except UnicodeDecodeError:
        raise CorruptFile(path, "not text") from None
    if not lines:
        return []
    if lines[0] != str(VERSION):
        raise CorruptFile(path, f"version {lines[0]!r} is not {VERSION}")
    entries = [line.split() for line in lines[2:]]
    if len(lines) < 2 or lines[1] != str(len(entries)):
        raise CorruptFile(path, f"{len(entries)} entries do not match the count in the file")
    for entry in entries:
        if len(entry) != fields:
            raise CorruptFile(path, f"malformed line {' '.join(entry)!r}")
    return entries


def read_offsets(path: str) -> dict[TopicPartition, int] | None:
    """Partition to offset, as `TOPIC PARTITION OFFSET` lines; None if there is no such file."""
    content = read_small(path)
    if content is None:
        return None
    offsets = {}
    for topic, partition, offset in decode_entries(content, path, 3):
        try:
            offsets[topic, int(partition)] = int(offset)
        except ValueError:
            raise CorruptFile(path, f"malformed line of topic {topic!r}") from None
    return offsets


def read_counts(path: str) -> dict[TopicPartition, dict[int, int]]:
    """Partition to counts by offset, as `TOPIC PARTITION OFFSET COUNT` lines."""
    content = read_small(path)
    counts: dict[TopicPartition, dict[int, int]] = {}
    for topic, partition, offset, count in decode_entries(content or b"", path, 4):
        try:
            counts.setdefault((topic, int(partition)), {})[int(offset)] = int(count)
        except ValueError:
            raise CorruptFile(path, f"malformed line of topic {topic!r}") from None
    return counts


def write_counts(path: str, counts: Mapping[TopicPartition, Mapping[int, int]]) -> None:
    """Replace the checkpoint durably."""
    _write(
        path,
        (
            f"{topic} {partition} {offset} {count}"
            for (topic, partition), each in counts.items()
            for offset, count in each.items()
        ),
    )


def write_offsets(path: str, offsets: Mapping[TopicPartition, int]) -> None:
    """Replace the checkpoint durably."""
    _write(
        path, (f"{topic} {partition} {offset}" for (topic, partition), offset in offsets.items())
    )


def _write(path: str, entries: Iterable[str]) -> None:
    try:
        replace_file(path, encode_entries(entries), sync=True)
        sync_folder(os.path.dirname(path))
    except OSError as error:
        raise StorageError.of(path, error) from error
