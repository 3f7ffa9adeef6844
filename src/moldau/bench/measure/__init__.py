"""The measurements, by the name that `--only` takes; each yields rows of the report."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from moldau.bench.measure.client import measure_client
from moldau.bench.measure.cluster import measure_cluster
from moldau.bench.measure.cluster_failover import measure_failover
from moldau.bench.measure.flush import measure_flush
from moldau.bench.measure.groups import measure_groups
from moldau.bench.measure.latency import measure_latency
from moldau.bench.measure.partitions import measure_partitions
from moldau.bench.measure.recovery import measure_recovery
from moldau.bench.measure.small_requests import measure_small_requests
from moldau.bench.measure.spark import measure_spark
from moldau.bench.measure.spark_sink import measure_spark_sink
from moldau.bench.measure.startup import measure_startup
from moldau.bench.measure.throughput import measure_throughput
from moldau.bench.results import Row
from moldau.bench.workbench import Workbench

Measurement = Callable[[Workbench], Iterator[Row]]

MEASUREMENTS: dict[str, Measurement] = {
    "startup": measure_startup,
    "throughput": measure_throughput,
    "requests": measure_small_requests,
    "latency": measure_latency,
    "partitions": measure_partitions,
    "flush": measure_flush,
    "recovery": measure_recovery,
    "groups": measure_groups,
    "client": measure_client,
    "cluster": measure_cluster,
    "failover": measure_failover,
    "spark": measure_spark,
    "spark-sink": measure_spark_sink,
}
