"""The options and columns of the sink, as Spark's own Kafka sink has them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    StringType,
    StructField,
    StructType,
)

from moldau.client.connection import secured, security_properties
from moldau.peer.view import parse_bootstrap
from moldau.security.client import is_security
from moldau.security.references import BrokenReference, resolve_property
from moldau.settings import InvalidSetting
from moldau.spark.errors import OptionError
from moldau.spark.options import BOOTSTRAP, Options, nearest, warn_once
from moldau.spark.sink.staging_settings import StagingSettings

EXACTLY_ONCE = "exactlyOnce"
# The write of one batch, by names that it has whenever it runs again; as Delta's writer has them.
APP_ID = "txnAppId"
VERSION = "txnVersion"

# Headers are written whenever there is a column of them, with that option or without.
KNOWN = ("topic", BOOTSTRAP, "includeHeaders", EXACTLY_ONCE, APP_ID, VERSION)
# Options that Spark itself adds to a streaming sink.
OF_SPARK = ("checkpointLocation", "queryName", "outputMode")

_SERIALIZED = "keys and values must already be bytes or strings"
REFUSED = {
    "kafka.key.serializer": _SERIALIZED,
    "kafka.value.serializer": _SERIALIZED,
    "kafka.partitioner.class": "give a column 'partition' to choose partitions yourself",
    "kafka.transactional.id": "the sink chooses its own transactional ids",
    "kafka.interceptor.classes": "it applies only to Java",
    "subscribe": "it applies only to reading; name the topic to write to with 'topic'",
}

# Kafka's names for settings that librdkafka has under another name.
_TRANSLATED = {
    "max.request.size": "message.max.bytes",
    "receive.buffer.bytes": "socket.receive.buffer.bytes",
    "send.buffer.bytes": "socket.send.buffer.bytes",
}
# Settings of Java's producer that tune what librdkafka does without. A full queue makes a task
# wait, for as long as records are still being delivered.
_WITHOUT_EFFECT = (
    "auto.include.jmx.reporter",
    "enable.metrics.push",
    "max.block.ms",
    "metadata.max.idle.ms",
    "metadata.recovery.rebootstrap.trigger.ms",
    "metadata.recovery.strategy",
    "metric.reporters",
    "metrics.num.samples",
    "metrics.recording.level",
    "metrics.sample.window.ms",
    "partitioner.adaptive.partitioning.enable",
    "partitioner.availability.timeout.ms",
    "socket.connection.setup.timeout.max.ms",
)
# Common producer settings, for a hint when one of them is misspelt.
_USUAL = (
    "acks",
    "batch.size",
    "buffer.memory",
    "client.id",
    "compression.type",
    "delivery.timeout.ms",
    "enable.idempotence",
    "linger.ms",
    "max.in.flight.requests.per.connection",
    "max.request.size",
    "partitioner",
    "request.timeout.ms",
    "retries",
    "retry.backoff.ms",
    "sasl.mechanism",
    "sasl.password",
    "sasl.username",
    "security.protocol",
    "sasl.jaas.config",
    "ssl.ca.location",
    "ssl.keystore.location",
    "ssl.truststore.location",
)

_HEADERS = ArrayType(
    StructType([StructField("key", StringType()), StructField("value", BinaryType())])
)
_TYPES: dict[str, tuple[DataType, ...]] = {
    "topic": (StringType(),),
    "key": (StringType(), BinaryType()),
    "value": (StringType(), BinaryType()),
    "headers": (_HEADERS,),
    "partition": (IntegerType(),),
}
# The columns that make a record; others are passed over.
WRITTEN = tuple(_TYPES)


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """The options of a writing task, sent to the executors. `columns` are those of the data, in
    order.

    With a `topic`, all records go there and the column of that name is not looked at.
    `exactly_once` is None where the brokers decide; without `staging` it is out of the question.
    """

    topic: str | None
    columns: tuple[str, ...]
    # Among them passwords.
    producer: tuple[tuple[str, str | bool], ...] = field(repr=False)
    exactly_once: bool | None
    staging: StagingSettings | None = field(repr=False)
    app_id: str | None = None
    version: int = 0

    @classmethod
    def parse(
        cls, given: Mapping[str, str], schema: StructType, *, strict: bool = True
    ) -> SinkOptions:
        # librdkafka knows which settings exist, and says so when the producer is created.
        settings = [name for name in given if name.startswith("kafka.")]
        options = Options(given, (*KNOWN, *OF_SPARK, *settings), REFUSED, strict=strict)
        try:
            parse_bootstrap(options.required(BOOTSTRAP))
        except OptionError:
            raise
        except ValueError as reason:
            raise OptionError(f"{BOOTSTRAP}: {reason}") from None
        topic = options.text("topic") or None
        _check_columns(schema, topic)
        is_wanted = options.flag(EXACTLY_ONCE, True) if EXACTLY_ONCE in options else None
        app_id = options.text(APP_ID) or None
        version = options.number(VERSION)
        if (app_id is None) != (version is None):
            raise OptionError(f"{APP_ID} and {VERSION} name a write only together")
        if app_id is not None and is_wanted is False:
            raise OptionError(f"{APP_ID} has no effect if {EXACTLY_ONCE} is false")
        producer = tuple(_producer_settings(options).items())
        staging = None
        if is_wanted is not False:
            try:
                staging = StagingSettings.parse(options.under("kafka."))
            except InvalidSetting as problem:
                if is_wanted or app_id is not None:
                    raise OptionError(f"kafka.{problem}, with {EXACTLY_ONCE}") from None
        columns = tuple(schema.fieldNames())
        return cls(topic, columns, producer, is_wanted, staging, app_id, version or 0)


def _producer_settings(options: Options) -> dict[str, str | bool]:
    given = options.under("kafka.")
    settings: dict[str, str | bool] = {
        "enable.idempotence": "true",
        # A key lands on the partition where Java's client would put it.
        "partitioner": "murmur2_random",
        "delivery.timeout.ms": "120000",
        "queue.buffering.max.kbytes": str(32 << 10),
        "client.id": "moldau-spark",
        # Successes are counted by flush(); a call into Python for each would halve the speed.
        "delivery.report.only.error": True,
    }
    memory = options.number("kafka.buffer.memory", least=1024)
    if memory is not None:
        settings["queue.buffering.max.kbytes"] = str(memory // 1024)
        del given["buffer.memory"]
    for name in _WITHOUT_EFFECT:
        given.pop(name, None)
    # Files are read here, on the driver, so that tasks need none.
    own = any(is_security(name) for name in given)
    try:
        for name in filter(is_security, list(given)):
            given[name] = resolve_property(name, given[name])
        settings |= {} if own else security_properties()
        settings |= {_TRANSLATED.get(name, name): value for name, value in given.items()}
        return secured(settings)
    except InvalidSetting as problem:
        raise OptionError(f"kafka.{problem}" if own else str(problem)) from None
    except BrokenReference as problem:
        raise OptionError(str(problem)) from None


def meant(refusal: str) -> str:
    """Return a hint at the setting that was meant by the one that librdkafka says it
    does not know."""
    found = re.search(r'No such configuration property: "([^"]+)"', refusal)
    if found is None:
        return ""
    return nearest(f"kafka.{found[1]}", (f"kafka.{name}" for name in _USUAL))


def _check_columns(schema: StructType, topic: str | None) -> None:
    fields = {field.name: field.dataType for field in schema.fields}
    if "value" not in fields:
        raise OptionError(f"there is no column 'value' to write, only {', '.join(fields)}")
    if topic is None and "topic" not in fields:
        raise OptionError("name the topic in the option 'topic', or give a column 'topic'")
    unknown = sorted(set(fields) - set(_TYPES))
    if unknown:
        # So that a row that was read from a topic can be written to one as it is.
        warn_once(
            f"not written to the topic: {', '.join(unknown)}; its columns are {', '.join(WRITTEN)}"
        )
    for name, kind in fields.items():
        if name in _TYPES and not any(_same(kind, allowed) for allowed in _TYPES[name]):
            allowed = " or ".join(each.simpleString() for each in _TYPES[name])
            raise OptionError(f"column {name!r} is {kind.simpleString()}, but must be {allowed}")


def _same(one: DataType, other: DataType) -> bool:
    """Return whether two types are alike but for what may be null."""
    return one.simpleString() == other.simpleString()
