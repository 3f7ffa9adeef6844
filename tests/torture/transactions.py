"""Breaks a cluster under transactions again and again, and looks for anomalies.

Three brokers and three ZooKeeper servers. Producers of both dialects (librdkafka's; one of raw
frames; Java's, where it can be had) write in transactions, commit some, abort some, die in some;
groups copy topics in a circle, with their offsets in the transactions; readers of either isolation
level read everything. Meanwhile `faults.py` happens to the brokers, most of all to leaders and
coordinators, and the cleaner and retention do their work. After each fault work must go on. After
each round everything must have ended, and `tests/transactions/checker.py` looks at all that anybody
was told or saw, and at the logs on all disks.

Links are slow and break only in every other round, where only the newer dialect is spoken: in the
older one a request that comes late is taken for one of the next transaction, in Kafka too
(KAFKA-17754; `tests/transactions/test_reordering.py` shows it).
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Self

from moldau.bench.errors import Unavailable
from moldau.testing import Cluster
from tests.scenarios.ledger import TopicPartition, Wrong
from tests.scenarios.play import check_logs
from tests.torture.cluster import delete_topic
from tests.torture.disks import Disks
from tests.torture.faults import Faults
from tests.transactions.checker import check
from tests.transactions.copiers import Tv1Copier, Tv2Copier
from tests.transactions.history import Reading, Seen, Value
from tests.transactions.java_producer import JavaWriter, command
from tests.transactions.load import Load, expect_none
from tests.transactions.replica import read_replica
from tests.transactions.worker import Worker
from tests.transactions.writers import Tv1Writer, Tv2Writer

_FAULTS_PER_ROUND = 5
_IN_SYNC_WITHIN_S = 120.0
_SESSION_S = 4.0
_COORDINATORS = 6
SETTINGS = {
    "zookeeper.session.timeout.ms": str(int(_SESSION_S * 1000)),
    "auto.create.topics.enable": "false",
    "offsets.topic.num.partitions": str(_COORDINATORS),
    "transaction.state.log.num.partitions": str(_COORDINATORS),
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
    "log.cleaner.backoff.ms": "500",
    "log.retention.check.interval.ms": "1000",
    "replica.high.watermark.checkpoint.interval.ms": "200",
    "auto.leader.rebalance.enable": "true",
    "leader.imbalance.check.interval.seconds": "5",
}
# Few bytes a segment, so that the cleaner and retention have something to do all the time.
_KINDS: dict[str, tuple[int, dict[str, str | int]]] = {
    "events": (3, {"segment_bytes": 50_000}),
    "keyed": (
        2,
        {
            "cleanup_policy": "compact",
            "segment_bytes": 10_000,
            "min_cleanable_dirty_ratio": "0.05",
            "delete_retention_ms": 2000,
        },
    ),
    "short": (1, {"segment_bytes": 10_000, "retention_bytes": 40_000}),
    "there": (2, {"segment_bytes": 50_000}),
    "back": (2, {"segment_bytes": 50_000}),
}


class TransactionTorture:
    """One run in one folder."""

    def __init__(self, folder: Path, seed: int, say: Callable[[str], None]) -> None:
        self._folder = folder
        self._dice = random.Random(seed)
        self._say = say
        self._started = time.monotonic()
        self.deeds: list[str] = []
        self.faults = 0
        self.rounds = 0
        self.counts: Counter[str] = Counter()

    @property
    def summary(self) -> str:
        counts = ", ".join(f"{count} {what}" for what, count in sorted(self.counts.items()))
        return f"{self.faults} faults in {self.rounds} rounds; {counts or 'nothing'}"

    @property
    def last_deeds(self) -> list[str]:
        return self.deeds[-30:]

    def run(self, is_over: Callable[[int], bool]) -> None:
        """Rounds until `is_over`, which is told how many faults there were; Wrong if an anomaly is
        found, or if work does not go on."""
        disks = Disks(self._folder, self._dice)
        with (
            disks.below(),
            Cluster(
                3, ensemble=3, settings=SETTINGS, folder=self._folder, can_be_cut=True
            ) as cluster,
        ):
            faults = Faults(cluster, disks, self._dice, _SESSION_S, self._do)
            while not is_over(self.faults):
                self._do(f"begin round {self.rounds}")
                with Round(cluster, self._dice, self.rounds) as round_:
                    for _ in range(_FAULTS_PER_ROUND):
                        round_.load.go_on()
                        self._strike(faults, round_)
                        round_.load.go_on()
                        round_.wait_until_in_sync()
                        if is_over(self.faults):
                            break
                    self._do("let everything end")
                    self.counts += round_.check()
                self.rounds += 1
                check_logs(cluster)
                for topic in round_.topics:
                    delete_topic(cluster, topic)
                self._do(self.summary)

    def close(self) -> None:
        """Nothing is left: the cluster ends with `run`."""

    def _strike(self, faults: Faults, round_: Round) -> None:
        weights: dict[Callable[[], None], int] = {
            faults.kill_one: 6,
            faults.kill_two: 2,
            faults.kill_all: 1,
            faults.stop: 2,
            faults.freeze: 4,
            faults.cut: 4,
            faults.kill_zookeeper: 1,
            faults.two_at_once: 2,
            faults.power_failure: 2,
        }
        if round_.reorders:
            weights |= {faults.slow_links: 8, faults.elect_over_slow_links: 3}
        fault = self._dice.choices(list(weights), weights=list(weights.values()))[0]
        faults.aim_at(*self._dice.choice(round_.aims))
        fault()
        self.faults += 1
        self.counts[f"x {fault.__name__}"] += 1

    def _do(self, deed: str) -> None:
        moment = time.monotonic() - self._started
        self.deeds.append(f"{time.strftime('%H:%M:%S')} {moment:7.2f} s  {deed}")
        self._say(self.deeds[-1])


@cache
def has_java() -> bool:
    """Whether Java's own producer can take part."""
    try:
        command()
    except Unavailable:
        return False
    return True


class Round:
    """Topics of their own, the load on them, and what came of it all."""

    def __init__(self, cluster: Cluster, dice: random.Random, number: int) -> None:
        self.cluster = cluster
        self.reorders = bool(number % 2)
        self._dice = dice
        self._number = number
        self.topics: list[str] = []
        self.aims = [("__transaction_state", _COORDINATORS), ("__consumer_offsets", _COORDINATORS)]
        self._places: dict[str, list[TopicPartition]] = {}
        for kind, (partitions, configs) in _KINDS.items():
            topic = f"{kind}-{number}"
            cluster.create_topic(topic, partitions, -1, min_insync_replicas=2, **configs)
            self._places[kind] = [TopicPartition(topic, index) for index in range(partitions)]
            self.aims.append((topic, partitions))
            self.topics.append(topic)
        self.load = Load(
            cluster.bootstrap,
            [place for some in self._places.values() for place in some],
            self._places["keyed"],
            self._workers(),
            {self._name("there"): self._places["there"], self._name("back"): self._places["back"]},
        )

    def __enter__(self) -> Self:
        self.load.__enter__()
        return self

    def __exit__(self, *problem: object) -> None:
        self.load.__exit__(*problem)

    def _name(self, name: str) -> str:
        return f"{name}-{self._number}"

    def _workers(self) -> list[Worker]:
        bootstrap, places, name = self.cluster.bootstrap, self._places, self._name
        keyed = set(places["keyed"])
        written = [*places["events"], *places["keyed"], *places["short"], *places["there"]]
        to_there = places["there"] + places["events"]
        to_back = places["back"] + places["events"]

        def own() -> random.Random:
            return random.Random(self._dice.randrange(1 << 32))

        def tv2_copier(source: str, targets: list[TopicPartition]) -> Worker:
            id = name(f"tv2-copies-{source}")
            return Tv2Copier(id, bootstrap, own(), name(source), places[source], targets)

        workers: list[Worker] = [
            Tv2Writer(name(f"tv2-{each}"), bootstrap, own(), written, keyed) for each in "ab"
        ]
        workers.append(tv2_copier("back", to_there))
        if has_java():
            workers.append(JavaWriter(name("java"), bootstrap, own(), written, keyed))
        if self.reorders:
            return [*workers, tv2_copier("there", to_back)]
        workers += [
            Tv1Writer(name(f"tv1-{each}"), bootstrap, own(), written, keyed) for each in "ab"
        ]
        there = name("there")
        workers += [
            Tv1Copier(name(f"tv1-copies-there-{each}"), bootstrap, own(), there, there, to_back)
            for each in "ab"
        ]
        return workers

    def wait_until_in_sync(self) -> None:
        try:
            self.cluster.wait_until_in_sync(within_s=_IN_SYNC_WITHIN_S)
        except TimeoutError as problem:
            raise Wrong(str(problem)) from problem

    def check(self) -> Counter[str]:
        """Let the load end, and look for anomalies; what was done."""
        self.wait_until_in_sync()
        history = self.load.finish(self._break_connections)
        for broker in self.cluster.brokers:
            for place in self.load.places:
                history.readings += self._replica(broker, place)
        # Retention goes on.
        history.starts = self.load.starts()
        expect_none(check(history))
        return self.load.counts

    def _break_connections(self) -> None:
        for broker in self.cluster.brokers:
            self.cluster.break_connections(broker)

    def _replica(self, broker: int, place: TopicPartition) -> Sequence[Reading]:
        whole = Reading(f"the log of broker {broker}", False)
        committed = Reading(f"the committed part of the log of broker {broker}", True)
        for entry in read_replica(self.cluster.data_dir(broker) / str(place)):
            if entry.commits is None:
                raise Wrong(f"{place} offset {entry.offset} is in an open transaction on {broker}")
            seen = Seen(place, entry.offset, Value.of(entry.value))
            whole.seen.append(seen)
            if entry.commits:
                committed.seen.append(seen)
        return whole, committed
