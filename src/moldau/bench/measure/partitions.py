"""Many partitions: what they cost to create and to keep, and what using them all costs."""

from __future__ import annotations

import time
from collections.abc import Iterator

from moldau.bench.broker import BrokerUnderTest
from moldau.bench.measure.flows import client_limit, flow_figures
from moldau.bench.results import Row, Target, figure
from moldau.bench.tasks import Flow, Produce
from moldau.bench.workbench import Workbench

_MESSAGE_SIZE = 1024
# The same batches however many partitions there are: only the number of partitions differs.
_BATCH_MESSAGES = 64


def measure_partitions(bench: Workbench) -> Iterator[Row]:
    scale = bench.scale
    with bench.broker() as broker:
        yield _creation(bench, broker)
    for partitions in scale.active_partitions:
        with bench.broker() as broker:
            yield _active(bench, broker, partitions)


def _creation(bench: Workbench, broker: BrokerUnderTest) -> Row:
    partitions = bench.scale.partitions
    bench.say(f"partitions: creating {partitions:,}")
    topic = bench.new_topic()
    broker.admin.list_topics(timeout=30)
    started = time.monotonic()
    broker.create_topic(topic, partitions)
    created = time.monotonic() - started
    broker.wait_quiet()
    now, highest = broker.memory_mib()
    stopped = broker.stop_cleanly()
    started = time.monotonic()
    again = bench.start_broker(data_dir=broker.data_dir)
    try:
        again.wait_ready()
        restarted = time.monotonic() - started
        again.wait_quiet()
        after_restart, _ = again.memory_mib()
    finally:
        again.discard()
    return Row(
        "partitions",
        f"{partitions:,} partitions",
        (
            figure("creation", "s", [created]),
            figure("RSS", "MiB", [now], Target(120)),
            figure("highest RSS", "MiB", [highest]),
            figure("clean stop", "s", [stopped]),
            figure("exec to ready line, after it", "s", [restarted]),
            figure("RSS after restart", "MiB", [after_restart], Target(120)),
        ),
    )


def _active(bench: Workbench, broker: BrokerUnderTest, partitions: int) -> Row:
    topic = bench.new_topic()
    broker.create_topic(topic, partitions)
    flows: list[Flow] = []
    sent = 0
    for sample in range(bench.scale.repeats):
        bench.say(
            f"partitions: {partitions:,} active, sample {sample + 1} of {bench.scale.repeats}"
        )
        task = _spread(bench, broker.bootstrap, topic, broker.pid, partitions)
        flows.append(bench.produce(task))
        sent += task.count + task.warm_up
    broker.expect_messages(topic, sent, partitions)
    now, _ = broker.memory_mib()
    with bench.null_broker(_MESSAGE_SIZE, partitions) as (address, pid):
        limit = bench.children.run(_spread(bench, address, "null", pid, partitions), Flow)
    figures = [*flow_figures(flows, _MESSAGE_SIZE), client_limit([limit])]
    return Row(
        "partitions",
        f"produce 1 KiB in batches of 64 KiB, {partitions:,} active partitions",
        (*figures, figure("RSS", "MiB", [now])),
    )


def _spread(bench: Workbench, bootstrap: str, topic: str, pid: int, partitions: int) -> Produce:
    """As many messages whatever the number of partitions, one batch for each in turn."""
    one_round = max(bench.scale.active_partitions) * _BATCH_MESSAGES
    return Produce(
        bootstrap,
        topic,
        pid,
        _MESSAGE_SIZE,
        one_round * bench.scale.partition_rounds,
        partitions=partitions,
        per_turn=_BATCH_MESSAGES,
        batch_messages=_BATCH_MESSAGES,
        # Reaches every partition, so that no file is created in the timed part.
        warm_up=one_round,
    )
