"""Tasks of the measurements that are not part of `moldau bench`; `bench.load` does them."""

from __future__ import annotations

import msgspec


class BulkProduce(msgspec.Struct, frozen=True, tag=True):
    """Send one prebuilt batch of about a megabyte over and over: at least `count` messages.

    A third of that goes first, untimed.
    """

    host: str
    port: int
    topic: str
    broker_pid: int
    size: int
    count: int


class BulkFetch(msgspec.Struct, frozen=True, tag=True):
    """Fetch the first `count` messages of partition 0 and look at none of them, twice.

    The first time is untimed.
    """

    host: str
    port: int
    topic: str
    broker_pid: int
    count: int


class PacedRequests(msgspec.Struct, frozen=True, tag=True):
    """Send one small Produce request at a time, `rate` a second, until standard input closes."""

    host: str
    port: int
    topic: str
    size: int
    rate: int


class RoundTrips(msgspec.Struct, frozen=True):
    """When each request left (CLOCK_MONOTONIC), and how long its answer took."""

    sent_s: list[float]
    took_s: list[float]


class DecodeAlone(msgspec.Struct, frozen=True, tag=True):
    """Decode record batches of `size` byte messages to Arrow, one buffer over and over.

    All columns of the source, with CRCs checked; at least `rows` rows.
    """

    size: int
    rows: int


class ReadAlone(msgspec.Struct, frozen=True, tag=True):
    """Do what a task of the Spark source does for the first `rows` offsets, without Spark."""

    bootstrap: str
    topic: str
    rows: int


Task = BulkProduce | BulkFetch | PacedRequests | DecodeAlone | ReadAlone
