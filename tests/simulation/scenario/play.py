"""Playing a scenario: a cluster, its clients and its faults, from the start to the last check."""

from __future__ import annotations

import hashlib
import struct
import time
import traceback
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from moldau.broker.coordination.transactions import machine
from moldau.log.producers import states
from tests.simulation.checks.commits import Commits
from tests.simulation.checks.history import History, Place, Violation
from tests.simulation.checks.metadata import Metadata
from tests.simulation.checks.replication import Monitor
from tests.simulation.checks.transactions import Ledger
from tests.simulation.core.world import SETTINGS, World
from tests.simulation.directed.scripts import SCRIPTS
from tests.simulation.directed.stage import Stage
from tests.simulation.load.admin import Admin
from tests.simulation.load.committed_reader import CommittedReader
from tests.simulation.load.consumer import Consumer
from tests.simulation.load.copier import Copier
from tests.simulation.load.keyed import Keyed, KeyedReader
from tests.simulation.load.member import Member, Observer
from tests.simulation.load.producer import Idempotent, Producer
from tests.simulation.load.share_member import GROUP
from tests.simulation.load.transactional import PARTITIONS, Transactional
from tests.simulation.load.upgrader import Upgrader
from tests.simulation.network.transport import Transport
from tests.simulation.report.messages import Messages
from tests.simulation.scenario.faults import Faults
from tests.simulation.scenario.groups import (
    DEAD_LETTERS,
    SHARED_PARTITIONS,
    SHARING,
    SUBSCRIBED_PARTITIONS,
    Groups,
)
from tests.simulation.scenario.outcome import Outcome
from tests.simulation.scenario.scenario import (
    COMPACTED,
    SHARED,
    SUBSCRIBED,
    TOPIC,
    TRANSACTIONAL,
    Load,
    Scenario,
)

OTHER = "r"
# The settings of the topic that is compacted.
_COMPACTED = {
    "cleanup.policy": "compact",
    "segment.bytes": "1200",
    "min.cleanable.dirty.ratio": "0.1",
    "delete.retention.ms": "3000",
}
# How long a healthy cluster may take for anything, and one in which no more happens than a script.
_PATIENCE_S = 90.0
_SCRIPT_S = 45.0
_TIME = struct.Struct("<d")


class Play:
    """One run of one scenario."""

    def __init__(self, scenario: Scenario, *, messages: bool = False) -> None:
        self._scenario = scenario
        self.world = World(str(scenario.seed), {**SETTINGS, **scenario.settings})
        self._history = History(lambda: self.world.loop.now_s)
        self._metadata = Metadata(self.world)
        self._monitor = Monitor(self.world, self._metadata)
        self._faults = Faults(self.world, self._metadata)
        self._commits = Commits()
        self._ledger = Ledger(lambda: self.world.loop.now_s, self._metadata.coordinates)
        self._groups = Groups(self.world, self._history, self._metadata)
        self._producers: list[Producer | Transactional] = []
        self._readers: list[Consumer | Member] = []
        self._keyed_readers: list[KeyedReader] = []
        self._admins: list[Admin | Upgrader] = []
        self._digest = hashlib.blake2b(digest_size=16)
        self.world.network.on_sent = self._note_sent
        self._messages = Messages(self.world) if messages else None

    def _note_sent(self, transport: Transport, data: bytes) -> None:
        self._digest.update(_TIME.pack(self.world.loop.now_s) + transport.link + data)
        if self._messages is not None:
            self._messages.sent(transport, data)

    def run(self) -> Outcome:
        outcome = Outcome(self._scenario)
        world = self.world
        began, began_cpu = time.perf_counter(), time.process_time()
        with (
            world.installed(),
            self._monitor.watching(),
            _epochs_up_to(self._scenario.last_epoch),
        ):
            world.after_step = self._monitor.after_step
            try:
                self._play()
            except Violation as violation:
                outcome.failure = str(violation)
                world.tell("simulator", f"VIOLATION: {violation}")
            except Exception as problem:
                where = "".join(traceback.format_tb(problem.__traceback__)[-3:])
                outcome.failure = f"{problem!r}\n{where}"
            self._monitor.discard()
        outcome.took_s = time.perf_counter() - began
        outcome.cpu_s = time.process_time() - began_cpu
        outcome.simulated_s = world.loop.now_s
        outcome.steps = world.loop.steps
        outcome.checks = self._monitor.checks
        outcome.story = world.story
        for line in world.story:
            self._digest.update(repr(line).encode())
        outcome.digest = self._digest.hexdigest()
        outcome.counts = self._history.counts
        outcome.faults = self._faults.counts
        return outcome

    def _play(self) -> None:
        world, scenario = self.world, self._scenario
        for node in world.nodes.values():
            node.start()
        self._wait(lambda: all(node.is_serving for node in world.nodes.values()), "brokers serve")
        maker = Admin(world, self._history, "maker", 1.0)
        maker.start(maker.create(TOPIC, scenario.partitions, self._configs))
        self._wait(lambda: TOPIC in self._metadata.topics, "the topic is made")
        for topic, partitions, more in (
            (TRANSACTIONAL, PARTITIONS, {}),
            (COMPACTED, 1, _COMPACTED),
            (SUBSCRIBED, SUBSCRIBED_PARTITIONS, {}),
            (SHARED, SHARED_PARTITIONS, {}),
        ):
            if self._uses(topic):
                self._make(maker, topic, partitions, more)
        if self._uses(OTHER) and not any(load.kind == "recreate" for load in scenario.loads):
            # Whoever would make it was left away.
            self._make(maker, OTHER, 1, {})
        if self._uses(SHARED):
            self._make(maker, DEAD_LETTERS, 1, {})
            maker.is_done = False
            maker.start(maker.configure_group(GROUP, SHARING))
            self._wait(lambda: maker.is_done, "the share group is configured")
        for load in scenario.loads:
            self._begin(load)
        self._faults.schedule(scenario.faults)
        if scenario.script:
            self._direct(scenario.script)
        else:
            world.run(scenario.lasts_s)
        self._check()
        self._faults.heal()
        self._end()

    def _direct(self, name: str) -> None:
        stage = Stage(
            self.world, self._history, self._metadata, self._monitor.decisions, self._ledger,
            self._commits, self._groups,
        )  # fmt: skip
        stage.start(stage.play(SCRIPTS[name].script))
        self._wait(lambda: stage.is_done, f"{name} is over", _PATIENCE_S)

    def _make(self, maker: Admin, topic: str, partitions: int, more: dict[str, str]) -> None:
        maker.start(maker.create(topic, partitions, {**self._configs, **more}))
        self._wait(partial(self._metadata.topics.__contains__, topic), f"{topic} is made")

    def _uses(self, topic: str) -> bool:
        scenario = self._scenario
        return topic in scenario.topics or any(load.topic == topic for load in scenario.loads)

    @property
    def _configs(self) -> dict[str, str]:
        """The settings of topics."""
        configs = {"min.insync.replicas": str(self._scenario.min_isr)}
        if self._scenario.flushes:
            configs["flush.messages"] = "1"
        return configs

    def _begin(self, load: Load) -> None:
        world, history = self.world, self._history
        if load.kind in ("plain", "idempotent"):
            kind = Idempotent if load.kind == "idempotent" else Producer
            producer = kind(
                world, history, load.name, load.topic, load.partition, load.acks, load.every_s
            )
            producer.start(producer.run())
            self._producers.append(producer)
        elif load.kind == "upgrade":
            upgrader = Upgrader(world, load.name, load.every_s, self._metadata.is_whole)
            upgrader.start(upgrader.run())
            self._admins.append(upgrader)
        elif load.kind == "keyed":
            keyed = Keyed(
                world, history, load.name, load.topic, load.partition, load.acks, load.every_s
            )
            keyed.start(keyed.run())
            self._producers.append(keyed)
        elif load.kind == "keyed reader":
            for writer in [each for each in self._producers if isinstance(each, Keyed)]:
                through = KeyedReader(world, history, load.name, writer, load.topic, load.every_s)
                through.start(through.run())
                self._readers.append(through)
                self._keyed_readers.append(through)
        elif load.kind in ("transactional", "copier"):
            self._begin_transactional(load)
        elif load.kind in ("subscriber", "sharer"):
            self._groups.begin(load)
        elif load.kind == "committed":
            committed = CommittedReader(
                world, history, self._ledger, load.name, load.topic, load.partition, load.every_s
            )
            committed.start(committed.run())
            self._readers.append(committed)
        elif load.kind == "consumer":
            consumer = Consumer(world, history, load.name, load.topic, load.partition, load.every_s)
            consumer.start(consumer.run())
            self._readers.append(consumer)
        elif load.kind in ("member", "observer"):
            kind_of_member = Member if load.kind == "member" else Observer
            member = kind_of_member(
                world, history, self._commits, load.name, TOPIC, self._scenario.partitions,
                load.every_s,
            )  # fmt: skip
            member.start(member.run())
            self._readers.append(member)
        else:
            admin = Admin(world, history, load.name, load.every_s)
            partitions = self._scenario.partitions
            work: dict[str, Callable[[], Coroutine[Any, Any, None]]] = {
                "recreate": lambda: admin.recreate(OTHER, self._configs),
                "reassign": lambda: admin.reassign(TOPIC, partitions),
                "elect": lambda: admin.elect(load.topic, partitions),
                "configure": lambda: admin.configure(TOPIC),
            }
            admin.start(work[load.kind]())
            self._admins.append(admin)

    def _begin_transactional(self, load: Load) -> None:
        parts = (self.world, self._history, self._ledger, load.name, load.id)
        producer: Transactional
        if load.kind == "copier":
            producer = Copier(*parts, TOPIC, load.topic, load.dialect, load.every_s)
        else:
            producer = Transactional(*parts, load.topic, load.dialect, load.every_s)
        producer.start(producer.run())
        self._producers.append(producer)

    def _end(self) -> None:
        """Once nothing is wrong any more, everything must come right."""
        world = self.world
        self._wait(lambda: all(node.is_serving for node in world.nodes.values()), "brokers serve")
        for admin in self._admins:
            admin.is_stopping = True
        self._wait(lambda: all(admin.is_done for admin in self._admins), "administrators get done")
        self._wait(self._metadata.is_whole, "every replica is in sync")
        for producer in self._producers:
            producer.is_stopping = True
        self._wait(
            lambda: all(producer.is_done for producer in self._producers), "producers get done"
        )
        for reader in self._readers:
            reader.is_stopping = True
        logs = self._read_all()
        self._history.check_end(logs)
        self._groups.end(self._wait, self._has_all, partial(self._ends, SHARED))
        if self._uses(TRANSACTIONAL):
            self._end_transactions()
        for reader in self._keyed_readers:
            self._read_through(reader)

    def _read_through(self, reader: KeyedReader) -> None:
        """Whoever reads the compacted topic from its beginning finds the last value of each key."""
        reader.is_stopping, rounds = False, reader.rounds
        reader.start(reader.read_through())
        self._wait(lambda: reader.rounds > rounds, "the compacted topic can be read")

    def _end_transactions(self) -> None:
        """No transaction is left open, and those who read what is committed see all of it."""
        decisions = self._monitor.decisions
        self._wait(lambda: decisions.are_carried_out, "all transactions are done")
        readers = [
            CommittedReader(
                self.world, self._history, self._ledger, f"last committed reader of {number}",
                TRANSACTIONAL, number, 0.1,
            )
            for number in range(PARTITIONS)
        ]  # fmt: skip
        for reader in readers:
            reader.start(reader.run())
        self._wait(
            lambda: all(self._has_all(reader) for reader in readers),
            "everything is committed or aborted, and can be read",
        )
        visible: dict[Place, dict[int, bytes]] = {}
        for reader in readers:
            reader.is_stopping = True
            assert reader.leader is not None
            visible[reader.leader.topic_id, reader._partition] = reader.seen
        self._ledger.check_end(visible)
        copiers = [each for each in self._producers if isinstance(each, Copier)]
        if copiers:
            copiers[0].start(copiers[0].note_committed())
            self._wait(lambda: copiers[0].committed is not None, "offsets are committed or not")
            self._ledger.check_copies(visible, copiers[0].committed or 0)

    def _ends(self, name: str) -> dict[int, int]:
        """Where the partitions of a topic end, by what is committed."""
        topic_id = self._metadata.topics[name].id
        return {
            index: found.end for (id, index), found in self._monitor.committed.items()
            if id == topic_id
        }  # fmt: skip

    def _read_all(self) -> dict[Place, dict[int, bytes]]:
        readers: list[Consumer] = []
        for topic in self._metadata.topics.values():
            if not topic.is_internal and topic.name not in (COMPACTED, DEAD_LETTERS):
                for index in range(len(topic.partitions)):
                    name = f"last reader of {topic.name}-{index}"
                    readers.append(
                        Consumer(self.world, self._history, name, topic.name, index, 0.1)
                    )
        for reader in readers:
            reader.start(reader.run())
        self._wait(
            lambda: all(self._has_all(reader) for reader in readers),
            "everything can be read",
        )
        logs: dict[Place, dict[int, bytes]] = {
            (topic.id, index): {}
            for topic in self._metadata.topics.values()
            if not topic.is_internal and topic.name not in (COMPACTED, DEAD_LETTERS)
            for index in range(len(topic.partitions))
        }
        for (place, offset), (value, _) in self._history.known.items():
            if place in logs:
                logs[place][offset] = value
        ends = {
            (reader.leader.topic_id, reader._partition): reader.position
            for reader in readers
            if reader.leader is not None
        }
        for place, log in logs.items():
            if place in ends:
                for offset in [each for each in log if each >= ends[place]]:
                    del log[offset]
        return logs

    def _has_all(self, reader: Consumer) -> bool:
        """A new leader may not know yet how much was committed under the one before."""
        if reader.leader is None or not 0 <= reader.end <= reader.position:
            return False
        committed = self._monitor.committed.get((reader.leader.topic_id, reader._partition))
        return committed is None or reader.position >= committed.end

    def _wait(self, is_done: Callable[[], bool], what: str, patience_s: float = 0.0) -> None:
        world = self.world
        patience_s = patience_s or (_SCRIPT_S if self._scenario.script else _PATIENCE_S)
        world.run(world.loop.now_s + patience_s, is_done)
        self._check()
        if not is_done():
            raise Violation(
                f"after {patience_s:g} s without faults it is not so that {what}; "
                f"the topics are {self._metadata}"
            )

    def _check(self) -> None:
        world = self.world
        if world.failure is not None:
            raise world.failure
        if world.loop.problems:
            raise Violation(world.loop.problems[0])
        if world.tracebacks:
            raise Violation(f"a broker logged an error with a stack: {world.tracebacks[0]}")


@contextmanager
def _epochs_up_to(last: int) -> Iterator[None]:
    """Let producers run out of epochs after a few."""
    was = machine.HIGHEST_EPOCH, machine.LAST_CLIENT_EPOCH, states.MAX_EPOCH
    if last:
        machine.LAST_CLIENT_EPOCH = last
        machine.HIGHEST_EPOCH = states.MAX_EPOCH = last + 1
    try:
        yield
    finally:
        machine.HIGHEST_EPOCH, machine.LAST_CLIENT_EPOCH, states.MAX_EPOCH = was


def play(scenario: Scenario, *, messages: bool = False) -> Outcome:
    """Run a scenario; with `messages` its story tells of each one."""
    return Play(scenario, messages=messages).run()
