"""The options and columns of the sink, as Spark's own Kafka sink has them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    StringType,
    StructField,
    StructType,
)

from moldau.peer.view import parse_bootstrap
from moldau.spark.errors import OptionError
from moldau.spark.options import BOOTSTRAP, Options, nearest

# Headers are written whenever there is a column of them, with that option or without.
KNOWN = ("topic", BOOTSTRAP, "includeHeaders")
# Options that Spark itself adds to a streaming sink.
OF_SPARK = ("checkpointLocation", "queryName", "outputMode")

_SERIALIZED = "keys and values must already be bytes or strings"
REFUSED = {
    "kafka.key.serializer": _SERIALIZED,
    "kafka.value.serializer": _SERIALIZED,
    "kafka.partitioner.class": "give a column 'partition' to choose partitions yourself",
    "kafka.transactional.id": "the sink writes at least once, without transactions",
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
    "ssl.ca.location",
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


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """The options of a writing task, sent to the executors. `columns` are those of the data, in
    order.

    With a `topic`, all records go there and the column of that name is not looked at.
    """

    topic: str | None
    columns: tuple[str, ...]
    producer: tuple[tuple[str, str | bool], ...]

    @classmethod
    def parse(cls, given: Mapping[str, str], schema: StructType) -> SinkOptions:
        # librdkafka knows which settings exist, and says so when the producer is created.
        settings = [name for name in given if name.startswith("kafka.")]
        options = Options(given, (*KNOWN, *OF_SPARK, *settings), REFUSED)
        try:
            parse_bootstrap(options.required(BOOTSTRAP))
        except OptionError:
            raise
        except ValueError as reason:
            raise OptionError(f"{BOOTSTRAP}: {reason}") from None
        topic = options.text("topic") or None
        _check_columns(schema, topic)
        return cls(topic, tuple(schema.fieldNames()), tuple(_producer_settings(options).items()))


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
    return settings | {_TRANSLATED.get(name, name): value for name, value in given.items()}


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
        raise OptionError(
            f"column {unknown[0]!r} cannot be written; the columns of a topic "
            f"are {', '.join(_TYPES)}"
        )
    for name, kind in fields.items():
        if not any(_same(kind, allowed) for allowed in _TYPES[name]):
            allowed = " or ".join(each.simpleString() for each in _TYPES[name])
            raise OptionError(f"column {name!r} is {kind.simpleString()}, but must be {allowed}")


def _same(one: DataType, other: DataType) -> bool:
    """Return whether two types are alike but for what may be null."""
    return one.simpleString() == other.simpleString()
