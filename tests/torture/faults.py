"""Faults of a cluster under torture: one after another, each put right again."""

from __future__ import annotations

import random
import time
from collections.abc import Callable

from moldau.peer.connection import Connection
from moldau.peer.errors import PeerError
from moldau.testing import Cluster
from moldau.wire.apis import Api
from tests.scenarios.damage import batches, connect, damage, first_segment, is_met, put
from tests.torture.disks import Disks

_PREFERRED = 0
_ELECT_WITHIN_MS = 10_000


class Faults:
    """Strikes one cluster; `say` is told each deed. For one thread."""

    def __init__(
        self,
        cluster: Cluster,
        disks: Disks,
        dice: random.Random,
        session_s: float,
        say: Callable[[str], None],
    ) -> None:
        self._cluster = cluster
        self._disks = disks
        self._dice = dice
        self._session_s = session_s
        self._say = say
        self._topic = ""
        self._partitions = 0
        self._weights: dict[Callable[[], None], int] = {
            self.kill_one: 6,
            self.kill_two: 2,
            self.kill_all: 1,
            self.stop: 2,
            self.freeze: 4,
            self.cut: 4,
            self.wipe: 1,
            self.kill_zookeeper: 2,
            self.two_at_once: 2,
            self.power_failure: 4,
            self.slow_links: 4,
            self.elect_over_slow_links: 3,
            self.slow_fsync: 3,
            self.full_disk: 3,
            self.damage: 3,
        }
        # Without a flush policy nothing is forced to disk, and no promise broken if all forget.
        self._with_flush_policy: dict[Callable[[], None], int] = {
            self.power_failure_of_all: 4,
            self.failing_fsync: 3,
        }

    def strike(self, topic: str, partitions: int, *, flushes: bool) -> None:
        """Do something bad, and after a while end it."""
        self.aim_at(topic, partitions)
        weights = self._weights | (self._with_flush_policy if flushes else {})
        self._dice.choices(list(weights), weights=list(weights.values()))[0]()

    def aim_at(self, topic: str, partitions: int) -> None:
        """Hit those brokers most often that this topic depends on."""
        self._topic, self._partitions = topic, partitions

    # Processes

    def kill_one(self) -> None:
        self._kill_and_start([self._victim()])

    def kill_two(self) -> None:
        self._kill_and_start(self._dice.sample(self._cluster.brokers, 2))

    def kill_all(self) -> None:
        self._kill_and_start(self._dice.sample(self._cluster.brokers, 3))

    def stop(self) -> None:
        victim = self._victim()
        self._say(f"stop {victim}")
        self._cluster.stop(victim)
        self._pass_time(0, 2)
        self._start(victim)

    def freeze(self) -> None:
        victim = self._victim()
        self._say(f"freeze {victim}")
        self._cluster.freeze(victim)
        self._pass_time(0.1, 2 * self._session_s)
        self._say(f"thaw {victim}")
        self._cluster.thaw(victim)

    def wipe(self) -> None:
        victim = self._victim()
        self._say(f"kill and wipe {victim}")
        self._cluster.kill(victim)
        self._cluster.wipe(victim)
        self._start(victim)

    def kill_zookeeper(self) -> None:
        ensemble = self._cluster.ensemble
        server = ensemble.leader() if self._dice.random() < 0.6 else self._dice.randrange(3)
        self._say(f"kill ZooKeeper {server}")
        ensemble.kill(server)
        self._pass_time(0, 3)
        self._say(f"start ZooKeeper {server}")
        ensemble.start(server)

    def two_at_once(self) -> None:
        """One falls silent, and while it does another dies."""
        victim, other = self._victim_and_another()
        freeze = self._dice.random() < 0.5
        self._say(f"{'freeze' if freeze else 'cut'} {victim}")
        if freeze:
            self._cluster.freeze(victim)
        else:
            self._cluster.cut(victim)
        self._pass_time(0, 1.5 * self._session_s)
        self._say(f"kill {other}")
        self._cluster.kill(other)
        self._pass_time(0, 1)
        self._say(f"{'thaw' if freeze else 'heal'} {victim}")
        if freeze:
            self._cluster.thaw(victim)
        else:
            self._cluster.heal(victim)
        self._pass_time(0, 1)
        self._start(other)

    # The network

    def cut(self) -> None:
        victim = self._victim()
        from_clients = self._dice.random() < 0.5
        self._say(f"cut {victim}{'' if from_clients else ', but not from clients'}")
        self._cluster.cut(victim, from_clients=from_clients)
        self._pass_time(0.1, 2 * self._session_s)
        self._say(f"heal {victim}")
        self._cluster.heal(victim)

    def slow_links(self) -> None:
        """Links are slow and connections break: requests overtake each other."""
        victim = self._victim()
        self._slow([victim])
        for _ in range(self._dice.randrange(1, 6)):
            self._pass_time(0, 0.8)
            self._say(f"break the connections of {victim}")
            self._cluster.break_connections(victim)
        if self._dice.random() < 0.5:
            self._kill_and_start([self._dice.choice(self._cluster.brokers)])
        self._quicken()

    def elect_over_slow_links(self) -> None:
        """Leaders change back and forth while answers are on their way, and the new one dies."""
        self._slow(self._cluster.brokers)
        victim, other = self._victim_and_another()
        self._kill_and_start([victim])
        self._say("elect preferred leaders")
        self._elect()
        self._pass_time(0, 0.5)
        self._kill_and_start([self._dice.choice([victim, other])])
        self._quicken()

    # Disks

    def power_failure(self) -> None:
        victim = self._victim()
        self._power_off([victim])
        self._pass_time(0, 3)
        self._start(victim)

    def power_failure_of_all(self) -> None:
        brokers = self._cluster.brokers
        self._power_off(brokers)
        self._dice.shuffle(brokers)
        for broker in brokers:
            self._start(broker)
            self._pass_time(0, 0.5)

    def slow_fsync(self) -> None:
        """Some disk takes its time while another fault strikes, which may be its end."""
        victim, other = self._victim_and_another()
        slow_s = self._dice.uniform(0.1, 1.5)
        self._say(f"slow fsyncs on {victim}: {slow_s:.1f} s")
        self._disks.set(self._name(victim), fsync_s=slow_s)
        self._pass_time(0, 1)
        if self._dice.random() < 0.3:
            self._power_off([victim])
            self._pass_time(0, 1)
            self._start(victim)
        else:
            self._kill_and_start(self._dice.choice([[victim], [other], [victim, other]]))
        self._pass_time(0, 2)
        self._disks.set(self._name(victim))

    def full_disk(self) -> None:
        victim = self._victim()
        self._say(f"fill the disk of {victim}")
        self._disks.set(self._name(victim), is_full=True)
        self._pass_time(0.1, 3)
        kills = self._dice.random() < 0.3
        if kills:
            self._say(f"kill {victim}")
            self._cluster.kill(victim)
        self._say(f"make room on the disk of {victim}")
        self._disks.set(self._name(victim))
        if kills:
            self._start(victim)

    def failing_fsync(self) -> None:
        """A disk fails, and perhaps another's broker dies over it."""
        victim, other = self._victim_and_another()
        self._say(f"failing fsyncs on {victim}")
        self._disks.set(self._name(victim), fails=True)
        self._pass_time(0, 3)
        if self._dice.random() < 0.5:
            self._kill_and_start([other])
        self._say(f"mend the disk of {victim}")
        self._disks.set(self._name(victim))

    def damage(self) -> None:
        """Destroy a batch of a leader, and read there."""
        index = self._dice.randrange(self._partitions)
        leader = self._cluster.leader_of(self._topic, index)
        segment = first_segment(self._cluster, leader, self._topic, index)
        found = list(batches(segment))
        if not found:
            return
        position, offset = self._dice.choice(found)
        self._say(f"damage {segment.parent.name} of {leader} at offset {offset}")
        before = damage(segment, position)
        with connect(self._cluster, leader) as client:
            if is_met(client, self._topic, range(offset, found[-1][1] + 1), index):
                return
        self._say("which nobody who reads there notices: undone")
        put(segment, position, before)

    # --

    def _victim(self) -> int:
        """Who matters most is hit most often."""
        kind = self._dice.choice(["leader", "controller", "any"])
        if kind == "leader":
            return self._cluster.leader_of(self._topic, self._dice.randrange(self._partitions))
        if kind == "controller":
            return self._cluster.controller()
        return self._dice.choice(self._cluster.brokers)

    def _victim_and_another(self) -> tuple[int, int]:
        victim = self._victim()
        others = [broker for broker in self._cluster.brokers if broker != victim]
        return victim, self._dice.choice(others)

    def _kill_and_start(self, brokers: list[int]) -> None:
        self._say(f"kill {brokers}")
        self._cluster.kill(*brokers)
        self._pass_time(0, 3)
        self._dice.shuffle(brokers)
        for broker in brokers:
            self._start(broker)
            self._pass_time(0, 0.5)

    def _power_off(self, brokers: list[int]) -> None:
        self._say(f"power failure of {brokers}")
        self._cluster.kill(*brokers)
        for broker in brokers:
            self._say(f"{broker} forgot {self._disks.forget(self._name(broker))}")

    def _start(self, broker: int) -> None:
        self._say(f"start {broker}")
        self._cluster.start(broker)

    def _slow(self, brokers: list[int]) -> None:
        delay_s = self._dice.uniform(0.05, 0.4)
        self._say(f"slow links of {brokers}: {delay_s:.2f} s")
        for broker in brokers:
            self._cluster.slow(broker, delay_s)

    def _quicken(self) -> None:
        self._say("quick links again")
        for broker in self._cluster.brokers:
            self._cluster.slow(broker, 0)

    def _elect(self) -> None:
        host, _, port = self._cluster.address(self._cluster.controller()).rpartition(":")
        places = [{"topic": self._topic, "partitions": list(range(self._partitions))}]
        question = {
            "election_type": _PREFERRED,
            "topic_partitions": places,
            "timeout": _ELECT_WITHIN_MS,
        }
        try:
            with Connection(host, int(port), "torture", connect_timeout_s=5.0) as connection:
                connection.ask(Api.ELECT_LEADERS, question)
        except PeerError as problem:
            self._say(f"no election: {problem}")

    def _name(self, broker: int) -> str:
        return self._cluster.data_dir(broker).name

    def _pass_time(self, shortest_s: float, longest_s: float) -> None:
        time.sleep(self._dice.uniform(shortest_s, longest_s))
