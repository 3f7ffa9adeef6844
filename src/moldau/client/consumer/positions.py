"""Partitions and offsets as callers give them, and as librdkafka takes them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, OFFSET_END
from confluent_kafka import TopicPartition as Position

from moldau.topic_partition import TopicPartition

NAMED_OFFSETS = {"earliest": OFFSET_BEGINNING, "latest": OFFSET_END}


def offset_number(offset: int | str) -> int:
    """Return an offset given as a number, or as "earliest" or "latest"."""
    number = NAMED_OFFSETS.get(offset) if isinstance(offset, str) else offset
    if number is None:
        raise ValueError(f"an offset must be earliest, latest or a number, not {offset!r}")
    return number


def partition_list(given: Iterable[Any], default: int) -> list[Position]:
    """(topic, partition) pairs, (topic, partition, offset) triples, or librdkafka's own objects.

    A list of them may stand for several. Where there is no offset, it is the default.
    """
    found: list[Position] = []
    for item in given:
        if isinstance(item, Position):
            found.append(item)
        elif isinstance(item, list) or (isinstance(item, tuple) and not isinstance(item[0], str)):
            found += partition_list(item, default)
        else:
            topic, partition, *offset = item
            number = offset_number(offset[0]) if offset else default
            found.append(Position(topic, partition, number))
    return found


def places(partitions: Iterable[Position]) -> list[TopicPartition]:
    return sorted((found.topic, found.partition) for found in partitions)
