"""The stage of a directed scenario: clients do one thing after the other, and what goes wrong does
so at exact moments.

Faults at random times meet an interleaving of several messages and processes once in thousands of
seeds, or never. A script leads to it directly, with real brokers and with all checks: it holds a
request or an answer back until what it is to be late for has happened.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from moldau.broker.partitions.partition import Partition
from moldau.cluster.state.topics import NO_LEADER
from moldau.log.log import Log
from moldau.wire.apis import Api
from tests.simulation.checks.commits import Commits
from tests.simulation.checks.decisions import Decisions
from tests.simulation.checks.history import History, Violation
from tests.simulation.checks.metadata import Metadata
from tests.simulation.checks.transactions import Ledger
from tests.simulation.core.world import PORT, Node, World
from tests.simulation.load.consumer import Consumer
from tests.simulation.load.copier import Copier
from tests.simulation.load.member import Member
from tests.simulation.load.producer import Idempotent, Producer
from tests.simulation.load.talker import BACKOFF_S, Failed, Leader, Talker
from tests.simulation.load.transactional import Transactional
from tests.simulation.network.transport import Transport
from tests.simulation.scenario.groups import Groups
from tests.simulation.scenario.scenario import TOPIC, TRANSACTIONAL

_LOOK_S = 0.02
_WITHIN_S = 40.0
# Longer than any run.
_FOR_GOOD_S = 1e6

Script = Callable[["Stage"], Coroutine[Any, Any, None]]


@dataclass(eq=False)
class Caught:
    """A message that is held back, once it has been sent."""

    transport: Transport | None = None

    @property
    def is_there(self) -> bool:
        return self.transport is not None

    def let_go(self, count: int | None = None) -> None:
        """Let it arrive, with all that came after it on its connection or so many messages."""
        assert self.transport is not None, "nothing was caught"
        self.transport.let_go(count)


@dataclass(eq=False)
class Aside:
    """Something that is done beside the script."""

    is_done: bool = False
    result: Any = None


@dataclass(eq=False)
class _Trap:
    api: Api
    source: Node | None
    target: Node | None
    when: Callable[[], bool]
    spring: Callable[[Transport], object]


class Stage(Talker):
    """The means of a script. Its clients run in its own process."""

    def __init__(
        self,
        world: World,
        history: History,
        metadata: Metadata,
        decisions: Decisions,
        ledger: Ledger,
        commits: Commits,
        groups: Groups,
    ) -> None:
        super().__init__(world, "director")
        self.history = history
        self.metadata = metadata
        self.decisions = decisions
        self.groups = groups
        self._ledger = ledger
        self._commits = commits
        self._traps: list[_Trap] = []
        self._held: list[Transport] = []
        self._on_sent = world.network.on_sent
        world.network.on_sent = self._sent
        self.is_done = False

    async def play(self, script: Script) -> None:
        await script(self)
        self._traps.clear()
        for transport in self._held:
            transport.let_go()
        self.history.count("script played to its end")
        self.is_done = True

    async def until(
        self, is_so: Callable[[], bool], what: str, within_s: float = _WITHIN_S
    ) -> None:
        until_s = self.loop.now_s + within_s
        while not is_so():
            if self.loop.now_s > until_s:
                raise Violation(f"after {within_s:g} s it is not so that {what}")
            await asyncio.sleep(_LOOK_S)

    def aside(self, work: Coroutine[Any, Any, Any], *ignored: type[Exception]) -> Aside:
        """Begin something; these errors of it are no matter."""
        aside = Aside()

        async def run() -> None:
            try:
                aside.result = await work
            except ignored:
                pass
            aside.is_done = True

        self.start(run())
        return aside

    # -- who is who

    def leader(self, partition: int = 0, topic: str = TOPIC) -> Node:
        return self.world.nodes[self.metadata.topics[topic].partitions[partition].leader]

    def believes_to_lead(self, node: Node, partition: int = 0, topic: str = TOPIC) -> bool:
        held = self.partition(node, partition, topic)
        return held is not None and held.is_leader

    def leads(self, node: Node, partition: int = 0, topic: str = TOPIC) -> bool:
        """Whether it leads, by what is agreed on, and knows it."""
        state = self.metadata.topics[topic].partitions[partition]
        held = self.partition(node, partition, topic)
        return (
            state.leader == node.id
            and held is not None
            and held.is_leader
            and held.leader_epoch == state.leader_epoch
        )

    async def succession(self, former: Node, partition: int = 0, topic: str = TOPIC) -> Node:
        """Wait until another one leads; return it."""

        def is_over() -> bool:
            id = self.metadata.topics[topic].partitions[partition].leader
            return id not in (former.id, NO_LEADER) and self.leads(
                self.world.nodes[id], partition, topic
            )

        await self.until(is_over, f"another one than {former.name} leads {topic}-{partition}")
        return self.leader(partition, topic)

    def is_in_sync(self, node: Node, partition: int = 0, topic: str = TOPIC) -> bool:
        return node.id in self.metadata.topics[topic].partitions[partition].isr

    def address(self, node: Node, partition: int = 0, topic: str = TOPIC) -> Leader:
        """A broker in the present epoch of a partition, as a client knows its leader."""
        found = self.metadata.topics[topic]
        epoch = found.partitions[partition].leader_epoch
        return Leader(node.id, epoch, found.id, len(found.partitions))

    def partition(self, node: Node, partition: int = 0, topic: str = TOPIC) -> Partition | None:
        return None if node.broker is None else node.broker.partitions.get((topic, partition))

    def log(self, node: Node, partition: int = 0, topic: str = TOPIC) -> Log:
        held = self.partition(node, partition, topic)
        assert held is not None, f"{node.name} does not have {topic}-{partition}"
        return held.log

    def controller(self) -> Node:
        return next(
            node
            for node in self.world.nodes.values()
            if node.broker is not None and node.broker.state.controller_id == node.id
        )

    def led_elsewhere(self, node: Node, topic: str = TRANSACTIONAL) -> tuple[int, Node]:
        """A partition that another broker leads, and that one."""
        for partition in range(len(self.metadata.topics[topic].partitions)):
            leader = self.leader(partition, topic)
            if leader is not node:
                return partition, leader
        raise AssertionError(f"{node.name} leads all of {topic}")

    def replicas(self, partition: int = 0, topic: str = TOPIC) -> list[Node]:
        state = self.metadata.topics[topic].partitions[partition]
        return [self.world.nodes[id] for id in state.replicas]

    # -- clients

    def transactional(self, name: str, dialect: int, id: str = "directed") -> Transactional:
        parts = (self.world, self.history, self._ledger, name, id)
        return Transactional(*parts, TRANSACTIONAL, dialect, 1.0)

    def copier(self, name: str, dialect: int) -> Copier:
        parts = (self.world, self.history, self._ledger, name, "copier")
        return Copier(*parts, TOPIC, TRANSACTIONAL, dialect, 1.0)

    def producer(self, name: str, acks: int, partition: int = 0, topic: str = TOPIC) -> Producer:
        return Producer(self.world, self.history, name, topic, partition, acks, 1.0)

    def idempotent(self, name: str, acks: int) -> Idempotent:
        return Idempotent(self.world, self.history, name, TOPIC, 0, acks, 1.0)

    def consumer(self, name: str, partition: int = 0) -> Consumer:
        return Consumer(self.world, self.history, name, TOPIC, partition, 1.0)

    def member(self, name: str) -> Member:
        partitions = len(self.metadata.topics[TOPIC].partitions)
        member = Member(self.world, self.history, self._commits, name, TOPIC, partitions, 1.0)
        member.patience_s = 1.0
        return member

    async def read_to(self, consumer: Consumer, end: int, leader: Node) -> None:
        """Read from a broker until everything before that has been read."""
        consumer.follow(self.address(leader))
        while consumer.position < end:
            await consumer.read_some()

    async def elect(self, partition: int = 0, topic: str = TOPIC) -> None:
        """Have the first replica lead, which must be in sync."""
        node = self.replicas(partition, topic)[0]
        wanted = [{"topic": topic, "partitions": [partition]}]
        while self.leader(partition, topic) is not node:
            try:
                await self.ask(
                    self.controller().id,
                    Api.ELECT_LEADERS,
                    election_type=0,
                    topic_partitions=wanted,
                    timeout=5000,
                )
            except Failed:
                await self.pause(BACKOFF_S)

    async def configure(self, name: str, value: str, topic: str = TOPIC) -> None:
        """Give a setting of a topic another value, and wait until every replica goes by it."""
        config = {"name": name, "config_operation": 0, "value": value}
        resource = {"resource_type": 2, "resource_name": topic, "configs": [config]}
        brokers = [node.broker for node in self.world.nodes.values() if node.broker is not None]
        while not all(broker.state.topics[topic].configs.get(name) == value for broker in brokers):
            with suppress(Failed):
                await self.ask(
                    self.controller().id,
                    Api.INCREMENTAL_ALTER_CONFIGS,
                    resources=[resource],
                    validate_only=False,
                )
            await self.pause(BACKOFF_S)

    # -- processes

    def freeze(self, node: Node) -> None:
        assert node.process is not None
        self.world.tell("FAULT", f"{node.name} is frozen")
        node.process.frozen_until = self.loop.now_s + _FOR_GOOD_S

    def is_frozen(self, node: Node) -> bool:
        return node.process is not None and node.process.frozen_until > self.loop.now_s

    def thaw(self, node: Node) -> None:
        assert node.process is not None
        self.world.tell("FAULT", f"{node.name} goes on")
        node.process.frozen_until = 0.0
        self.loop.wake(node.process)

    def kill(self, node: Node) -> None:
        self.world.tell("FAULT", f"{node.name} is killed")
        self.loop.soon_in(self.loop.outside, node.end)

    async def restart(self, node: Node) -> None:
        """Stop it cleanly, and start it again; it leads nothing then, and is in sync."""
        process = node.process
        assert process is not None
        self.world.spawn(process, node.stop())
        await self.until(lambda: node.process is not process, f"{node.name} has stopped")
        node.start()
        await self.until(lambda: node.is_serving, f"{node.name} serves")
        await self.until(self.metadata.is_whole, "every replica is in sync")

    def part(self, one: Node, other: Node) -> None:
        """Let nothing through between two brokers."""
        self.world.tell("FAULT", f"{one.name} and {other.name} part")
        self.world.network.cut(one.machine, other.machine)
        self.world.network.cut(other.machine, one.machine)

    def cut(self, source: Node, target: Node) -> None:
        """Let nothing through in one direction."""
        self.world.tell("FAULT", f"nothing gets from {source.name} to {target.name}")
        self.world.network.cut(source.machine, target.machine)

    def mend(self, source: Node, target: Node) -> None:
        self.world.network.mend(source.machine, target.machine)

    # -- messages

    def hold_request(
        self,
        api: Api,
        *,
        source: Node | None = None,
        target: Node | None = None,
        when: Callable[[], bool] = lambda: True,
        then: Callable[[], object] = lambda: None,
    ) -> Caught:
        """Keep the next request of a kind on its way, and what its connection sends after it;
        `then` is done when it is sent."""
        caught = Caught()

        def spring(transport: Transport) -> None:
            self._hold(caught, transport)
            then()

        self._traps.append(_Trap(api, source, target, when, spring))
        return caught

    def at_request(
        self, api: Api, do: Callable[[], object], *, source: Node, when: Callable[[], bool]
    ) -> None:
        """Do something when the next request of a kind is sent."""
        self._traps.append(_Trap(api, source, None, when, lambda transport: do()))

    def hold_answer(
        self,
        api: Api,
        *,
        source: Node | None = None,
        target: Node | None = None,
        when: Callable[[], bool] = lambda: True,
    ) -> Caught:
        """Keep the answer to the next request of a kind on its way."""
        caught = Caught()

        def spring(transport: Transport) -> None:
            self._hold(caught, transport.other)

        self._traps.append(_Trap(api, source, target, when, spring))
        return caught

    def mislay_request(
        self, api: Api, *, source: Node | None = None, target: Node | None = None
    ) -> Caught:
        """Keep the next request of a kind on its way; who sent it loses the connection at once, and
        sends it again over another."""
        caught = Caught()

        def spring(transport: Transport) -> None:
            self._hold(caught, transport)
            self.loop.soon_in(transport.process, transport.reset)

        self._traps.append(_Trap(api, source, target, lambda: True, spring))
        return caught

    def _hold(self, caught: Caught, transport: Transport) -> None:
        self.world.tell("FAULT", f"from {transport.near.name} to {transport.far.name}: held back")
        transport.hold()
        caught.transport = transport
        self._held.append(transport)

    def _sent(self, transport: Transport, data: bytes) -> None:
        if self._on_sent is not None:
            self._on_sent(transport, data)
        if self._traps and transport.get_extra_info("peername")[1] == PORT:
            api = int.from_bytes(data[4:6], "big")
            for trap in self._traps:
                if (
                    trap.api == api
                    and (trap.source is None or trap.source.machine is transport.near)
                    and (trap.target is None or trap.target.machine is transport.far)
                    and trap.when()
                ):
                    self._traps.remove(trap)
                    trap.spring(transport)
                    return
