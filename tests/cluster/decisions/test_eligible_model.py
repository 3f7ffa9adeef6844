"""Eligible leader replicas against a model of what each replica holds."""

from __future__ import annotations

import random

import pytest
from msgspec.structs import replace

from moldau.cluster.decisions.elections import (
    Held,
    Loss,
    departed,
    elect,
    handed_over,
    in_sync_with,
    knows_elr,
)
from moldau.cluster.state.changes import BrokerJoined, BrokerLeft, PartitionsChanged
from moldau.cluster.state.topics import NO_LEADER, BrokerInfo, PartitionState
from tests.cluster.decisions.eligibility import REPLICAS, cluster, info, never

OLDER = 9


class Replicas:
    """Three replicas that die, lose power, come back and copy, whatever the order.

    A log is a list of messages that are all different. What is not forced to disk is lost with the
    power. Whoever is elected because it was in sync or eligible must have all that was committed.

    In an upgrade a fourth broker comes and goes that knows nothing of eligible replicas.
    """

    def __init__(self, seed: int, *, is_upgrade: bool = False) -> None:
        self.is_upgrade = is_upgrade
        self.dice = random.Random(seed)
        self.minimum = self.dice.choice([1, 2, 2, 3])
        self.state = cluster(PartitionState(REPLICAS, REPLICAS, 0), *REPLICAS)
        self.logs: dict[int, list[int]] = {broker: [] for broker in REPLICAS}
        self.forced = dict.fromkeys(REPLICAS, 0)
        self.committed: list[int] = []
        # Of those who are away: what became of what they had.
        self.away: dict[int, Loss] = {}
        # Who is in sync with a torn log, as the last one may be beside an older broker.
        self.torn: set[int] = set()
        # Whether the older broker has dropped who lost everything.
        self.has_forgotten = False
        self.count = 0

    def step(self) -> None:
        steps = [self.write, self.acknowledge, self.copy, self.join, self.lag, self.force]
        if self.is_upgrade:
            steps += [self.older_comes_or_goes, self.older_writes]
        self.dice.choice([*steps, self.end, self.come_back, self.come_back])()
        partition = self.partition
        members = {*partition.isr, *partition.elr, *dict(partition.lost)}
        assert members <= set(REPLICAS)
        assert not set(partition.isr) & {*partition.elr, *dict(partition.lost)}
        assert partition.leader == NO_LEADER or partition.leader in partition.isr
        assert not partition.last_known_elr or partition.leader == NO_LEADER
        self.has_forgotten &= partition.leader == NO_LEADER
        if not self.away and not partition.lost and not self.has_forgotten:
            assert partition.leader != NO_LEADER

    @property
    def partition(self) -> PartitionState:
        return self.state.topics["t"].partitions[0]

    @property
    def least(self) -> int:
        return self.minimum if knows_elr(self.state) else 0

    @property
    def live(self) -> list[int]:
        return [broker for broker in REPLICAS if broker in self.state.brokers]

    def older_comes_or_goes(self) -> None:
        if OLDER in self.state.brokers:
            self.state.apply(BrokerLeft(OLDER))
        else:
            self.state.apply(BrokerJoined(BrokerInfo(OLDER, "localhost", 9091)))
        self.settle()

    def older_writes(self) -> None:
        if OLDER in self.state.brokers:
            self.has_forgotten |= bool(self.partition.lost)
            self.put(replace(self.partition, elr=(), last_known_elr=(), lost=()))

    def put(self, after: PartitionState | None) -> None:
        if after is not None:
            self.state.apply(PartitionsChanged("t", {0: after}))

    def settle(self) -> None:
        """What the controller does."""
        before = self.partition
        self.put(elect(before, self.state.brokers.keys(), never, minimum=self.least))
        leader = self.partition.leader
        if leader in (NO_LEADER, before.leader):
            return
        torn, self.torn = self.torn, set()
        if leader in torn:
            self.committed = self.committed[: len(self.logs[leader])]
        elif leader in before.isr or leader in before.elr:
            assert self.logs[leader][: len(self.committed)] == self.committed
        else:
            assert (before.last_known_elr, before.isr) == ((leader,), ())
            assert not before.elr or not self.least
            self.committed = self.committed[: len(self.logs[leader])]

    @property
    def leader(self) -> int | None:
        return self.partition.leader if self.partition.leader in self.state.brokers else None

    def someone(self) -> int | None:
        """Somebody alive who does not lead."""
        others = [each for each in self.live if each != self.partition.leader]
        return self.dice.choice(others) if others and self.leader is not None else None

    def write(self) -> None:
        if self.leader is not None:
            self.count += 1
            self.logs[self.leader].append(self.count)

    def acknowledge(self) -> None:
        """A write with acks=all: everybody in sync has it, and enough are."""
        partition = self.partition
        if self.leader is None or len(partition.isr) < self.minimum or partition.elr:
            return
        if not set(partition.isr) <= self.state.brokers.keys():
            return
        self.write()
        for member in partition.isr:
            self.copy(member)
        self.committed = self.logs[self.leader].copy()

    def copy(self, broker: int | None = None) -> None:
        broker = self.someone() if broker is None else broker
        if broker is None or self.leader in (None, broker):
            return
        log = self.logs[self.partition.leader]
        if self.logs[broker] != log[: len(self.logs[broker])]:
            self.forced[broker] = 0
        self.logs[broker] = log.copy()

    def join(self) -> None:
        broker, partition = self.someone(), self.partition
        if broker is not None and broker not in partition.isr:
            self.copy(broker)
            isr = tuple(each for each in REPLICAS if each in (*partition.isr, broker))
            self.put(in_sync_with(partition, partition.leader, isr, self.least))

    def lag(self) -> None:
        broker, partition = self.someone(), self.partition
        if broker in partition.isr:
            isr = tuple(each for each in partition.isr if each != broker)
            self.put(in_sync_with(partition, partition.leader, isr, self.least))

    def force(self) -> None:
        for broker in self.live:
            if self.dice.random() < 0.5:
                self.forced[broker] = len(self.logs[broker])

    def end(self) -> None:
        if not self.live:
            return
        broker = self.dice.choice(self.live)
        loss = self.dice.choice([Loss.NONE, Loss.TAIL, Loss.TAIL, Loss.ALL])
        if self.dice.random() < 0.3:
            live = self.state.brokers.keys()
            for change in handed_over(self.state, broker, live, lambda _: self.least):
                self.state.apply(change)
        if loss is Loss.ALL:
            self.forced[broker] = 0
        if loss:
            self.logs[broker] = self.logs[broker][: self.forced[broker]]
        self.away[broker] = loss
        self.state.apply(BrokerLeft(broker))
        # Perhaps that was the controller, and nobody decides anything for a while.
        if self.dice.random() < 0.7:
            self.settle()

    def come_back(self) -> None:
        if not self.away:
            return
        broker = self.dice.choice(sorted(self.away))
        held = Held(self.away.pop(broker))
        changes = departed(self.state, broker, lambda *_: held, None, lambda _: self.least)
        for change in changes:
            self.state.apply(change)
        if held.loss and self.partition.isr == (broker,):
            assert not self.least
            self.torn = {broker}
        self.state.apply(BrokerJoined(info(broker)))
        self.settle()


@pytest.mark.parametrize("is_upgrade", [False, True])
def test_who_is_elected_has_all_that_was_committed_whatever_happens(is_upgrade: bool) -> None:
    for seed in range(2000):
        replicas = Replicas(seed, is_upgrade=is_upgrade)
        for step in range(60):
            try:
                replicas.step()
            except AssertionError as problem:
                raise AssertionError(f"seed {seed}, step {step}: {replicas.partition}") from problem
