"""Jobs for a Spark process of the bench, one per line."""

from __future__ import annotations

from typing import Literal

import msgspec

Result = Literal["count", "aggregation", "delta", "iceberg", "parquet"]
# What is measured beside ready-made rows.
RESULTS: tuple[Result, ...] = ("count", "aggregation", "delta", "parquet")


class Read(msgspec.Struct, frozen=True, tag=True):
    """Bring the `rows` of a topic to a result. With `is_ceiling`, ready-made rows like them.

    `source` is the format to read with: ours, or Spark's own connector.
    """

    bootstrap: str
    topic: str
    rows: int
    size: int
    partitions: int
    into: Result
    is_ceiling: bool = False
    source: str = "moldau"
    watch_memory: bool = False


class Write(msgspec.Struct, frozen=True, tag=True):
    """Write that many rows with keys to a topic, exactly once or at least once."""

    bootstrap: str
    topic: str
    rows: int
    size: int
    exactly_once: bool = True


class Follow(msgspec.Struct, frozen=True, tag=True):
    """Follow a topic of stamped messages with a streaming query, and note how old each is.

    They are in the hands of `foreachBatch` then or, with a `to_topic`, written there, where
    somebody else looks at them. Prints `ready` when the query waits for messages. `connector` is
    the format to read and write with.
    """

    bootstrap: str
    topic: str
    count: int
    warm_up: int
    to_topic: str = ""
    exactly_once: bool = True
    connector: str = "moldau"


class Followed(msgspec.Struct, frozen=True):
    """Ages in seconds, and how long each micro-batch with rows took."""

    ages_s: list[float]
    batches_s: list[float]


Job = Read | Write | Follow
