"""The same small programs with three client libraries, and what each of them gets to see."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import confluent_kafka
import confluent_kafka.admin as confluent_admin

from conformance.registry import scenario
from conformance.session import Session
from tests.clients.aio import AioClient
from tests.clients.client import CODECS, NOON_MS, Client, Message, read_all
from tests.clients.confluent import ConfluentClient
from tests.clients.kafka_python import KafkaPythonClient

_GROUP_TIMEOUT_S = 30.0
_MESSAGES = [
    Message(b"first", b"key", (("h", b"1"),), NOON_MS),
    Message(b"second" * 50, None, (), NOON_MS + 10),
    Message(b"", b"", (), NOON_MS + 20),
]


def _messages(s: Session, client: Client) -> None:
    """Every codec, every kind of acknowledgement, all ways to a position."""
    for codec in CODECS:
        topic = s.topic()
        s.note(f"offsets with {codec}", client.produce(topic, _MESSAGES, codec=codec))
        s.note(f"read back with {codec}", read_all(client, topic, len(_MESSAGES)))
    topic = s.topic(2)
    client.produce(topic, _MESSAGES, acks="0")
    s.until(lambda: client.watermarks(topic)[1] == len(_MESSAGES), "messages without acks")
    s.note("offsets with acks=1", client.produce(topic, _MESSAGES, acks="1"))
    s.note("offsets, idempotent", client.produce(topic, _MESSAGES, idempotent=True))
    s.note("watermarks", client.watermarks(topic))
    s.note("watermarks of an empty partition", client.watermarks(topic, 1))
    times = (0, NOON_MS, NOON_MS + 5, NOON_MS + 20, NOON_MS + 21)
    s.note("offsets at times", client.offsets_at(topic, *times))
    for start in ("beginning", "end", 4):
        with client.reader(topic, start) as reader:
            s.note(f"position from {start}", reader.position())


@scenario("confluent-kafka")
def messages_by_confluent(s: Session) -> None:
    _messages(s, ConfluentClient(s.broker.bootstrap))


@scenario("kafka-python")
def messages_by_kafka_python(s: Session) -> None:
    _messages(s, KafkaPythonClient(s.broker.bootstrap))


@scenario("aiokafka")
def messages_by_aiokafka(s: Session) -> None:
    _messages(s, AioClient(s.broker.bootstrap))


@scenario("confluent-kafka")
def a_group_by_confluent(s: Session) -> None:
    topic, group = s.topic(4), s.name("g")
    ConfluentClient(s.broker.bootstrap).produce(topic, _MESSAGES)
    settings = {
        "bootstrap.servers": s.broker.bootstrap,
        "group.id": group,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "log_level": 0,
    }
    first, second = (confluent_kafka.Consumer(settings) for _ in range(2))
    try:
        first.subscribe([topic])
        got = first.consume(len(_MESSAGES), _GROUP_TIMEOUT_S)
        s.note("read", [(each.offset(), each.value()) for each in got])
        s.note("has all", sorted(each.partition for each in first.assignment()))
        first.commit(asynchronous=False)
        second.subscribe([topic])
        both = [first, second]
        _poll_until(s, both, lambda: all(len(c.assignment()) == 2 for c in both))
        shares = [sorted(each.partition for each in c.assignment()) for c in both]
        s.note("shared", sorted(shares))
        where = [confluent_kafka.TopicPartition(topic, 0)]
        s.note("committed", [each.offset for each in second.committed(where, 10)])
    finally:
        for consumer in (first, second):
            consumer.close()


def _poll_until(s: Session, consumers: list[Any], condition: Any) -> None:
    def check() -> bool:
        for consumer in consumers:
            consumer.poll(0.02)
        return bool(condition())

    s.until(check, "balance")


@scenario("kafka-python")
def a_group_by_kafka_python(s: Session) -> None:
    import kafka

    topic, group = s.topic(2), s.name("g")
    client = KafkaPythonClient(s.broker.bootstrap)
    client.produce(topic, _MESSAGES, partition=1)
    for turn in range(2):
        consumer = kafka.KafkaConsumer(
            topic,
            bootstrap_servers=s.broker.bootstrap,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            # A member that did not manage to leave holds up the next one for so long.
            session_timeout_ms=6000,
            heartbeat_interval_ms=500,
        )
        try:
            found: list[Any] = []
            deadline = time.monotonic() + _GROUP_TIMEOUT_S
            # A poll that ends while it joins leaves kafka-python 3.0 without a share for good.
            patience_ms = int(_GROUP_TIMEOUT_S * 1000)
            while len(found) < 3 - turn and time.monotonic() < deadline:
                for batch in consumer.poll(timeout_ms=patience_ms).values():
                    found += [(each.partition, each.offset, each.value) for each in batch]
            s.note(f"turn {turn}", found)
            at = kafka.TopicPartition(topic, 1)
            if turn == 0:
                consumer.commit({at: kafka.OffsetAndMetadata(1, "note", -1)})
            s.note(f"committed in turn {turn}", consumer.committed(at))
        finally:
            consumer.close(autocommit=False)


@scenario("aiokafka")
def a_group_by_aiokafka(s: Session) -> None:
    import aiokafka

    topic, group = s.topic(2), s.name("g")
    AioClient(s.broker.bootstrap).produce(topic, _MESSAGES, partition=1)

    async def turn(count: int) -> list[Any]:
        consumer = aiokafka.AIOKafkaConsumer(
            topic,
            bootstrap_servers=s.broker.bootstrap,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        )
        await consumer.start()
        try:
            found = []
            for _ in range(count):
                each = await asyncio.wait_for(consumer.getone(), _GROUP_TIMEOUT_S)
                found.append((each.partition, each.offset, each.value))
            at = aiokafka.TopicPartition(topic, 1)
            await consumer.commit({at: 2})
            return [found, await consumer.committed(at)]
        finally:
            await consumer.stop()

    s.note("first", asyncio.run(turn(3)))
    s.note("second goes on", asyncio.run(turn(1)))


@scenario("confluent-kafka")
def administration_by_confluent(s: Session) -> None:
    admin = confluent_admin.AdminClient({"bootstrap.servers": s.broker.bootstrap, "log_level": 0})
    name = s.name()
    new = confluent_admin.NewTopic(name, 3, config={"retention.ms": "5000"})
    s.note("created", _outcome(admin.create_topics([new])[name]))
    s.note("again", _outcome(admin.create_topics([new])[name]))
    s.wait_for_topic(name, 3)
    topic = admin.list_topics(name, timeout=10).topics[name]
    s.note("listed", {n: (p.leader, p.replicas, p.isrs) for n, p in topic.partitions.items()})
    more = [confluent_admin.NewPartitions(name, 4)]
    s.note("more partitions", _outcome(admin.create_partitions(more)[name]))
    s.wait_for_topic(name, 4)
    kind = confluent_admin.ConfigResource.Type.TOPIC
    change = [
        confluent_admin.ConfigEntry(
            "retention.ms", "6000", incremental_operation=confluent_admin.AlterConfigOpType.SET
        )
    ]
    resource = confluent_admin.ConfigResource(kind, name, incremental_configs=change)
    s.note("altered", _outcome(admin.incremental_alter_configs([resource])[resource]))
    s.settle()
    asked = confluent_admin.ConfigResource(kind, name)
    found = admin.describe_configs([asked])[asked].result()
    s.note("retention", (found["retention.ms"].value, found["retention.ms"].source))
    described = admin.describe_topics(confluent_kafka.TopicCollection([name]))[name].result()
    s.note("described", [each.id for each in described.partitions])
    cluster = admin.describe_cluster().result()
    s.note("cluster", ([node.id for node in cluster.nodes], cluster.controller.id))
    ConfluentClient(s.broker.bootstrap).produce(name, _MESSAGES)
    until = confluent_kafka.TopicPartition(name, 0, 2)
    s.note("records deleted", admin.delete_records([until])[until].result().low_watermark)
    s.note("deleted", _outcome(admin.delete_topics([name])[name]))
    s.wait_for_no_topic(name)
    s.note("deleted again", _outcome(admin.delete_topics([name])[name]))


def _outcome(future: Any) -> str:
    try:
        return repr(future.result(20))
    except confluent_kafka.KafkaException as problem:
        return str(problem.args[0].name())


@scenario("confluent-kafka")
def groups_by_confluent(s: Session) -> None:
    admin = confluent_admin.AdminClient({"bootstrap.servers": s.broker.bootstrap, "log_level": 0})
    topic, group = s.topic(), s.name("g")
    ConfluentClient(s.broker.bootstrap).produce(topic, _MESSAGES)
    at = confluent_kafka.TopicPartition(topic, 0, 2)
    wanted = confluent_kafka.ConsumerGroupTopicPartitions(group, [at])
    altered = admin.alter_consumer_group_offsets([wanted])[group].result()
    s.note("altered", [(each.partition, each.offset) for each in altered.topic_partitions])
    asked = [confluent_kafka.ConsumerGroupTopicPartitions(group)]
    found = admin.list_consumer_group_offsets(asked)[group].result()
    s.note("listed", [(each.partition, each.offset) for each in found.topic_partitions])
    described = admin.describe_consumer_groups([group])[group].result()
    s.note(
        "described", (described.state.name, described.partition_assignor, len(described.members))
    )
    listed = admin.list_consumer_groups().result()
    mine = [each for each in listed.valid if each.group_id == group]
    s.note("in the list", [(each.state.name, each.is_simple_consumer_group) for each in mine])
    s.note("deleted", _outcome(admin.delete_consumer_groups([group])[group]))
    s.note("again", _outcome(admin.delete_consumer_groups([group])[group]))
