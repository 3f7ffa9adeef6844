"""Thousands of histories of joins, leaves, fences, crashes, topics that come and go, migrations."""

from __future__ import annotations

from random import Random

import hypothesis.strategies as st
from hypothesis import given

from moldau.broker.coordination.groups.consumer.group import ConsumerGroup
from moldau.broker.coordination.groups.consumer.machine import GroupStatus
from moldau.broker.coordination.groups.consumer.parts import MemberState
from tests.broker.coordination.groups.consumer.clients import (
    ClassicConsumer,
    Consumer,
    Place,
    settle,
    spread,
)
from tests.broker.coordination.groups.consumer.playing import SESSION_MS, Crash, Table, maybe

NAMES = ["a", "b", "c"]


class Play:
    """One history."""

    def __init__(self, random: Random, *, classic: bool) -> None:
        self.random = random
        self.table = Table(assignment_interval_ms=random.choice([0, 1_000]))
        self.with_classic = classic
        self.clients: list[Consumer | ClassicConsumer] = []
        self.number = 0
        for name in NAMES:
            self.table.topics.create(name, random.randint(1, 6))

    def step(self) -> None:
        random, table = self.random, self.table
        if maybe(random, 0.05):
            table.refuses_next = True
        if maybe(random, 0.05):
            table.crash_after = random.randint(0, 6)
        try:
            self._act()
        except Crash:
            table.reload()
            for client in self.clients:
                # Whoever waited for an answer asks the next coordinator.
                if isinstance(client, ClassicConsumer) and client.is_waiting:
                    client.is_waiting, client.must_join = False, True
        table.crash_after = -1
        self.check()

    def _act(self) -> None:
        random, table = self.random, self.table
        what = random.random()
        if what < 0.15 and len(self.clients) < 7:
            self._come()
        elif what < 0.22 and self.clients:
            gone = self.clients.pop(random.randrange(len(self.clients)))
            if maybe(random, 0.6):
                gone.leave()
            # Else it dies, and its session has to end.
        elif what < 0.26:
            name = random.choice(NAMES)
            if name in table.topics.found and maybe(random, 0.5):
                table.topics.delete(name)
            elif name in table.topics.found:
                table.topics.grow(name, random.randint(1, 3))
            else:
                table.topics.create(name, random.randint(1, 6))
        elif what < 0.30:
            table.turn(random.choice([500, 6_000, SESSION_MS // 2, SESSION_MS + 1]))
        elif what < 0.34 and self.clients:
            client = random.choice(self.clients)
            client.topics = spread(random, NAMES)
            if isinstance(client, ClassicConsumer):
                client.must_join = True
        elif self.clients:
            client = random.choice(self.clients)
            if isinstance(client, Consumer):
                if maybe(random, 0.6):
                    client.revoke()
                client.beat(loses=maybe(random, 0.1), says_all=maybe(random, 0.7))
            else:
                client.beat()
            table.turn(random.choice([0, 100, 1_000]))

    def _come(self) -> None:
        random = self.random
        self.number += 1
        if self.with_classic and maybe(random, 0.5):
            client: Consumer | ClassicConsumer = ClassicConsumer(self.table, spread(random, NAMES))
        else:
            used = {each.instance for each in self.clients if isinstance(each, Consumer)}
            instance = random.choice([None, None, "i1", "i2"])
            instance = None if instance in used else instance
            id = f"m{self.number}"
            client = Consumer(self.table, id, spread(random, NAMES), instance)
        self.clients.append(client)
        client.beat()

    def check(self) -> None:
        """Nobody else has, or is told to have, what somebody has."""
        group = self.table.group
        if not isinstance(group, ConsumerGroup):
            return
        state = group.state
        assert (group.machine.status is GroupStatus.STABLE) == (
            bool(group.members)
            and state.epoch.epoch <= state.target_epoch.epoch
            and all(
                state.current(id).state is MemberState.STABLE
                and state.current(id).epoch == state.target_epoch.epoch
                for id in group.members
            )
        )
        owners: dict[Place, str] = {}
        for id in group.members:
            current = group.state.current(id)
            for owned in (current.assigned, current.revoking):
                for topic, partitions in owned.items():
                    for partition in partitions:
                        assert (topic, partition) not in owners
                        owners[topic, partition] = id
        assert owners == {
            (topic, partition): id
            for topic, who in group.state.owners.items()
            for partition, id in who.items()
        }
        for client in self.clients:
            if isinstance(client, ClassicConsumer) and (client.must_join or client.is_waiting):
                # It has not heard yet what it has in its generation.
                continue
            current = group.state.current(client.id)
            if client.id in group.members and client.epoch == current.epoch > 0:
                for place in client.has:
                    if self.table.topics.name_of(place[0]) is not None:
                        assert owners.get(place) == client.id

    def end(self) -> None:
        """In the end everything has an owner, all agree on it, and nothing moves any more."""
        table = self.table
        table.refuses_next = False
        settle(table, self.clients, 90)
        group = table.group
        if not isinstance(group, ConsumerGroup):
            return
        assert group.state_name in ("Stable", "Empty"), group.state_name
        owned: dict[Place, str] = {}
        for client in self.clients:
            for place in client.has:
                assert place not in owned
                owned[place] = client.id
        wanted = {
            (view.id, partition)
            for name, view in table.topics.found.items()
            if any(name in client.topics for client in self.clients)
            for partition in range(view.partitions)
        }
        assert owned.keys() == wanted
        written = len(table.log)
        for client in self.clients:
            client.beat()
        assert len(table.log) == written


@given(st.integers(0, 1 << 32))
def test_no_partition_has_two_owners_and_all_have_one_in_the_end(seed: int) -> None:
    play = Play(Random(seed), classic=False)
    for _ in range(60):
        play.step()
    play.end()


@given(st.integers(0, 1 << 32))
def test_the_same_while_members_of_both_protocols_come_and_go(seed: int) -> None:
    play = Play(Random(seed), classic=True)
    for _ in range(60):
        play.step()
    play.end()
