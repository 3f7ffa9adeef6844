"""Several controllers over a real ensemble: who decides, and what becomes of those who die.

Sessions live for longer than the tests. So whatever is noticed here was noticed by connections.
"""

from __future__ import annotations

import asyncio
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import msgspec

from moldau.cluster.controller import Controller
from moldau.cluster.decisions.assignment import NewPartitions, NewTopic
from moldau.cluster.decisions.elections import Held, Loss, departed, led
from moldau.cluster.decisions.partitions import ElectionType, Move
from moldau.cluster.errors import ClusterError
from moldau.cluster.peers import peers_in
from moldau.cluster.state.changes import PartitionsChanged
from moldau.cluster.state.topics import BrokerInfo, PartitionState, Topic
from moldau.cluster.store import Conflict
from moldau.cluster.zookeeper import ZooKeeperStore
from moldau.log.config import LogConfig
from moldau.testing import Ensemble
from moldau.testing.waiting import until_async
from moldau.wire.errors import Error

WITHIN_S = 60.0
SESSION_MS = 300_000


@dataclass
class Settings:
    num_partitions: int = 1
    default_replication_factor: int = 1
    topic_defaults: LogConfig = field(default_factory=LogConfig)
    auto_leader_rebalance_enable: bool = True
    leader_imbalance_check_interval_seconds: int = 3600
    max_broker_partitions: int = 100_000


class Node:
    """All of a broker that a controller sees: its store, its controller, and who listens."""

    def __init__(self, connect: str, id: int) -> None:
        self.id = id
        self.store = ZooKeeperStore(connect, id, session_timeout_ms=SESSION_MS)
        self._writers: list[asyncio.StreamWriter] = []
        self.is_alive = False

    async def start(self) -> None:
        async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            self._writers.append(writer)

        self._server = await asyncio.start_server(accept, "127.0.0.1", 0)
        port = self._server.sockets[0].getsockname()[1]
        await self.store.open()
        self.state = self.store.state
        self.controller = Controller(self.store, Settings(), self.id, peers_in(self.store, self.id))
        changes = departed(self.state, self.id, lambda topic, index: Held(Loss.NONE))
        if changes:
            await self.store.commit(changes, as_controller=False)
        self.controller.start()
        await self.store.register(BrokerInfo(self.id, "127.0.0.1", port, folder_id=f"f{self.id}"))
        self.is_alive = True

    async def die(self) -> None:
        """Like kill -9: nobody listens and nothing is done, but the session goes on for a while."""
        self.is_alive = False
        await self.controller.stop()
        await self.store._stop_following()
        self._server.close()
        for writer in self._writers:
            writer.transport.abort()

    async def close(self) -> None:
        if self.is_alive:
            await self.die()
        await self.store.close()


class Cluster:
    def __init__(self, connect: str, count: int) -> None:
        self.nodes = [Node(connect, id) for id in range(count)]

    @property
    def living(self) -> list[Node]:
        return [node for node in self.nodes if node.is_alive]

    async def controller(self) -> Node:
        """Whom all who live take for the controller, and who lives."""

        def agreed() -> bool:
            ids = {node.state.controller_id for node in self.living}
            return len(ids) == 1 and ids <= {node.id for node in self.living}

        await until_async(agreed, "no controller")
        return self.nodes[self.living[0].state.controller_id]

    async def agree(self, condition: Callable[[Node], bool], what: str) -> None:
        await until_async(lambda: all(condition(node) for node in self.living), what)


@asynccontextmanager
async def cluster(ensemble: Ensemble, count: int = 3) -> AsyncIterator[Cluster]:
    made = Cluster(f"{ensemble.hosts}/failover-{uuid.uuid4().hex[:8]}", count)
    try:
        for node in made.nodes:
            await node.start()
        await made.agree(lambda node: len(node.state.brokers) == count, "not all are known")
        yield made
    finally:
        for node in made.nodes:
            await node.close()


async def create(node: Node, request: NewTopic) -> Topic:
    [topic] = await node.controller.create_topics([request])
    assert isinstance(topic, Topic), topic
    return topic


def test_only_one_decides_and_everybody_learns_of_it(ensemble: Ensemble) -> None:
    async def scenario() -> None:
        async with cluster(ensemble) as c:
            boss = await c.controller()
            topic = await create(boss, NewTopic("t", 6, 3))
            assert Counter(p.leader for p in topic.partitions) == {0: 2, 1: 2, 2: 2}
            await c.agree(lambda node: node.state.topics.get("t") == topic, "topic unknown")
            other = next(node for node in c.nodes if node is not boss)
            [refused] = await other.controller.create_topics([NewTopic("u")])
            assert isinstance(refused, ClusterError)
            assert refused.error is Error.NOT_CONTROLLER
            [grown] = await boss.controller.add_partitions([NewPartitions("t", 9)])
            assert isinstance(grown, Topic)
            assert Counter(p.leader for p in grown.partitions) == {0: 3, 1: 3, 2: 3}
            [_, unknown] = await boss.controller.delete_topics(["t", "u"])
            assert isinstance(unknown, ClusterError)
            await c.agree(lambda node: not node.state.topics, "topic still known")
            blocks = await asyncio.gather(*(n.controller.producer_ids.next() for n in c.nodes))
            assert len(set(blocks)) == 3

    asyncio.run(scenario())


def test_a_dead_broker_loses_its_leaderships_long_before_its_session(ensemble: Ensemble) -> None:
    async def scenario() -> None:
        async with cluster(ensemble) as c:
            boss = await c.controller()
            await create(boss, NewTopic("t", 6, 3))
            victim = next(node for node in c.nodes if node is not boss)
            await c.agree(lambda node: "t" in node.state.topics, "topic unknown")
            await victim.die()

            def is_over(node: Node) -> bool:
                return victim.id not in node.state.brokers and all(
                    p.leader != victim.id and victim.id not in p.isr
                    for p in node.state.topics["t"].partitions
                )

            await c.agree(is_over, "the dead broker still leads")
            for partition in boss.state.topics["t"].partitions:
                was_led = partition.replicas[0] == victim.id
                assert partition.leader_epoch == was_led
                assert len(partition.isr) == 2

    asyncio.run(scenario())


def test_when_the_controller_dies_another_takes_over(ensemble: Ensemble) -> None:
    async def scenario() -> None:
        async with cluster(ensemble) as c:
            first = await c.controller()
            await create(first, NewTopic("t", 3, 2))
            await c.agree(lambda node: "t" in node.state.topics, "topic unknown")
            await first.die()
            second = await c.controller()
            assert second is not first

            def is_led(node: Node) -> bool:
                partitions = node.state.topics["t"].partitions
                return all(p.leader not in (-1, first.id) for p in partitions)

            await c.agree(is_led, "partitions without a leader")
            await create(second, NewTopic("after", 1, 2))
            # Whatever the first still believes, it decides nothing.
            [late] = await first.controller.create_topics([NewTopic("late")])
            assert isinstance(late, ClusterError)
            assert late.error is Error.NOT_CONTROLLER
            assert "late" not in second.state.topics

    asyncio.run(scenario())


def test_a_stopping_broker_hands_over_without_asking_anybody(ensemble: Ensemble) -> None:
    async def scenario() -> None:
        async with cluster(ensemble) as c:
            boss = await c.controller()
            await create(boss, NewTopic("t", 6, 3))
            await c.agree(lambda node: "t" in node.state.topics, "topic unknown")
            leaving = next(node for node in c.nodes if node is not boss)
            async with asyncio.timeout(WITHIN_S):
                await leaving.controller.hand_over()
            for partition in leaving.state.topics["t"].partitions:
                assert leaving.id not in (partition.leader, *partition.isr)
            # And back again, once it has returned and caught up.
            info = leaving.state.brokers[leaving.id]
            await leaving.store.register(msgspec.structs.replace(info, stopping=False))
            whole = {
                index: led(p, p.leader, p.replicas)
                for index, p in enumerate(leaving.state.topics["t"].partitions)
            }
            changes = [PartitionsChanged("t", {i: p for i, p in whole.items() if p is not None})]
            await leaving.store.commit(changes, as_controller=False)

            def is_in_sync(node: Node) -> bool:
                partitions = node.state.topics["t"].partitions
                is_back = not node.state.brokers[leaving.id].stopping
                return is_back and all(
                    len(p.isr) == 3 and p.leader != leaving.id for p in partitions
                )

            await c.agree(is_in_sync, "not in sync")
            outcomes = await boss.controller.elect_leaders(ElectionType.PREFERRED, None)
            assert len(outcomes) == 2
            assert all(outcome is None for outcome in outcomes.values())

    asyncio.run(scenario())


def test_a_controller_that_is_about_to_stop_hands_over_to_another(
    ensemble: Ensemble,
) -> None:
    async def scenario() -> None:
        async with cluster(ensemble) as c:
            first = await c.controller()
            async with asyncio.timeout(WITHIN_S):
                await first.controller.hand_over()
            await until_async(lambda: first.state.controller_id not in (-1, first.id), "nobody")
            second = await c.controller()
            assert second is not first
            await create(second, NewTopic("t", 3, 3))

    asyncio.run(scenario())


def test_leaders_and_controller_change_the_same_topic_at_once_and_nothing_is_lost(
    ensemble: Ensemble,
) -> None:
    async def scenario() -> None:
        async with cluster(ensemble) as c:
            boss = await c.controller()
            await create(boss, NewTopic("t", 30, 2))
            await c.agree(lambda node: "t" in node.state.topics, "topic unknown")

            async def shrink(node: Node) -> None:
                """As a leader does whose followers are slow: all its partitions, one by one."""
                for index in range(30):
                    while (p := node.state.topics["t"].partitions[index]).leader == node.id:
                        after = led(p, p.leader, (node.id,))
                        if after is None:
                            break
                        changed = PartitionsChanged("t", {index: after})
                        try:
                            await node.store.commit([changed], as_controller=False)
                        except Conflict:
                            continue

            targets = {index: ((index + 1) % 3, index % 3) for index in range(30)}
            moves = [Move("t", index, target) for index, target in targets.items()]
            shrinking = [asyncio.create_task(shrink(node)) for node in c.nodes]
            outcomes = await boss.controller.reassign(moves)
            assert all(outcome is None for outcome in outcomes.values())
            await asyncio.gather(*shrinking)
            await asyncio.gather(*(shrink(node) for node in c.nodes))

            def agrees(node: Node) -> bool:
                return node.state.topics["t"] == boss.state.topics["t"]

            await c.agree(agrees, "the views differ")
            for index, partition in enumerate(boss.state.topics["t"].partitions):
                assert partition.leader in partition.isr
                assert partition.replicas[: len(targets[index])] == targets[index]

            # The followers catch up, as their leaders see it; then every move arrives.
            async def grow(node: Node) -> None:
                while changes := {
                    index: after
                    for index, p in enumerate(node.state.topics["t"].partitions)
                    if p.leader == node.id and (after := led(p, p.leader, p.replicas)) is not None
                }:
                    try:
                        await node.store.commit(
                            [PartitionsChanged("t", changes)], as_controller=False
                        )
                    except Conflict:
                        await asyncio.sleep(0)

            await asyncio.gather(*(grow(node) for node in c.nodes))
            await c.agree(lambda node: _arrived(node, targets), "moves that never arrive")

    asyncio.run(scenario())


def _arrived(node: Node, targets: Mapping[int, tuple[int, ...]]) -> bool:
    def arrived(index: int, partition: PartitionState) -> bool:
        return partition.replicas == targets[index] and not (partition.adding or partition.removing)

    return all(arrived(*each) for each in enumerate(node.state.topics["t"].partitions))
