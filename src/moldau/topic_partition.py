"""The name of a partition: its topic's name and its number in it."""

from __future__ import annotations

TopicPartition = tuple[str, int]
