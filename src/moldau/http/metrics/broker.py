"""The broker as a whole: its cluster, connections, loop and disk."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from moldau.broker.coordination.transactions.transaction import State
from moldau.http.metrics.families import Families, labels, quantile
from moldau.wire.errors import Error

if TYPE_CHECKING:
    from moldau.broker.server import Broker

# Kafka's numbers for the states of a broker.
_STATES = {"starting": 1, "serving": 3, "stopping": 6}
_FLUSHES = "kafka_log_logflushstats_logflushrateandtimems"


def add_broker(broker: Broker, families: Families) -> None:
    """Add the families to those of a scrape."""
    _add_cluster(broker, families)
    _add_connections(broker, families)
    _add_loop(broker, families)
    _add_replication(broker, families)
    _add_flushes(broker, families)
    _add_transactions(broker, families)


def _add_cluster(broker: Broker, families: Families) -> None:
    state = broker.state
    families.gauge(
        "kafka_server_kafkaserver_brokerstate",
        "1 starting, 3 serving, 6 stopping.",
        _STATES[broker.phase],
    )
    families.gauge(
        "moldau_fenced",
        "1 while this broker is out of touch with the cluster.",
        int(broker.replicas.is_fenced),
    )
    # One tells of all, so that a sum over the brokers is right.
    if state.controller_id == broker.id:
        families.gauge("kafka_brokers", "Brokers of the cluster.", len(state.brokers))
        families.gauges(
            "kafka_broker_info",
            "1 for each broker.",
            (
                (labels(id=each.id, address=f"{each.host}:{each.port}"), 1)
                for each in state.brokers.values()
            ),
        )


def _add_connections(broker: Broker, families: Families) -> None:
    open_now = Counter(each.context.listener for each in broker.connections)
    families.gauges(
        "kafka_server_socket_server_metrics_connection_count",
        "Open connections.",
        (
            (labels(listener=each.name, networkProcessor=0), open_now[each.name])
            for each in broker.listeners
        ),
    )
    families.counter(
        "moldau_connections_refused_total",
        "Connections closed because of what their clients did.",
        broker.connections.hangups.total,
    )
    families.counter(
        "moldau_cold_reads_total",
        "Consumer reads that a thread took from the disk.",
        broker.connections.cold_reads,
    )


def _add_loop(broker: Broker, families: Families) -> None:
    stalls = broker.stalls
    families.counter(
        "moldau_loop_stalls_total", "Times that the event loop was blocked for over 50 ms.",
        stalls.count,
    )  # fmt: skip
    families.counter("moldau_loop_stall_seconds_total", "Time of these stalls.", stalls.total_s)
    families.gauge(
        "moldau_loop_longest_stall_seconds", "The longest time that the event loop was blocked.",
        stalls.longest_s,
    )  # fmt: skip
    families.gauge(
        "moldau_loop_longest_stall_cpu_seconds", "The most CPU time of a stall over 50 ms.",
        stalls.most_cpu_s,
    )  # fmt: skip


def _add_replication(broker: Broker, families: Families) -> None:
    changes = broker.replication.isr_changes
    for name, about, value in (
        ("isrshrinks", "Times that a replica fell out of sync.", changes.shrinks),
        ("isrexpands", "Times that a replica came into sync.", changes.expansions),
        ("failedisrupdates", "Changes of in-sync replicas that were refused.", changes.failures),
    ):
        families.counter(f"kafka_server_replicamanager_{name}_total", about, value)


def _add_transactions(broker: Broker, families: Families) -> None:
    found = broker.transactions.list_transactions()
    if isinstance(found, Error):
        # They are still being loaded.
        return
    states = Counter(each.state for each in found)
    families.gauges(
        "moldau_transactions",
        "Transactional ids that this broker coordinates.",
        ((labels(state=each.title), states[each]) for each in State),
    )
    begun = [each.started_ms for each in found if each.state is State.ONGOING]
    families.gauge(
        "moldau_transaction_oldest_seconds",
        "How long the oldest open transaction has been open.",
        (broker.node.now_ms() - min(begun)) / 1000 if begun else 0,
    )


def _add_flushes(broker: Broker, families: Families) -> None:
    latency = broker.partitions.flusher.latency
    times = families.family(_FLUSHES, "summary", "Time of an fsync, in ms.")
    for text, share in (("0.50", 0.5), ("0.95", 0.95), ("0.99", 0.99), ("0.999", 0.999)):
        times.add(quantile(latency.buckets, share) * 1000, labels(quantile=text))
    times.lines.append(f"{_FLUSHES}_sum {latency.seconds * 1000}\n")
    times.lines.append(f"{_FLUSHES}_count {latency.count}\n")
    families.histogram("moldau_flush_seconds", "Time of an fsync.", latency, {})
    families.gauge(
        "kafka_log_logmanager_offlinelogdirectorycount",
        "1 if the data folder refuses partitions.",
        int(bool(broker.replicas.incomplete)),
    )
