"""Segments: what a broker has on disk, read past it."""

from __future__ import annotations

from pathlib import Path

from moldau.records.batch import BatchHeader, batches
from moldau.testing import Broker


def segments(broker: Broker, topic: str, partition: int = 0) -> list[Path]:
    """The log files of a partition, oldest first."""
    return sorted((broker.data_dir / f"{topic}-{partition}").glob("*.log"))


def stored_bytes(folder: Path) -> int:
    """The size of all segments in a log's folder, while the broker may be deleting some."""
    total = 0
    for path in folder.glob("*.log"):
        try:
            total += path.stat().st_size
        except FileNotFoundError:
            continue
    return total


def stored_batches(broker: Broker, topic: str, partition: int = 0) -> list[BatchHeader]:
    """The headers of all batches of a partition."""
    found: list[BatchHeader] = []
    for path in segments(broker, topic, partition):
        found.extend(header for _, header in batches(path.read_bytes()))
    return found
