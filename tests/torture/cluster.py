"""Breaks a cluster again and again and holds it to its promises.

Three brokers and three ZooKeeper servers; producers with acks=all, a reader and a group work all
the time, while `faults.py` happens to the cluster. After each fault everything is put right again,
and work must go on; after each round every message must be there, once and in order. A round has a
topic of its own, so that a run may last for days. Every other round's topic has a flush policy:
only there the power may fail for all brokers at once.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from pathlib import Path

from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from moldau.testing import Cluster
from tests.scenarios.ledger import Wrong
from tests.scenarios.play import Play
from tests.torture.disks import Disks
from tests.torture.faults import Faults

_FAULTS_PER_ROUND = 6
_PARTITIONS = 4
_IN_SYNC_WITHIN_S = 180.0
_ADMIN_WITHIN_S = 120.0
# With three servers the ZooKeeper client gives each a third of it to answer, which on a machine
# that is busy with all of this should not be too little.
_SESSION_S = 4.0
_SETTINGS = {
    "zookeeper.session.timeout.ms": str(int(_SESSION_S * 1000)),
    "auto.create.topics.enable": "false",
    "auto.leader.rebalance.enable": "true",
    "log.retention.ms": "-1",
    "log.segment.bytes": "200000",
    "offsets.topic.num.partitions": "3",
    "replica.high.watermark.checkpoint.interval.ms": "200",
    "leader.imbalance.check.interval.seconds": "3",
}


class ClusterTorture:
    """One run in one folder."""

    def __init__(self, folder: Path, seed: int, say: Callable[[str], None]) -> None:
        self._folder = folder
        self._dice = random.Random(seed)
        self._say = say
        self._started = time.monotonic()
        self.deeds: list[str] = []
        self.faults = 0
        self.rounds = 0
        self.messages = 0

    @property
    def summary(self) -> str:
        return f"{self.faults} faults in {self.rounds} rounds, {self.messages} messages"

    @property
    def last_deeds(self) -> list[str]:
        return self.deeds[-20:]

    def run(self, is_over: Callable[[int], bool]) -> None:
        """Rounds until `is_over`, which is told how many faults there were; Wrong if a promise
        breaks."""
        disks = Disks(self._folder, self._dice)
        with (
            disks.below(),
            Cluster(
                3, ensemble=3, settings=_SETTINGS, folder=self._folder, can_be_cut=True
            ) as cluster,
        ):
            faults = Faults(cluster, disks, self._dice, _SESSION_S, self._do)
            while not is_over(self.faults):
                self._round(cluster, faults, is_over)
                self.rounds += 1
                self._say(self.summary)

    def close(self) -> None:
        """Nothing is left: the cluster ends with `run`."""

    def _round(self, cluster: Cluster, faults: Faults, is_over: Callable[[int], bool]) -> None:
        topic = f"round-{self.rounds}"
        flushes = bool(self.rounds % 2)
        configs = {"flush_messages": 1} if flushes else {}
        self._do(f"begin a round {'with' if flushes else 'without'} a flush policy")
        with Play(cluster, _PARTITIONS, 2, topic, "classic", topic, **configs) as play:
            if not self.rounds:
                play.go_on(1)
                _flush_offsets(cluster.bootstrap)
            for _ in range(_FAULTS_PER_ROUND):
                play.go_on(self._dice.randrange(1, 60))
                faults.strike(topic, _PARTITIONS, flushes=flushes)
                self.faults += 1
                since = time.monotonic()
                play.go_on()
                went_on_s = time.monotonic() - since
                try:
                    cluster.wait_until_in_sync(within_s=_IN_SYNC_WITHIN_S)
                except TimeoutError as problem:
                    raise Wrong(str(problem)) from problem
                in_sync_s = time.monotonic() - since
                self._do(
                    f"clients went on after {went_on_s:.1f} s, in sync after {in_sync_s:.1f} s"
                )
                if is_over(self.faults):
                    break
            self._do("finish the round")
            play.finish()
            self.messages += sum(map(play.ledger.acknowledged, play.places))
        delete_topic(cluster, topic)

    def _do(self, deed: str) -> None:
        moment = time.monotonic() - self._started
        self.deeds.append(f"{time.strftime('%H:%M:%S')} {moment:7.2f} s  {deed}")
        self._say(self.deeds[-1])


def delete_topic(cluster: Cluster, topic: str) -> None:
    """Leave nothing to later rounds, in which more may be lost than this one's topic promises."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    for outcome in admin.delete_topics([topic]).values():
        outcome.result(_ADMIN_WITHIN_S)
    cluster.wait_until(
        lambda: all((topic, 0) not in cluster.view(each).partitions for each in cluster.brokers),
        f"{topic} is deleted",
    )


def _flush_offsets(bootstrap: str) -> None:
    """Hold the groups' offsets to the same promise: no broker may say that it lost some."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    entry = ConfigEntry("flush.messages", "1", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, "__consumer_offsets", incremental_configs=[entry])
    for outcome in admin.incremental_alter_configs([resource]).values():
        outcome.result(_ADMIN_WITHIN_S)
