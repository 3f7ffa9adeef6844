"""Tasks: what a load process is told to do, and what it answers; JSON between the processes.

The package `load` beside the module that defines a task does it.

`broker_pid` names the process whose CPU time counts as the broker's in the timed window.
"""

from __future__ import annotations

import msgspec


class Produce(msgspec.Struct, frozen=True, tag=True):
    """Produce `count` messages with librdkafka as fast as it goes, spread over the partitions.

    Each partition in turn gets `per_turn` messages. `warm_up` messages go first, untimed.
    """

    bootstrap: str
    topic: str
    broker_pid: int
    size: int
    count: int
    partitions: int = 1
    per_turn: int = 10_000
    batch_messages: int = 10_000
    warm_up: int = 0
    acks: int = 1
    # Further settings of librdkafka.
    client: dict[str, str] = {}


class Consume(msgspec.Struct, frozen=True, tag=True):
    """Consume `count` messages with librdkafka as fast as it goes, from one offset on."""

    bootstrap: str
    topic: str
    broker_pid: int
    count: int
    offset: int = 0
    partitions: int = 1
    client: dict[str, str] = {}
    # All threads of the client on one core, so that they do not get in each other's way.
    is_on_one_core: bool = False


class Flow(msgspec.Struct, frozen=True):
    """The answer where messages flow: the timed window and what it cost."""

    messages: int
    seconds: float
    broker_cpu_s: float
    client_cpu_s: float
    started: float
    ended: float


class SmallRequests(msgspec.Struct, frozen=True, tag=True):
    """Send prebuilt Produce requests of one message for a while, `in_flight` at a time."""

    host: str
    port: int
    topic: str
    broker_pid: int
    size: int
    in_flight: int
    seconds: float
    warm_up_s: float


class ManyProducers(msgspec.Struct, frozen=True, tag=True):
    """Let that many producers with acks=all send small requests, one at a time each."""

    host: str
    port: int
    topic: str
    broker_pid: int
    size: int
    producers: int
    seconds: float
    warm_up_s: float


class RequestFlow(msgspec.Struct, frozen=True):
    requests: int
    total_requests: int
    seconds: float
    broker_cpu_s: float


class CommitRequests(msgspec.Struct, frozen=True, tag=True):
    """Commit one offset over and over for a while, `in_flight` requests at a time."""

    host: str
    port: int
    group: str
    topic: str
    broker_pid: int
    offset: int
    in_flight: int
    seconds: float
    warm_up_s: float


class CommitSynchronously(msgspec.Struct, frozen=True, tag=True):
    """Commit one offset after another with confluent-kafka, each waited for."""

    bootstrap: str
    group: str
    topic: str
    broker_pid: int
    seconds: float
    warm_up_s: float


class RebalanceGroup(msgspec.Struct, frozen=True, tag=True):
    """Form a group of `members`; then one more joins and leaves again, `rounds` times."""

    host: str
    port: int
    group: str
    topic: str
    broker_pid: int
    members: int
    rounds: int


class Rebalances(msgspec.Struct, frozen=True):
    """The time until all members had an assignment of the same generation."""

    formed_s: float
    generations: int
    joined_s: list[float]
    left_s: list[float]
    broker_cpu_s: float
    load_cpu_s: float


class ProduceStamped(msgspec.Struct, frozen=True, tag=True):
    """Produce messages that carry their number and the time, `rate` a second, without linger."""

    bootstrap: str
    topic: str
    size: int
    rate: int
    count: int


class ConsumeStamped(msgspec.Struct, frozen=True, tag=True):
    """Consume what ProduceStamped sends and note how old each message is.

    Prints `ready` once it waits for messages. The first `warm_up` messages do not count.
    """

    bootstrap: str
    topic: str
    count: int
    warm_up: int


class Ages(msgspec.Struct, frozen=True):
    seconds: list[float]


class ClientProgram(msgspec.Struct, frozen=True, tag=True):
    """Have one of the programs in `load.client` go through `count` messages of one partition.

    `warm_up` messages go first, untimed; a program that reads finds them at the partition's start.
    """

    bootstrap: str
    topic: str
    broker_pid: int
    program: str
    size: int
    count: int
    warm_up: int


class Loopback(msgspec.Struct, frozen=True, tag=True):
    """Push bytes through a loopback connection to a second process for a while."""

    seconds: float


class ByteFlow(msgspec.Struct, frozen=True):
    bytes_per_s: float


class SparkServer(msgspec.Struct, frozen=True, tag=True):
    """Start a local Spark with that many slots, then take jobs on standard input, one a line.

    Prints `ready`, then one line for each job; the jobs are those of `load.spark_jobs`. Spark's
    scratch files and what jobs write lie under `folder`. `jars` are more for Java, with commas.
    """

    slots: int
    folder: str
    jars: str = ""


class RowFlow(msgspec.Struct, frozen=True):
    """Rows that went by; `cpu_s` of all processes on the reading side, `memory_mib` at its most."""

    rows: int
    seconds: float
    cpu_s: float
    memory_mib: float = 0.0


Task = (
    Produce
    | Consume
    | SmallRequests
    | ManyProducers
    | CommitRequests
    | CommitSynchronously
    | RebalanceGroup
    | ProduceStamped
    | ConsumeStamped
    | ClientProgram
    | Loopback
    | SparkServer
)
