"""Latency through Spark: from a producer, through a streaming query, to who gets its rows."""

from __future__ import annotations

from moldau.bench.broker import BrokerUnderTest
from moldau.bench.load.spark_jobs import Follow, Followed
from moldau.bench.measure.spark_process import JOB_WITHIN_S, SparkProcess
from moldau.bench.tasks import Ages, ConsumeStamped, ProduceStamped
from moldau.bench.workbench import Workbench

RATE = 1000
_SIZE = 100


def follow(
    bench: Workbench,
    broker: BrokerUnderTest,
    spark: SparkProcess,
    count: int,
    promise: str = "",
    connector: str = "moldau",
) -> Followed:
    """Send messages through a query, whose rows end in its driver, or in a topic if there is a
    `promise`: "exactly once" or "at least once"."""
    warm_up = count // 5
    topic, target = bench.new_topic(), bench.new_topic() if promise else ""
    for name in filter(None, (topic, target)):
        broker.create_topic(name)
    once = promise == "exactly once"
    spark.tell(Follow(broker.bootstrap, topic, count, warm_up, target, once, connector))
    spark.wait_ready()
    consumer = None
    if promise:
        task = ConsumeStamped(broker.bootstrap, target, count, warm_up)
        consumer = bench.children.begin(task)
        consumer.line(timeout_s=30)
    producer = bench.children.begin(ProduceStamped(broker.bootstrap, topic, _SIZE, RATE, count))
    ages = consumer.answer(Ages, JOB_WITHIN_S).seconds if consumer is not None else []
    followed = spark.followed()
    for child in filter(None, (producer, consumer)):
        child.stop()
    for name in filter(None, (topic, target)):
        broker.delete_topic(name)
    return Followed(ages or followed.ages_s, followed.batches_s)
