"""Tasks of the measurements that are not part of `moldau bench`; `bench.load` does them."""

from __future__ import annotations

from typing import Literal

import msgspec

from moldau.bench.tasks import RequestFlow


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
    # A file with the authorities to trust; with it, over TLS.
    trusted: str = ""


class BulkFetch(msgspec.Struct, frozen=True, tag=True):
    """Fetch the first `count` messages of partition 0 and look at none of them, twice.

    The first time is untimed.
    """

    host: str
    port: int
    topic: str
    broker_pid: int
    count: int
    read_committed: bool = False
    trusted: str = ""


class TlsLoopback(msgspec.Struct, frozen=True, tag=True):
    """Push bytes through an encrypted loopback connection to a second process for a while."""

    keystore: str
    trusted: str
    seconds: float


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


class FramedTransactions(msgspec.Struct, frozen=True, tag=True):
    """Commit transactions of one message, one after another, in the newer dialect (KIP-890).

    Prebuilt requests: Produce and EndTxn, each waited for; what is to be asked again is, at once.
    """

    host: str
    port: int
    topic: str
    transactional_id: str
    broker_pid: int
    size: int
    seconds: float
    warm_up_s: float


class Transactions(msgspec.Struct, frozen=True, tag=True):
    """Commit transactions of `messages` messages with confluent-kafka, one after another.

    With a `source`, they are as many messages of that topic, and the offsets are part of it.
    """

    bootstrap: str
    topic: str
    transactional_id: str
    broker_pid: int
    messages: int
    size: int
    seconds: float
    warm_up_s: float
    source: str | None = None


class AbortedShare(msgspec.Struct, frozen=True, tag=True):
    """Write `count` messages in transactions of `messages`, one of ten of which is aborted."""

    bootstrap: str
    topic: str
    transactional_id: str
    messages: int
    size: int
    count: int


class Committed(msgspec.Struct, frozen=True):
    """How many messages of a topic count."""

    messages: int


class RebalanceConsumerGroup(msgspec.Struct, frozen=True, tag=True):
    """Form a group of `members` in the protocol of KIP-848, each on a connection of its own.

    Then one more joins and leaves again, `rounds` times. Members beat without a pause, so that what
    is measured is the coordinator's work and not the heartbeat interval.
    """

    host: str
    port: int
    group: str
    topic: str
    broker_pid: int
    members: int
    partitions: int
    rounds: int


class ConsumerRebalances(msgspec.Struct, frozen=True):
    """The time until all members owned what they should.

    `stood_still_s` is the longest that a member was without a partition that it had before and
    after; `unowned_s` the longest that a partition which changed hands belonged to nobody.
    """

    formed_s: float
    joined_s: list[float]
    left_s: list[float]
    stood_still_s: float
    unowned_s: list[float]
    broker_cpu_s: float


class ManyConsumerGroups(msgspec.Struct, frozen=True, tag=True):
    """Form `groups` groups of `members` (KIP-848); then all beat for a while, then all commit.

    The members of a group share a connection and send their requests together; `at_once` groups
    have some under way at any time.
    """

    host: str
    port: int
    group: str
    topic: str
    broker_pid: int
    groups: int
    members: int
    at_once: int
    seconds: float


class GroupFlows(msgspec.Struct, frozen=True):
    formed_s: float
    formed_cpu_s: float
    heartbeats: RequestFlow
    commits: RequestFlow


class ShareTopic(msgspec.Struct, frozen=True, tag=True):
    """Work off a topic of one partition with that many members of a share group.

    Each member fetches and acknowledges in the same request what it was given before, until `count`
    messages are delivered.
    """

    host: str
    port: int
    group: str
    topic: str
    broker_pid: int
    consumers: int
    count: int


class ShareAcknowledgements(msgspec.Struct, frozen=True, tag=True):
    """Acknowledge one message a request for a while, one request in flight for each member."""

    host: str
    port: int
    group: str
    topic: str
    broker_pid: int
    consumers: int
    seconds: float
    warm_up_s: float


class ShareStamped(msgspec.Struct, frozen=True, tag=True):
    """Read what ProduceStamped sends as one member of a share group; note how old each message is.

    Prints `ready` once it waits for messages. The first `warm_up` messages do not count.
    """

    host: str
    port: int
    group: str
    topic: str
    count: int
    warm_up: int


class MergeScattered(msgspec.Struct, frozen=True, tag=True):
    """Write a table of that many rows, and merge that many `changes`, scattered over it, `merges`
    times, after an untimed one.
    """

    kind: Literal["delta", "iceberg"]
    rows: int
    changes: int
    merges: int
    folder: str


class Merged(msgspec.Struct, frozen=True):
    """Times of writing all rows and of each merge, and the most memory that merges had."""

    write_s: float
    merges_s: list[float]
    memory_mib: float


Task = (
    BulkProduce
    | BulkFetch
    | TlsLoopback
    | PacedRequests
    | DecodeAlone
    | MergeScattered
    | ReadAlone
    | FramedTransactions
    | Transactions
    | AbortedShare
    | RebalanceConsumerGroup
    | ManyConsumerGroups
    | ShareTopic
    | ShareAcknowledgements
    | ShareStamped
)
