"""The controller's standing duties, over the store of a broker alone with made-up other brokers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from uuid import UUID

import msgspec
import pytest

from moldau.cluster.controller import Controller
from moldau.cluster.decisions.partitions import ElectionType, Move
from moldau.cluster.embedded import EmbeddedStore
from moldau.cluster.errors import ClusterError
from moldau.cluster.peers import peers_in
from moldau.cluster.state.changes import (
    AnyChange,
    BrokerJoined,
    BrokerLeft,
    ControllerElected,
    PartitionsChanged,
    TopicConfigured,
    TopicCreated,
)
from moldau.cluster.state.topics import NO_LEADER, BrokerInfo, PartitionState, Topic
from moldau.cluster.store import Conflict, NotController
from moldau.log.config import LogConfig
from moldau.testing.waiting import until_async
from moldau.wire.errors import Error

WITHIN_S = 60.0


@dataclass
class Settings:
    num_partitions: int = 1
    default_replication_factor: int = 1
    topic_defaults: LogConfig = field(default_factory=LogConfig)
    auto_leader_rebalance_enable: bool = True
    leader_imbalance_check_interval_seconds: float = 3600


class Cluster:
    """Broker 0 is real and the controller; the others only exist in the state."""

    def __init__(self, folder: Path, settings: Settings) -> None:
        self.store = EmbeddedStore(folder, BrokerInfo(0, "127.0.0.1", 1))
        self.settings = settings
        self.sockets: dict[int, asyncio.Server] = {}

    async def open(self, others: Sequence[int]) -> None:
        await self.store.open()
        self.state = self.store.state
        for broker in others:
            await self.join(broker)
        self.controller = Controller(
            self.store,
            self.settings,  # type: ignore[arg-type]
            0,
            peers_in(self.store, 0),
        )
        self.controller.start()

    async def close(self) -> None:
        await self.controller.stop()
        for server in self.sockets.values():
            server.close()
        await self.store.close()

    async def join(self, broker: int) -> None:
        server = await asyncio.start_server(lambda reader, writer: None, "127.0.0.1", 0)
        self.sockets[broker] = server
        port = server.sockets[0].getsockname()[1]
        self.publish(BrokerJoined(BrokerInfo(broker, "127.0.0.1", port)))

    def leave(self, broker: int) -> None:
        self.publish(BrokerLeft(broker))

    def publish(self, *changes: AnyChange) -> None:
        self.store._publish(changes)

    def create(self, *partitions: PartitionState, **configs: str) -> None:
        configs = {key.replace("_", "."): value for key, value in configs.items()}
        self.publish(TopicCreated(Topic("t", UUID(int=7), partitions, configs)))

    def partition(self, index: int = 0) -> PartitionState:
        return self.state.topics["t"].partitions[index]

    async def leads(self, broker: int, index: int = 0) -> PartitionState:
        await until_async(lambda: self.partition(index).leader == broker)
        return self.partition(index)


@asynccontextmanager
async def cluster(
    folder: Path, *others: int, settings: Settings | None = None
) -> AsyncIterator[Cluster]:
    made = Cluster(folder, settings or Settings())
    await made.open(others)
    try:
        yield made
    finally:
        await made.close()


def test_when_a_leader_goes_an_in_sync_replica_takes_over(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with cluster(tmp_path, 1, 2) as c:
            c.create(PartitionState((1, 2, 0), (1, 2), 1), PartitionState((2, 1), (2, 1), 2))
            c.leave(1)
            assert await c.leads(2) == PartitionState((1, 2, 0), (2,), 2, 1)
            await until_async(lambda: c.partition(1).isr == (2,))
            assert c.partition(1) == PartitionState((2, 1), (2,), 2, 0)

    asyncio.run(scenario())


def test_without_a_living_in_sync_replica_a_partition_waits_for_one(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with cluster(tmp_path, 1, 2) as c:
            c.create(PartitionState((1, 2), (1,), 1))
            c.leave(1)
            assert (await c.leads(NO_LEADER)).isr == (1,)
            await c.join(1)
            assert await c.leads(1) == PartitionState((1, 2), (1,), 1, 2)

    asyncio.run(scenario())


def test_an_unclean_leader_is_elected_once_that_is_allowed(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with cluster(tmp_path, 1, 2) as c:
            c.create(PartitionState((1, 2), (1,), 1))
            c.leave(1)
            await c.leads(NO_LEADER)
            c.publish(TopicConfigured("t", {"unclean.leader.election.enable": "true"}))
            assert await c.leads(2) == PartitionState((1, 2), (2,), 2, 2)

    asyncio.run(scenario())


def test_a_new_controller_begins_by_looking_through_everything(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with cluster(tmp_path, 1) as c:
            c.publish(ControllerElected(1))
            c.create(PartitionState((2, 1), (2, 1), 2))
            await asyncio.sleep(0)
            assert c.partition().leader == 2
            c.publish(ControllerElected(0))
            await c.leads(1)

    asyncio.run(scenario())


def test_a_partition_that_its_leader_gave_up_is_led_again(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with cluster(tmp_path, 1, 2) as c:
            c.create(PartitionState((1, 2), (1, 2), 1))
            given_up = PartitionState((1, 2), (2,), NO_LEADER, 1)
            await c.store.commit([PartitionsChanged("t", {0: given_up})], as_controller=False)
            await c.leads(2)

    asyncio.run(scenario())


def test_a_dead_broker_is_struck_off_though_its_session_lives(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with cluster(tmp_path, 1, 2) as c:
            c.create(PartitionState((1, 2), (1, 2), 1))
            c.sockets[1].close()
            # The held connection is closed with the process in life; here a new watch notices.
            info = c.state.brokers[1]
            c.publish(BrokerJoined(BrokerInfo(1, info.host, info.port, epoch=5)))
            await c.leads(2)
            assert 1 not in c.state.brokers

    asyncio.run(scenario())


def test_leadership_goes_back_by_itself_and_only_if_wanted(tmp_path: Path) -> None:
    async def scenario() -> None:
        settings = Settings(
            auto_leader_rebalance_enable=False, leader_imbalance_check_interval_seconds=0.01
        )
        async with cluster(tmp_path, 1, 2, settings=settings) as c:
            c.create(PartitionState((1, 2), (2, 1), 2), PartitionState((1, 2), (2,), 2))
            await asyncio.sleep(0.05)
            assert c.partition().leader == 2
            settings.auto_leader_rebalance_enable = True
            assert await c.leads(1) == PartitionState((1, 2), (2, 1), 1, 1)
            assert c.partition(1).leader == 2

    asyncio.run(scenario())


def test_leaders_are_elected_by_hand(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with cluster(tmp_path, 1, 2) as c:
            c.create(
                PartitionState((1, 2), (2, 1), 2),
                PartitionState((2, 1), (2, 1), 2),
                PartitionState((3, 2), (2,), 2),
                PartitionState((3, 2), (3,), NO_LEADER, 4),
                PartitionState((3,), (3,), NO_LEADER),
            )
            every = [("t", index) for index in range(6)] + [("u", 0)]
            outcomes = await c.controller.elect_leaders(ElectionType.PREFERRED, every)
            codes = [None if o is None else o.error for o in outcomes.values()]
            assert codes == [
                None,
                Error.ELECTION_NOT_NEEDED,
                Error.PREFERRED_LEADER_NOT_AVAILABLE,
                Error.PREFERRED_LEADER_NOT_AVAILABLE,
                Error.PREFERRED_LEADER_NOT_AVAILABLE,
                Error.UNKNOWN_TOPIC_OR_PARTITION,
                Error.UNKNOWN_TOPIC_OR_PARTITION,
            ]
            assert c.partition().leader == 1
            outcomes = await c.controller.elect_leaders(ElectionType.UNCLEAN, None)
            assert outcomes.keys() == {("t", 3), ("t", 4)}
            assert outcomes["t", 3] is None
            assert c.partition(3) == PartitionState((3, 2), (2,), 2, 5)
            refused = outcomes["t", 4]
            assert refused is not None
            assert refused.error is Error.ELIGIBLE_LEADERS_NOT_AVAILABLE

    asyncio.run(scenario())


def test_a_partition_moves_and_arrives_when_its_new_replicas_are_in_sync(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with cluster(tmp_path, 1, 2) as c:
            c.create(PartitionState((0, 1), (0, 1), 0, 3))
            assert await c.controller.reassign([Move("t", 0, (2, 1))]) == {("t", 0): None}
            moving = PartitionState((2, 1, 0), (0, 1), 0, 3, (2,), (0,))
            assert c.controller.reassignments(None) == {"t": {0: moving}}
            assert c.controller.reassignments({"t": [0, 9], "u": [0]}) == {"t": {0: moving}}
            caught_up = PartitionState((2, 1, 0), (0, 1, 2), 0, 3, (2,), (0,))
            await c.store.commit([PartitionsChanged("t", {0: caught_up})], as_controller=False)
            assert await c.leads(2) == PartitionState((2, 1), (1, 2), 2, 4)
            assert c.controller.reassignments(None) == {}

    asyncio.run(scenario())


def test_a_move_can_be_taken_back_once(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with cluster(tmp_path, 1, 2) as c:
            c.create(PartitionState((0, 1), (0, 1), 0, 3))
            await c.controller.reassign([Move("t", 0, (2,))])
            assert await c.controller.reassign([Move("t", 0, None)]) == {("t", 0): None}
            assert c.partition() == PartitionState((0, 1), (0, 1), 0, 4)
            refused = (await c.controller.reassign([Move("t", 0, None)]))["t", 0]
            assert refused is not None
            assert refused.error is Error.NO_REASSIGNMENT_IN_PROGRESS

    asyncio.run(scenario())


def test_a_stopping_broker_waits_for_an_heir_to_catch_up(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with cluster(tmp_path, 1, 2) as c:
            c.create(
                PartitionState((0, 1), (0, 1), 0),
                PartitionState((0, 2), (0,), 0),
                PartitionState((0,), (0,), 0),
            )
            leaving = asyncio.create_task(c.controller.hand_over())
            assert await c.leads(1) == PartitionState((0, 1), (1,), 1, 1)
            assert not leaving.done()
            caught_up = PartitionState((0, 2), (0, 2), 0)
            await c.store.commit([PartitionsChanged("t", {1: caught_up})], as_controller=False)
            async with asyncio.timeout(WITHIN_S):
                await leaving
            assert c.partition(1).leader == 2
            assert c.partition(2).leader == 0

    asyncio.run(scenario())


def test_what_others_changed_first_is_decided_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        async with cluster(tmp_path, 1, 2) as c:
            c.create(PartitionState((1, 2, 0), (1, 2, 0), 1))
            commit = c.store.commit
            faster = [PartitionState((1, 2, 0), (1, 0), 1)]

            async def conflicts(
                changes: Sequence[AnyChange], *, as_controller: bool = True
            ) -> None:
                if faster:
                    await commit([PartitionsChanged("t", {0: faster.pop()})], as_controller=False)
                    raise Conflict("t has changed")
                await commit(changes, as_controller=as_controller)

            monkeypatch.setattr(c.store, "commit", conflicts)
            c.leave(1)
            # Broker 2 would have been next, had it not fallen out of sync meanwhile.
            assert await c.leads(0) == PartitionState((1, 2, 0), (0,), 0, 1)

    asyncio.run(scenario())


def test_elsewhere_than_at_the_controller_everything_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        async with cluster(tmp_path, 1) as c:
            c.create(PartitionState((0, 1), (0, 1), 0))

            async def deposed(changes: Sequence[AnyChange], *, as_controller: bool = True) -> None:
                raise NotController("broker 1 is the controller")

            with monkeypatch.context() as patch:
                patch.setattr(c.store, "commit", deposed)
                with pytest.raises(ClusterError) as refused:
                    await c.controller.reassign([Move("t", 0, (1, 0))])
                assert refused.value.error is Error.NOT_CONTROLLER
            c.publish(ControllerElected(1))
            [outcome] = await c.controller.delete_topics(["t"])
            assert isinstance(outcome, ClusterError)
            assert outcome.error is Error.NOT_CONTROLLER
            assert "t" in c.state.topics

    asyncio.run(scenario())


def test_brokers_that_stop_together_do_not_hand_over_in_circles(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with cluster(tmp_path, 1) as c:
            c.create(PartitionState((0, 1), (0, 1), 0))
            other = c.state.brokers[1]
            c.publish(BrokerJoined(msgspec.structs.replace(other, stopping=True)))
            async with asyncio.timeout(WITHIN_S):
                await c.controller.hand_over()
            assert c.partition() == PartitionState((0, 1), (0, 1), 0)
            assert c.state.brokers[0].stopping

    asyncio.run(scenario())
