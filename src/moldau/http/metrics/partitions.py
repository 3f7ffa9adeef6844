"""Partitions: where they begin and end, who leads them, and who is in sync.

A broker tells of the logs that it holds, and of the partitions that it leads; the controller tells
of those that nobody leads. So sums over all brokers are right, and nothing is told twice.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from moldau.broker.partitions.partition import Partition
from moldau.broker.slices import Slices
from moldau.cluster.state.topics import NO_LEADER
from moldau.http.metrics.families import Families, Family
from moldau.http.metrics.topics import Topics

if TYPE_CHECKING:
    from moldau.broker.server import Broker

# How much longer than its timeout a transaction may take to end, as Kafka's tools have it.
_GRACE_MS = 5 * 60_000
# How many partitions are looked at before the loop serves others again.
_AT_A_TIME = 100

_OF_LOGS = (
    ("kafka_log_log_size", "Bytes of a log."),
    ("kafka_log_log_logstartoffset", "First offset of a log."),
    ("kafka_log_log_logendoffset", "Offset of the next record of a log."),
    ("kafka_log_log_numlogsegments", "Segments of a log."),
)
_OF_LED = (
    ("kafka_topic_partition_current_offset", "Offset of the next record that consumers will see."),
    ("kafka_topic_partition_oldest_offset", "First offset of a partition."),
    ("kafka_topic_partition_leader", "Id of the leader of a partition; -1 if there is none."),
    ("kafka_topic_partition_replicas", "Replicas of a partition."),
    ("kafka_topic_partition_in_sync_replica", "Replicas of a partition that are in sync."),
    ("kafka_topic_partition_leader_is_preferred", "1 if the first replica leads."),
    ("kafka_topic_partition_under_replicated_partition", "1 if not all replicas are in sync."),
    ("kafka_cluster_partition_replicascount", "Replicas of a partition."),
    ("kafka_cluster_partition_insyncreplicascount", "Replicas of a partition that are in sync."),
    ("kafka_cluster_partition_underreplicated", "1 if not all replicas are in sync."),
    ("kafka_cluster_partition_underminisr", "1 if fewer than min.insync.replicas are in sync."),
    ("kafka_cluster_partition_atminisr", "1 if exactly min.insync.replicas are in sync."),
)
_MANAGER = "kafka_server_replicamanager_"


class PartitionCounts:
    """The partitions of one broker at one moment, counted while they are looked at."""

    def __init__(self, oldest_ms: int) -> None:
        self.led = self.held = self.offline = self.moving = 0
        self.under_replicated = self.under_minimum = self.at_minimum = 0
        self.unclean_elections = 0
        self.flush_lag = self.longest_flush_lag = 0
        self.in_transaction = self.hanging = 0
        # A transaction that has not been written to since then should have ended.
        self._oldest_ms = oldest_ms

    def count(self, partition: Partition) -> None:
        log = partition.log
        self.held += 1
        self.offline += log.offline is not None
        self.unclean_elections += partition.unclean_elections
        if log.config.flushes:
            lag = log.log_end - log.flushed
            self.flush_lag += lag
            self.longest_flush_lag = max(lag, self.longest_flush_lag)
        if partition.is_leader:
            in_sync, minimum = len(partition.isr), partition.min_isr
            self.led += 1
            self.moving += bool(partition.adding)
            self.under_replicated += in_sync < len(partition.replicas)
            self.under_minimum += in_sync < minimum
            self.at_minimum += in_sync == minimum
            if log.producers.open:
                self.in_transaction += 1
                producers = [log.producers.get(each) for each in log.producers.open]
                self.hanging += any(
                    each is not None and each.written_ms < self._oldest_ms for each in producers
                )

    def add_to(self, families: Families) -> None:
        for name, about, value in (
            ("leadercount", "Partitions that this broker leads.", self.led),
            ("partitioncount", "Partitions that this broker holds.", self.held),
            ("offlinereplicacount", "Logs that are offline: damaged, or refused by the disk.",
             self.offline),
            ("underreplicatedpartitions", "Led partitions with replicas that are not in sync.",
             self.under_replicated),
            ("underminisrpartitioncount", "Led partitions that refuse writes with acks=all.",
             self.under_minimum),
            ("atminisrpartitioncount", "Led partitions that cannot lose another in-sync replica.",
             self.at_minimum),
            ("reassigningpartitions", "Led partitions that are moving.", self.moving),
            ("partitionswithlatetransactionscount",
             "Led partitions with a transaction open for longer than the maximum timeout.",
             self.hanging),
        ):  # fmt: skip
            families.gauge(_MANAGER + name, about, value)
        families.counter(
            "kafka_controller_controllerstats_uncleanleaderelections_total",
            "Times that an out-of-sync replica was elected leader here.",
            self.unclean_elections,
        )
        families.gauge(
            "moldau_partitions_in_transaction",
            "Led partitions with an open transaction.",
            self.in_transaction,
        )
        families.gauge(
            "moldau_flush_lag_messages",
            "Messages that a flush policy has yet to force to disk.",
            self.flush_lag,
        )
        families.gauge(
            "moldau_flush_lag_messages_max",
            "The same, for the partition with the most.",
            self.longest_flush_lag,
        )


async def add_partitions(
    broker: Broker, topics: Topics, families: Families, slices: Slices, *, one_by_one: bool
) -> None:
    """Add the families about partitions; with series of each only if they are wanted."""
    longest_ms = broker.settings.transaction_max_timeout_ms + _GRACE_MS
    counts = PartitionCounts(broker.node.now_ms() - longest_ms)
    of_logs = [families.family(name, "gauge", about) for name, about in _OF_LOGS]
    of_led = [families.family(name, "gauge", about) for name, about in _OF_LED]
    sizes = families.family("kafka_topic_partitions", "gauge", "Partitions of a topic.")
    known = broker.state.topics
    for number, partition in enumerate(list(broker.partitions.values()), 1):
        topics.look(partition)
        counts.count(partition)
        if one_by_one:
            _add_one(partition, of_logs, of_led)
        if not partition.index and partition.is_leader and partition.topic in known:
            _add_size(sizes, partition.topic, len(known[partition.topic].partitions))
        if number % _AT_A_TIME == 0:
            await slices.rest()
    counts.add_to(families)
    await _add_leaderless(broker, families, slices, one_by_one=one_by_one)


def _add_one(partition: Partition, of_logs: list[Family], of_led: list[Family]) -> None:
    # No name of a topic has anything to escape.
    where = f'{{topic="{partition.topic}",partition="{partition.index}"}}'
    log = partition.log
    values: tuple[int, ...] = (log.segments.size, log.log_start, log.log_end, len(log.segments))
    for family, value in zip(of_logs, values, strict=True):
        family.lines.append(f"{family.name}{where} {value}\n")
    if not partition.is_leader:
        return
    replicas, in_sync = len(partition.replicas), len(partition.isr)
    is_under = int(in_sync < replicas)
    is_preferred = int(partition.leader == partition.replicas[0])
    values = (
        *(log.high_watermark, log.log_start, partition.leader, replicas, in_sync),
        *(is_preferred, is_under, replicas, in_sync, is_under),
        *(int(in_sync < partition.min_isr), int(in_sync == partition.min_isr)),
    )
    for family, value in zip(of_led, values, strict=True):
        family.lines.append(f"{family.name}{where} {value}\n")


def _add_size(family: Family, topic: str, partitions: int) -> None:
    family.lines.append(f'{family.name}{{topic="{topic}"}} {partitions}\n')


async def _add_leaderless(
    broker: Broker, families: Families, slices: Slices, *, one_by_one: bool
) -> None:
    """Add what only the controller tells, for the whole cluster. Elsewhere it is nothing."""
    state = broker.state
    is_controller = state.controller_id == broker.id
    offline = partitions = unpreferred = 0
    if is_controller:
        leader = families.by_name["kafka_topic_partition_leader"]
        under = families.by_name["kafka_topic_partition_under_replicated_partition"]
        sizes = families.family("kafka_topic_partitions", "gauge", "Partitions of a topic.")
        for number, topic in enumerate(list(state.topics.values()), 1):
            partitions += len(topic.partitions)
            for index, partition in enumerate(topic.partitions):
                if partition.leader != NO_LEADER:
                    unpreferred += partition.leader != partition.replicas[0]
                    continue
                offline += 1
                if one_by_one:
                    where = f'{{topic="{topic.name}",partition="{index}"}}'
                    leader.add(NO_LEADER, where)
                    under.add(1, where)
                if not index:
                    _add_size(sizes, topic.name, len(topic.partitions))
            if number % _AT_A_TIME == 0 or len(topic.partitions) > _AT_A_TIME:
                await slices.rest()
    for name, about, value in (
        ("activecontrollercount", "1 if this broker is the controller.", int(is_controller)),
        ("offlinepartitionscount", "Partitions without a leader.", offline),
        ("globalpartitioncount", "Partitions of the cluster.", partitions),
        ("globaltopiccount", "Topics of the cluster.", len(state.topics) if is_controller else 0),
        ("preferredreplicaimbalancecount", "Partitions that are not led by their first replica.",
         unpreferred),
    ):  # fmt: skip
        families.gauge(f"kafka_controller_kafkacontroller_{name}", about, value)
