"""The options of the source: those of Spark's own Kafka source, and a few more."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from moldau.peer.cluster import EARLIEST, LATEST
from moldau.peer.fetcher import FetchSettings
from moldau.peer.retries import PeerSettings
from moldau.peer.view import parse_bootstrap
from moldau.security.client import ClientSecurity, ClientSettings, is_security
from moldau.security.client_config import client_security
from moldau.security.references import BrokenReference, resolve_property
from moldau.settings import InvalidSetting, definitions
from moldau.spark.errors import OptionError
from moldau.spark.names import ALL, HEADERS, WITHOUT_HEADERS
from moldau.spark.options import BOOTSTRAP, Options
from moldau.spark.source.bounds import STRATEGY, Bound, parse_assignment
from moldau.spark.source.java_pattern import PatternError, java_pattern
from moldau.topic_partition import TopicPartition

SUBSCRIPTIONS = ("subscribe", "subscribePattern", "assign")

# How the driver asks for offsets.
RETRIES = "fetchOffset.numRetries"
RETRY_INTERVAL = "fetchOffset.retryIntervalMs"

BOUNDS = (
    "startingOffsets",
    "startingTimestamp",
    "startingOffsetsByTimestamp",
    STRATEGY,
    "endingOffsets",
    "endingTimestamp",
    "endingOffsetsByTimestamp",
)

# Settings of Kafka's consumer that our client has as well.
CLIENT = (
    BOOTSTRAP,
    "kafka.client.id",
    "kafka.isolation.level",
    "kafka.check.crcs",
    "kafka.fetch.max.wait.ms",
    "kafka.fetch.min.bytes",
    "kafka.fetch.max.bytes",
    "kafka.max.partition.fetch.bytes",
    "kafka.request.timeout.ms",
    "kafka.default.api.timeout.ms",
    "kafka.retry.backoff.ms",
    "kafka.retry.backoff.max.ms",
    "kafka.socket.connection.setup.timeout.ms",
    *(f"kafka.{name}" for name in definitions(ClientSettings)),
)

# Settings that tune parts of Kafka's consumer which this source does without. Taking them costs
# nothing and changes no result, so a job that has them need not be edited.
WITHOUT_EFFECT = (
    "kafka.allow.auto.create.topics",
    "kafka.auto.include.jmx.reporter",
    "kafka.client.dns.lookup",
    "kafka.client.rack",
    "kafka.connections.max.idle.ms",
    "kafka.enable.metrics.push",
    "kafka.exclude.internal.topics",
    "kafka.group.instance.id",
    "kafka.group.protocol",
    "kafka.group.remote.assignor",
    "kafka.heartbeat.interval.ms",
    "kafka.max.poll.interval.ms",
    "kafka.max.poll.records",
    "kafka.metadata.max.age.ms",
    "kafka.metadata.recovery.rebootstrap.trigger.ms",
    "kafka.metadata.recovery.strategy",
    "kafka.metric.reporters",
    "kafka.metrics.num.samples",
    "kafka.metrics.recording.level",
    "kafka.metrics.sample.window.ms",
    "kafka.partition.assignment.strategy",
    "kafka.receive.buffer.bytes",
    "kafka.reconnect.backoff.max.ms",
    "kafka.reconnect.backoff.ms",
    "kafka.send.buffer.bytes",
    "kafka.session.timeout.ms",
    "kafka.socket.connection.setup.timeout.max.ms",
)

KNOWN = (
    *SUBSCRIPTIONS,
    *BOUNDS,
    "failOnDataLoss",
    "minPartitions",
    "maxRecordsPerPartition",
    "minOffsetsPerTrigger",
    "maxOffsetsPerTrigger",
    "maxTriggerDelay",
    "includeHeaders",
    "kafkaConsumer.pollTimeoutMs",
    "columns",
    "commitGroup",
    *("groupIdPrefix", "kafka.group.id"),
    *(RETRIES, RETRY_INTERVAL),
    *CLIENT,
    *WITHOUT_EFFECT,
)

_NO_GROUP = (
    "the source does not join a group; to commit its progress, name a group in 'commitGroup'"
)
_BYTES = "keys and values are bytes; decode them with DataFrame operations"
_NO_SUCH_SECURITY = "the source does not have this security setting"
REFUSED = {
    "kafka.auto.offset.reset": "set the start with 'startingOffsets'",
    "kafka.key.deserializer": _BYTES,
    "kafka.value.deserializer": _BYTES,
    "kafka.enable.auto.commit": _NO_GROUP,
    "kafka.interceptor.classes": "it could change what is read",
    "kafka.sasl.": _NO_SUCH_SECURITY,
    "kafka.ssl.": _NO_SUCH_SECURITY,
    "kafka.security.providers": _NO_SUCH_SECURITY,
}


@dataclass(frozen=True, slots=True)
class Subscription:
    """The partitions to read: of named topics, of topics that match, or exactly these.

    Topics that are `left_out` are not read though they match.
    """

    topics: tuple[str, ...] = ()
    pattern: str | None = None
    assigned: tuple[TopicPartition, ...] = ()
    left_out: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ReadSettings:
    """The settings of a task besides its range, sent to the executors."""

    bootstrap: tuple[tuple[str, int], ...]
    columns: tuple[str, ...]
    peer: PeerSettings
    fetch: FetchSettings
    fail_on_data_loss: bool
    check_crcs: bool
    stalled_after_s: float


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """Everything the options say, checked."""

    subscription: Subscription
    read: ReadSettings
    # How the driver asks for topics and offsets; tasks have their own in `read`.
    driver: PeerSettings
    min_partitions: int | None
    max_records_per_partition: int | None
    min_offsets_per_trigger: int | None
    max_offsets_per_trigger: int | None
    max_trigger_delay_s: float
    commit_group: str
    options: Options

    @classmethod
    def parse(cls, given: Mapping[str, str], *, strict: bool = True) -> SourceOptions:
        options = Options(given, KNOWN, REFUSED, strict=strict)
        read = _read_settings(options)
        least = options.number("minOffsetsPerTrigger", least=1)
        most = options.number("maxOffsetsPerTrigger", least=1)
        if least is not None and most is not None and least > most:
            raise OptionError(
                f"minOffsetsPerTrigger ({least}) is higher than maxOffsetsPerTrigger ({most})"
            )
        return cls(
            subscription=_subscription(options),
            read=read,
            driver=_driver_settings(options, read.peer),
            min_partitions=options.number("minPartitions", least=1),
            max_records_per_partition=options.number("maxRecordsPerPartition", least=1),
            min_offsets_per_trigger=least,
            max_offsets_per_trigger=most,
            max_trigger_delay_s=options.duration_s("maxTriggerDelay", "15m"),
            commit_group=options.text("commitGroup"),
            options=options,
        )

    def batch_bounds(self) -> tuple[Bound, Bound]:
        if self.commit_group:
            raise OptionError("commitGroup is for streams: a batch query has no progress to commit")
        start = Bound.parse(self.options, "starting", "earliest")
        end = Bound.parse(self.options, "ending", "latest")
        start.never(LATEST)
        end.never(EARLIEST)
        return start, end

    def stream_start(self) -> Bound:
        for name in BOUNDS:
            if name.startswith("ending") and name in self.options:
                raise OptionError(f"{name} is for batch queries: a stream has no end")
        return Bound.parse(self.options, "starting", "latest")


def columns_of(options: Options) -> tuple[str, ...]:
    """Return the columns to read: those named in `columns`, else all that Spark's source has."""
    default = ALL if options.flag("includeHeaders", False) else WITHOUT_HEADERS
    if "columns" not in options:
        return default
    proper = {name.lower(): name for name in ALL}
    columns = []
    for word in options.text("columns").split(","):
        name = word.strip().lower()
        if name not in proper:
            raise OptionError(f"columns has {word.strip()!r}, but must be among {', '.join(ALL)}")
        if proper[name] in columns:
            raise OptionError(f"columns has {proper[name]!r} twice")
        columns.append(proper[name])
    if options.flag("includeHeaders", HEADERS in columns) != (HEADERS in columns):
        raise OptionError("includeHeaders and columns disagree about 'headers'")
    return tuple(columns)


def _subscription(options: Options) -> Subscription:
    given = [name for name in SUBSCRIPTIONS if name in options]
    if len(given) != 1:
        raise OptionError(
            f"exactly one of {', '.join(SUBSCRIPTIONS)} must be given, "
            f"not {' and '.join(given) or 'none'}"
        )
    (name,) = given
    text = options.required(name)
    if name == "assign":
        return Subscription(assigned=tuple(parse_assignment(text)))
    if name == "subscribe":
        topics = tuple(dict.fromkeys(filter(None, (part.strip() for part in text.split(",")))))
        if not topics:
            raise OptionError(f"subscribe is {text!r}, which names no topic")
        return Subscription(topics=topics)
    try:
        java_pattern(text)
    except PatternError as reason:
        raise OptionError(f"subscribePattern: {reason}") from None
    return Subscription(pattern=text)


def security_of(options: Options) -> ClientSecurity | None:
    """Return the security that the options ask for, or the file of `MOLDAU_CLIENT_CONFIG`."""
    given = {name: text for name, text in options.under("kafka.").items() if is_security(name)}
    try:
        # Only here, so that plans and checkpoints show the references.
        given = {name: resolve_property(name, text) for name, text in given.items()}
        return ClientSecurity.parse(given) if given else client_security()
    except InvalidSetting as problem:
        raise OptionError(f"kafka.{problem}" if given else str(problem)) from None
    except BrokenReference as problem:
        raise OptionError(str(problem)) from None


def _read_settings(options: Options) -> ReadSettings:
    try:
        bootstrap = tuple(parse_bootstrap(options.required(BOOTSTRAP)))
    except ValueError as reason:
        raise OptionError(f"{BOOTSTRAP}: {reason}") from None
    isolation = options.choice(
        "kafka.isolation.level", ("read_uncommitted", "read_committed"), "read_uncommitted"
    )
    default, fetch = PeerSettings(), FetchSettings()
    sizes = [
        options.number(name, fetch.max_bytes, least=1)
        for name in ("kafka.max.partition.fetch.bytes", "kafka.fetch.max.bytes")
    ]
    retry_within_s = options.seconds("kafka.default.api.timeout.ms", default.retry_within_s)
    return ReadSettings(
        bootstrap=bootstrap,
        columns=columns_of(options),
        peer=PeerSettings(
            client_id=_client_id(options),
            security=security_of(options),
            connect_timeout_s=options.seconds(
                "kafka.socket.connection.setup.timeout.ms", default.connect_timeout_s
            ),
            request_timeout_s=options.seconds(
                "kafka.request.timeout.ms", default.request_timeout_s
            ),
            retry_within_s=retry_within_s,
            first_backoff_s=options.seconds("kafka.retry.backoff.ms", default.first_backoff_s),
            longest_backoff_s=options.seconds(
                "kafka.retry.backoff.max.ms", default.longest_backoff_s
            ),
            reach_within_s=min(default.reach_within_s, retry_within_s),
        ),
        fetch=FetchSettings(
            max_bytes=min(size for size in sizes if size is not None),
            max_wait_ms=options.number("kafka.fetch.max.wait.ms") or fetch.max_wait_ms,
            min_bytes=options.number("kafka.fetch.min.bytes") or fetch.min_bytes,
            read_committed=isolation == "read_committed",
        ),
        fail_on_data_loss=options.flag("failOnDataLoss", True),
        check_crcs=options.flag("kafka.check.crcs", True),
        stalled_after_s=options.seconds("kafkaConsumer.pollTimeoutMs", 120.0),
    )


def _client_id(options: Options) -> str:
    """Return the name in the brokers' logs and quotas: the source joins no group, but one that it
    was given tells who it is."""
    for name in ("kafka.client.id", "kafka.group.id", "groupIdPrefix"):
        if options.text(name):
            return options.text(name)
    return "moldau-spark"


def _driver_settings(options: Options, peer: PeerSettings) -> PeerSettings:
    """Return how the driver asks: for no shorter than the tasks do, and as often as it was told."""
    retries = options.number(RETRIES)
    pause_s = options.seconds(RETRY_INTERVAL, peer.first_backoff_s)
    if RETRY_INTERVAL in options:
        peer = replace(
            peer, first_backoff_s=pause_s, longest_backoff_s=max(pause_s, peer.longest_backoff_s)
        )
    if retries is None:
        return peer
    return replace(peer, retry_within_s=max(peer.retry_within_s, retries * pause_s))
