"""The measurements, by the name that the command line takes; each yields rows of the report."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from bench.kafka.comparison import Row
from bench.kafka.measure.bulk import measure_bulk
from bench.kafka.measure.cluster import measure_cluster, measure_failover
from bench.kafka.measure.consumer_groups import measure_consumer_groups
from bench.kafka.measure.groups import measure_groups
from bench.kafka.measure.java import measure_java
from bench.kafka.measure.latency import measure_latency
from bench.kafka.measure.partitions import measure_partitions
from bench.kafka.measure.requests import measure_requests
from bench.kafka.measure.restart import measure_restart
from bench.kafka.measure.share_groups import measure_share_groups
from bench.kafka.measure.spark import measure_spark
from bench.kafka.measure.startup import measure_startup
from bench.kafka.measure.throughput import measure_throughput
from bench.kafka.measure.tls import measure_tls
from bench.kafka.measure.transactions import measure_transactions
from bench.kafka.sides import Bench

MEASUREMENTS: dict[str, Callable[[Bench], Iterator[Row]]] = {
    "startup": measure_startup,
    "throughput": measure_throughput,
    "bulk": measure_bulk,
    "requests": measure_requests,
    "tls": measure_tls,
    "latency": measure_latency,
    "partitions": measure_partitions,
    "restart": measure_restart,
    "groups": measure_groups,
    "consumer-groups": measure_consumer_groups,
    "share-groups": measure_share_groups,
    "transactions": measure_transactions,
    "java": measure_java,
    "cluster": measure_cluster,
    "failover": measure_failover,
    "spark": measure_spark,
}
