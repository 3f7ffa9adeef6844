"""How much is measured: for the record, within twenty minutes; or only to see that it works."""

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
    latency_messages: int
    partitions: int
    group_members: int
    rebalances: int
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
    latency_messages=5000,
    partitions=5000,
    group_members=50,
    rebalances=5,
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
    latency_messages=200,
    partitions=50,
    group_members=5,
    rebalances=1,
    java_records=5000,
    java_latency_records=200,
    restart_bytes=4_000_000,
    cluster_bytes=2_000_000,
    failovers=1,
    spark_rows=10_000,
)
