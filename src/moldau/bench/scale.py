"""Scales: how much a run measures."""

from __future__ import annotations

from dataclasses import dataclass

GB = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Scale:
    """Amounts per sample. A sample must be long enough that starting and ending do not show."""

    name: str
    repeats: int
    warm_memory: bool
    throughput_bytes: int
    small_message_bytes: int
    loopback_s: float
    requests_s: float
    latency_messages: int
    starts: int
    partitions: int
    partition_rounds: int
    active_partitions: tuple[int, ...]
    clean_start_bytes: int
    clean_start_partitions: int
    recovery_bytes: tuple[int, int]
    recovery_tail_bytes: int
    group_members: int
    rebalances: int
    client_messages: int
    cluster_bytes: int
    cluster_partitions: int
    cluster_topics: int
    failovers: int
    spark_bytes: int
    spark_sizes: tuple[int, ...]
    spark_spreads: tuple[int, ...]
    spark_sink_rows: int
    spark_latency_messages: int


FULL = Scale(
    name="full",
    repeats=5,
    warm_memory=True,
    throughput_bytes=2 * GB,
    small_message_bytes=GB,
    loopback_s=1.0,
    requests_s=3.0,
    latency_messages=20_000,
    starts=11,
    partitions=5000,
    partition_rounds=3,
    active_partitions=(1, 100, 5000),
    clean_start_bytes=10 * GB,
    clean_start_partitions=1000,
    recovery_bytes=(GB // 10, 5 * GB),
    recovery_tail_bytes=50_000_000,
    group_members=50,
    rebalances=10,
    client_messages=1_000_000,
    cluster_bytes=GB,
    cluster_partitions=5000,
    cluster_topics=1000,
    failovers=5,
    spark_bytes=GB,
    spark_sizes=(100, 1024),
    spark_spreads=(1, 10, 100),
    spark_sink_rows=2_000_000,
    spark_latency_messages=20_000,
)
QUICK = Scale(
    name="quick",
    repeats=2,
    warm_memory=True,
    throughput_bytes=GB,
    small_message_bytes=GB // 2,
    loopback_s=0.5,
    requests_s=1.0,
    latency_messages=3000,
    starts=3,
    partitions=5000,
    partition_rounds=1,
    active_partitions=(1, 100, 5000),
    clean_start_bytes=GB,
    clean_start_partitions=1000,
    recovery_bytes=(GB // 20, GB),
    recovery_tail_bytes=20_000_000,
    group_members=50,
    rebalances=5,
    client_messages=500_000,
    cluster_bytes=GB // 4,
    cluster_partitions=5000,
    cluster_topics=1000,
    failovers=3,
    spark_bytes=GB // 4,
    spark_sizes=(100, 1024),
    spark_spreads=(1, 10, 100),
    spark_sink_rows=300_000,
    spark_latency_messages=5000,
)
TINY = Scale(
    name="tiny",
    repeats=1,
    warm_memory=False,
    throughput_bytes=4_000_000,
    small_message_bytes=1_000_000,
    loopback_s=0.05,
    requests_s=0.1,
    latency_messages=200,
    starts=1,
    partitions=50,
    partition_rounds=1,
    active_partitions=(1, 10),
    clean_start_bytes=2_000_000,
    clean_start_partitions=20,
    recovery_bytes=(1_000_000, 4_000_000),
    recovery_tail_bytes=500_000,
    group_members=5,
    rebalances=1,
    client_messages=5000,
    cluster_bytes=2_000_000,
    cluster_partitions=40,
    cluster_topics=10,
    failovers=1,
    spark_bytes=2_000_000,
    spark_sizes=(100,),
    spark_spreads=(1, 10),
    spark_sink_rows=5000,
    spark_latency_messages=300,
)
