"""Breaks a cluster again and again and holds it to its promises.

Three brokers and three ZooKeeper servers; producers with acks=all, a reader and a group work all
the time. Brokers are killed, stopped, frozen, cut off the network and wiped, ZooKeeper servers are
killed, often several things at once. After each fault everything is put right again, and work must
go on; after each round every message must be there, once and in order. A round has a topic of its
own, so that a run may last for days.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from pathlib import Path

from moldau.testing import Cluster
from tests.scenarios.ledger import Wrong
from tests.scenarios.play import Play

_FAULTS_PER_ROUND = 6
_PARTITIONS = 4
_IN_SYNC_WITHIN_S = 90.0
# With three servers the ZooKeeper client gives each a third of it to answer, which on a machine
# that is busy with all of this should not be too little.
_SESSION_S = 4.0
_SETTINGS = {
    "zookeeper.session.timeout.ms": str(int(_SESSION_S * 1000)),
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
        with Cluster(
            3, ensemble=3, settings=_SETTINGS, folder=self._folder, can_be_cut=True
        ) as cluster:
            while not is_over(self.faults):
                self._round(cluster, is_over)
                self.rounds += 1
                self._say(self.summary)

    def close(self) -> None:
        """Nothing is left: the cluster ends with `run`."""

    def _round(self, cluster: Cluster, is_over: Callable[[int], bool]) -> None:
        topic = f"round-{self.rounds}"
        with Play(cluster, _PARTITIONS, writers=2, group=topic, topic=topic) as play:
            for _ in range(_FAULTS_PER_ROUND):
                play.go_on(self._dice.randrange(1, 60))
                self._fault(cluster, topic)
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

    def _fault(self, cluster: Cluster, topic: str) -> None:
        """Something bad, and after a while the end of it."""
        kind = self._dice.choices(
            ["kill", "kill two", "kill all", "stop", "freeze", "cut", "wipe", "zookeeper", "both"],
            weights=[6, 2, 1, 2, 4, 4, 1, 2, 2],
        )[0]
        victim = self._victim(cluster, topic)
        if kind == "kill":
            self._kill_and_start(cluster, [victim])
        elif kind == "kill two":
            self._kill_and_start(cluster, self._dice.sample(cluster.brokers, 2))
        elif kind == "kill all":
            self._kill_and_start(cluster, self._dice.sample(cluster.brokers, 3))
        elif kind == "stop":
            self._do(f"stop {victim}")
            cluster.stop(victim)
            self._pass_time(0, 2)
            self._do(f"start {victim}")
            cluster.start(victim)
        elif kind == "freeze":
            self._do(f"freeze {victim}")
            cluster.freeze(victim)
            self._pass_time(0.1, 2 * _SESSION_S)
            self._do(f"thaw {victim}")
            cluster.thaw(victim)
        elif kind == "cut":
            from_clients = self._dice.random() < 0.5
            self._do(f"cut {victim}{'' if from_clients else ', but not from clients'}")
            cluster.cut(victim, from_clients=from_clients)
            self._pass_time(0.1, 2 * _SESSION_S)
            self._do(f"heal {victim}")
            cluster.heal(victim)
        elif kind == "wipe":
            self._do(f"kill and wipe {victim}")
            cluster.kill(victim)
            cluster.wipe(victim)
            self._do(f"start {victim}")
            cluster.start(victim)
        elif kind == "zookeeper":
            self._zookeeper(cluster)
        else:
            self._two_at_once(cluster, victim)

    def _victim(self, cluster: Cluster, topic: str) -> int:
        """Who matters most is hit most often."""
        kind = self._dice.choice(["leader", "controller", "any"])
        if kind == "leader":
            return cluster.leader_of(topic, self._dice.randrange(_PARTITIONS))
        if kind == "controller":
            return cluster.controller()
        return self._dice.choice(cluster.brokers)

    def _kill_and_start(self, cluster: Cluster, brokers: list[int]) -> None:
        self._do(f"kill {brokers}")
        cluster.kill(*brokers)
        self._pass_time(0, 3)
        self._dice.shuffle(brokers)
        for broker in brokers:
            self._do(f"start {broker}")
            cluster.start(broker)
            self._pass_time(0, 0.5)

    def _zookeeper(self, cluster: Cluster) -> None:
        server = cluster.ensemble.leader() if self._dice.random() < 0.6 else self._dice.randrange(3)
        self._do(f"kill ZooKeeper {server}")
        cluster.ensemble.kill(server)
        self._pass_time(0, 3)
        self._do(f"start ZooKeeper {server}")
        cluster.ensemble.start(server)

    def _two_at_once(self, cluster: Cluster, victim: int) -> None:
        """One falls silent, and while it does another dies."""
        other = self._dice.choice([broker for broker in cluster.brokers if broker != victim])
        freeze = self._dice.random() < 0.5
        self._do(f"{'freeze' if freeze else 'cut'} {victim}")
        if freeze:
            cluster.freeze(victim)
        else:
            cluster.cut(victim)
        self._pass_time(0, 1.5 * _SESSION_S)
        self._do(f"kill {other}")
        cluster.kill(other)
        self._pass_time(0, 1)
        self._do(f"{'thaw' if freeze else 'heal'} {victim}")
        if freeze:
            cluster.thaw(victim)
        else:
            cluster.heal(victim)
        self._pass_time(0, 1)
        self._do(f"start {other}")
        cluster.start(other)

    def _pass_time(self, shortest_s: float, longest_s: float) -> None:
        time.sleep(self._dice.uniform(shortest_s, longest_s))

    def _do(self, deed: str) -> None:
        moment = time.monotonic() - self._started
        self.deeds.append(f"{time.strftime('%H:%M:%S')} {moment:7.2f} s  {deed}")
        self._say(self.deeds[-1])
