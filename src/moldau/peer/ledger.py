"""A ledger: a topic with one partition, so that there is one order, read and appended to."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from moldau.peer.cluster import Cluster
from moldau.peer.errors import OffsetOutOfRange, PeerError, Refused
from moldau.peer.fetcher import FetchSettings, PartitionFetcher
from moldau.peer.retries import attempts
from moldau.records.batch import HEADER_SIZE, check_batch, read_header
from moldau.records.record import Record, build_batch, records_of
from moldau.wire.apis import Api
from moldau.wire.errors import Error

log = logging.getLogger("moldau.peer")

_REPLICAS = 3
_IN_SYNC = 2
_MIN_ISR = "min.insync.replicas"
_ADVICE = (
    f"give it {_REPLICAS} replicas, for example with Kafka's kafka-reassign-partitions.sh, and set "
    f"{_MIN_ISR} to {_IN_SYNC}"
)
# How long a broker may be away, for a restart, before the topic is created without it.
_AWAY_S = 60.0
_TOPIC_RESOURCE = 2
# The last version of Produce without topic ids; nothing newer is needed.
_PRODUCE_VERSION = 12

Pair = tuple[bytes, bytes | None]
# Takes the key, the value and the offset of a record.
Apply = Callable[[bytes, bytes | None, int], None]

# The topics whose copies this process has looked at.
_checked: set[str] = set()


class Ledger:
    """A compacted topic of the cluster: its records up to `position` were handed to `apply`.

    For one thread. Transactions are not looked at: what is read may be aborted later.
    """

    def __init__(
        self, cluster: Cluster, topic: str, configs: Mapping[str, str], apply: Apply
    ) -> None:
        self.position = 0
        self.topic = topic
        self._configs = {"cleanup.policy": "compact", **configs}
        self._apply = apply
        self._cluster = cluster
        # What is there already is all that is waited for.
        self._fetcher = PartitionFetcher(cluster, topic, 0, settings=FetchSettings(max_wait_ms=0))

    def exists(self) -> bool:
        return self._cluster.metadata([self.topic]).topics[self.topic].exists

    def require(self) -> None:
        """Create the topic unless it is there; warn if it has too few copies for its cluster."""
        view = self._cluster.metadata([self.topic])
        if view.topics[self.topic].exists:
            if len(view.nodes) >= _REPLICAS and self.topic not in _checked:
                self._check_copies()
            return
        wanted = self._wanted_replicas()
        within_s = min(_AWAY_S, self._cluster.settings.retry_within_s)
        try:
            self._cluster.insist(lambda: self._create(wanted), within_s)
        except Refused as problem:
            if problem.code != Error.BROKER_NOT_AVAILABLE:
                raise
            left = min(_REPLICAS, len(self._cluster.metadata([]).nodes))
            log.warning(
                "topic %r is created with %s, because some brokers are missing: %s",
                self.topic,
                _counted(left),
                _ADVICE,
            )
            self._cluster.insist(lambda: self._create(left))
        # Not every broker has heard of it at once, and on a busy cluster that takes a while.
        tries = attempts(self._cluster.settings)
        while not self.exists() and tries.pause():
            pass

    def _wanted_replicas(self) -> int:
        """Return how many copies there should be, also for brokers that are away for a moment.

        The number stays as it is: those that have replicas of other topics are counted.
        """
        values = {"topics": None, "allow_auto_topic_creation": False}
        answer = self._cluster.insist(lambda: self._cluster.some_broker().ask(Api.METADATA, values))
        known = {int(broker.node_id) for broker in answer.brokers}
        for topic in answer.topics:
            for partition in topic.partitions:
                known.update(map(int, partition.replica_nodes))
        return min(_REPLICAS, len(known))

    def _create(self, replicas: int) -> None:
        """Ask for it once; Refused, to come again, if there are too few brokers."""
        configs = self._configs | ({_MIN_ISR: str(_IN_SYNC)} if replicas == _REPLICAS else {})
        topic = {
            "name": self.topic,
            "num_partitions": 1,
            "replication_factor": replicas,
            "assignments": [],
            "configs": [{"name": name, "value": value} for name, value in configs.items()],
        }
        values = {"topics": [topic], "timeout": 30_000, "validate_only": False}
        # Brokers of Kafka send it on to their controller; others may be told to come again.
        for answer in self._cluster.some_broker().ask(Api.CREATE_TOPICS, values).topics:
            code = int(answer.error_code)
            if code == Error.INVALID_REPLICATION_FACTOR:
                code = Error.BROKER_NOT_AVAILABLE
            if code not in (Error.NONE, Error.TOPIC_ALREADY_EXISTS):
                raise Refused(code, f"topic {self.topic!r}", _text(answer))

    def _check_copies(self) -> None:
        """Warn, once in a process, if the loss of a broker could lose records or stop us."""
        _checked.add(self.topic)
        # Whoever may not see that, or cannot right now, goes on all the same.
        with suppress(PeerError):
            too_few = self._too_few()
            if too_few:
                log.warning("topic %r %s: %s", self.topic, too_few, _ADVICE)

    def _too_few(self) -> str:
        values = {"topics": [{"name": self.topic}], "allow_auto_topic_creation": False}
        answer = self._cluster.some_broker().ask(Api.METADATA, values)
        replicas = [len(each.replica_nodes) for topic in answer.topics for each in topic.partitions]
        if min(replicas, default=_REPLICAS) < _REPLICAS:
            return f"has {_counted(min(replicas))}"
        wanted = {
            "resource_type": _TOPIC_RESOURCE,
            "resource_name": self.topic,
            "configuration_keys": [_MIN_ISR],
        }
        told = self._cluster.some_broker().ask(Api.DESCRIBE_CONFIGS, {"resources": [wanted]})
        least = [int(each.value) for one in told.results for each in one.configs if each.value]
        if min(least, default=_IN_SYNC) < _IN_SYNC:
            return f"accepts writes with {_counted(min(least))} in sync"
        return ""

    def read(self) -> None:
        """Read on to the end, as of now."""
        while self._cluster.insist(self._read_some):
            pass

    def append(self, pairs: Callable[[], Sequence[Pair]]) -> None:
        """Append records in one batch, and read on past them.

        An attempt whose answer is lost may have been successful, so `pairs` is called again for
        every attempt, and may return others.
        """

        def ask() -> int:
            at_ms = int(time.time() * 1000)
            attempt = pairs()
            batch = build_batch(
                Record(offset, at_ms, key, value) for offset, (key, value) in enumerate(attempt)
            )
            return self._append_once(bytes(batch)) + len(attempt)

        end = self._cluster.insist(ask)
        while self.position < end:
            self.read()

    def _read_some(self) -> bool:
        """Read what one fetch brings; return whether there is more."""
        try:
            stream = self._fetcher.fetch(self.position)
            taken = bytearray(stream.size)
            stream.fill(memoryview(taken))
        except OffsetOutOfRange as problem:
            if self.position >= problem.log_start:
                raise
            self.position = problem.log_start
            return True
        except PeerError:
            self._fetcher.close()
            raise
        self._take(taken)
        return self.position < stream.partition.high_watermark

    def _append_once(self, batch: bytes) -> int:
        node, _, _ = self._cluster.leader_of(self.topic, 0)
        values = {
            "transactional_id": None,
            "acks": -1,
            "timeout": int(self._cluster.settings.request_timeout_s * 1000),
            "topic_data": [
                {"name": self.topic, "partition_data": [{"index": 0, "records": batch}]},
            ],
        }
        answer = self._cluster.to(node).ask(Api.PRODUCE, values, _PRODUCE_VERSION)
        (partition,) = answer.responses[0].partition_responses
        code = int(partition.error_code)
        if code in (Error.NOT_ENOUGH_REPLICAS, Error.NOT_ENOUGH_REPLICAS_AFTER_APPEND):
            code = Error.REQUEST_TIMED_OUT
        if code:
            raise Refused(code, f"append to {self.topic!r}", partition.error_message)
        return int(partition.base_offset)

    def _take(self, taken: bytearray) -> None:
        position = 0
        while len(taken) - position >= HEADER_SIZE:
            header = read_header(taken, position)
            if header.size > len(taken) - position:
                # Brokers may cut the last batch short.
                break
            check_batch(taken, position, from_producer=False)
            if not header.is_control:
                for record in records_of(taken, position):
                    if record.offset >= self.position and record.key is not None:
                        value = None if record.value is None else bytes(record.value)
                        self._apply(bytes(record.key), value, record.offset)
            self.position = max(self.position, header.last_offset + 1)
            position += header.size


def _counted(replicas: int) -> str:
    return f"{replicas} replica{'' if replicas == 1 else 's'}"


def _text(answer: Any) -> str | None:
    return getattr(answer, "error_message", None)
