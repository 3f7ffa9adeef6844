"""Scales: how much is measured, for the record in half an hour, or only to see that it works."""

from __future__ import annotations

from dataclasses import dataclass

from moldau.bench import scale as moldau_scale


@dataclass(frozen=True, slots=True)
class Scale:
    """Sizes of all measurements; `machine` is the scale of what is shared with `moldau bench`."""

    name: str
    machine: moldau_scale.Scale
    repeats: int
    starts: int
    restarts: int
    small_bytes: int
    large_bytes: int
    bulk_bytes: int
    requests_s: float
    tls_bytes: int
    tls_connections: int
    latency_messages: int
    partitions: int
    group_members: int
    rebalances: int
    consumer_group_members: int
    consumer_groups: int
    shared_messages: int
    transformed_messages: int
    committed_messages: int
    java_records: int
    java_latency_records: int
    restart_bytes: int
    cluster_bytes: int
    failovers: int
    spark_rows: int


FULL = Scale(
    name="full",
    machine=moldau_scale.QUICK,
    repeats=3,
    starts=3,
    restarts=1,
    small_bytes=400_000_000,
    large_bytes=1_000_000_000,
    bulk_bytes=500_000_000,
    requests_s=1.5,
    tls_bytes=250_000_000,
    tls_connections=2000,
    latency_messages=5000,
    partitions=5000,
    group_members=50,
    rebalances=5,
    consumer_group_members=500,
    consumer_groups=1000,
    shared_messages=200_000,
    transformed_messages=1_000_000,
    committed_messages=2_000_000,
    java_records=600_000,
    java_latency_records=5000,
    restart_bytes=1_000_000_000,
    cluster_bytes=400_000_000,
    failovers=2,
    spark_rows=2_000_000,
)
TINY = Scale(
    name="tiny",
    machine=moldau_scale.TINY,
    repeats=1,
    starts=1,
    restarts=1,
    small_bytes=1_000_000,
    large_bytes=4_000_000,
    bulk_bytes=4_000_000,
    requests_s=0.2,
    tls_bytes=2_000_000,
    tls_connections=20,
    latency_messages=200,
    partitions=50,
    group_members=5,
    rebalances=1,
    consumer_group_members=5,
    consumer_groups=5,
    shared_messages=10_000,
    transformed_messages=20_000,
    committed_messages=20_000,
    java_records=5000,
    java_latency_records=200,
    restart_bytes=4_000_000,
    cluster_bytes=2_000_000,
    failovers=1,
    spark_rows=10_000,
)
