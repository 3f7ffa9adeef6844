"""Topics: messages and bytes in and out, by topic and in total.

What comes in is read off the logs: how far each has grown since the last look, in the role that the
broker had in between. So a write costs nothing to count.
"""

from __future__ import annotations

from collections import Counter
from itertools import islice

from moldau.broker.metrics import Metrics
from moldau.broker.partitions.partition import Partition
from moldau.broker.slices import Slices
from moldau.cluster.state.state import ClusterState
from moldau.http.metrics.families import Families
from moldau.wire.apis import Api

# How many topics are written down before the loop serves others again.
_AT_A_TIME = 1000
_PREFIX = "kafka_server_brokertopicmetrics_"


class Topics:
    """The traffic of one broker. Event loop only. It watches the roles of all partitions."""

    def __init__(self, metrics: Metrics, state: ClusterState) -> None:
        self._metrics = metrics
        self._state = state
        # What each log had at the last look, and whether this broker led it since.
        self._seen: dict[Partition, tuple[bool, int, int, int]] = {}
        self._messages: Counter[str] = Counter()
        self._bytes_in: Counter[str] = Counter()
        self._produces: Counter[str] = Counter()
        self._replicated_in: Counter[str] = Counter()

    # The roles of partitions; see `moldau.broker.partitions.replicas.Watcher`

    def partition_changed(self, partition: Partition) -> None:
        """Count what came before the change under the earlier role."""
        self.look(partition)

    def partition_dropped(self, partition: Partition) -> None:
        """Count what came, and forget the partition."""
        self.look(partition)
        self._seen.pop(partition, None)

    def partition_configured(self, partition: Partition) -> None:
        """Do nothing."""

    def brokers_changed(self) -> None:
        """Do nothing."""

    def look(self, partition: Partition) -> None:
        """Count what a partition's log has got since the last look."""
        log = partition.log
        writer = log.writer
        now = (partition.is_leader, log.written, writer.bytes, writer.appends)
        before = self._seen.get(partition)
        if before == now:
            return
        self._seen[partition] = now
        if before is None:
            return
        led, written, size, appends = before
        topic = partition.topic
        if led:
            # A log that was cut has grown by less than nothing.
            self._messages[topic] += max(0, now[1] - written)
            self._bytes_in[topic] += now[2] - size
            self._produces[topic] += now[3] - appends
        else:
            self._replicated_in[topic] += now[2] - size

    async def add_to(self, families: Families, slices: Slices) -> None:
        """Add the families to those of a scrape."""
        metrics = self._metrics
        failed = {
            api: Counter(
                {topic: count for (of, topic), count in metrics.failures.items() if of == api}
            )
            for api in (Api.PRODUCE, Api.FETCH)
        }
        failed_produces = failed[Api.PRODUCE]
        for name, about, counts in (
            ("messagesin", "Messages written by producers.", self._messages),
            ("bytesin", "Bytes written by producers.", self._bytes_in),
            ("bytesout", "Bytes sent to consumers.", metrics.bytes_out),
            ("replicationbytesin", "Bytes copied from leaders.", self._replicated_in),
            ("replicationbytesout", "Bytes copied by followers.", metrics.replicated_out),
            (
                "totalproducerequests",
                "Writes to partitions.",
                self._produces + failed_produces,
            ),
            ("failedproducerequests", "Writes that were refused.", failed_produces),
            ("totalfetchrequests", "Reads of partitions.", metrics.fetches),
            ("failedfetchrequests", "Reads that were refused.", failed[Api.FETCH]),
        ):
            family = families.family(f"{_PREFIX}{name}_total", "counter", about)
            family.add(sum(counts.values()))
            topics = iter(list(self._state.topics))
            while some := list(islice(topics, _AT_A_TIME)):
                # No name of a topic has anything to escape.
                family.lines += [
                    f'{family.name}{{topic="{topic}"}} {counts[topic]}\n' for topic in some
                ]
                await slices.rest()
        self._forget_deleted()

    def _forget_deleted(self) -> None:
        """Keep what was counted of deleted topics in the totals alone."""
        metrics, topics = self._metrics, self._state.topics
        for counts in (
            *(self._messages, self._bytes_in, self._produces, self._replicated_in),
            *(metrics.bytes_out, metrics.replicated_out, metrics.fetches),
        ):
            for topic in [each for each in counts if each and each not in topics]:
                counts[""] += counts.pop(topic)
        for api, topic in [each for each in metrics.failures if each[1] and each[1] not in topics]:
            metrics.failures[api, ""] += metrics.failures.pop((api, topic))
