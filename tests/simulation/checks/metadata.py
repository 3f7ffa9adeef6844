"""The invariants of what the cluster agrees on, looked at with each transaction of ZooKeeper.

- a partition's leader epoch never goes down, and another leader has another epoch
- a leader is elected from those in sync, or eligible (KIP-966)
- who is in sync is changed by the leader, by the controller, or by a broker about itself
"""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

from moldau.broker.coordination.placement import partition_of
from moldau.cluster.state.internal_topics import TRANSACTION_STATE
from moldau.cluster.state.topics import NO_LEADER, PartitionState, Topic
from moldau.cluster.zookeeper.znodes import decode_topic
from tests.simulation.checks.history import Violation
from tests.simulation.core.world import World
from tests.simulation.zookeeper.tree import Transaction

_TOPICS = "/moldau/topics/"

Place = tuple[UUID, int]


class Metadata:
    """The topics as the ensemble has them, and who changes them how."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.topics: dict[str, Topic] = {}
        self.changes = 0
        # Told who comes into sync for what.
        self.on_joined: list[Callable[[str, Place, int], None]] = []
        # Told who is elected to lead what.
        self.on_elected: list[Callable[[str, int], None]] = []
        world.ensemble.on_commit.append(self._committed)

    def partition(self, name: str, place: Place) -> PartitionState | None:
        topic, (topic_id, index) = self.topics.get(name), place
        if topic is None or topic.id != topic_id or index >= len(topic.partitions):
            return None
        return topic.partitions[index]

    def coordinates(self, broker: int, id: str) -> bool:
        """Whether this broker leads the partition that has this transactional id."""
        partitions = self.topics[TRANSACTION_STATE.name].partitions
        return partitions[partition_of(id, len(partitions))].leader == broker

    def is_whole(self) -> bool:
        """Whether every replica of every partition is in sync and led."""
        return all(
            partition.leader != NO_LEADER
            and set(partition.isr) == set(partition.replicas)
            and not partition.adding
            and not partition.removing
            for topic in self.topics.values()
            for partition in topic.partitions
        )

    def in_sync(self) -> set[int]:
        """Every broker that is in sync for some partition."""
        return {
            broker
            for topic in self.topics.values()
            for partition in topic.partitions
            for broker in partition.isr
        }

    def __str__(self) -> str:
        return "; ".join(
            f"{name}-{index} {partition}"
            for name, topic in self.topics.items()
            for index, partition in enumerate(topic.partitions)
        )

    def _committed(self, transaction: Transaction, session_id: int) -> None:
        for path, data, *_ in transaction.changes:
            if not path.startswith(_TOPICS):
                continue
            name = path[len(_TOPICS) :]
            if data is None:
                self.topics.pop(name, None)
                continue
            self.changes += 1
            topic = decode_topic(path, name, data)
            before = self.topics.get(name)
            self.topics[name] = topic
            if before is None or before.id != topic.id:
                continue
            try:
                for index, new in enumerate(topic.partitions[: len(before.partitions)]):
                    old = before.partitions[index]
                    self._check(f"{name}-{index}", old, new, session_id)
                    if new.leader not in (old.leader, NO_LEADER):
                        for elected in self.on_elected:
                            elected(f"{name}-{index}", new.leader)
                    for broker in set(new.isr) - set(old.isr) - {new.leader}:
                        for listener in self.on_joined:
                            listener(f"{name}-{index}", (topic.id, index), broker)
            except Violation as violation:
                self._world.fail(violation)

    def _check(self, name: str, old: PartitionState, new: PartitionState, session: int) -> None:
        if new.leader_epoch < old.leader_epoch:
            raise Violation(f"the leader epoch of {name} went back: {old} became {new}")
        if new.leader != old.leader and new.leader_epoch == old.leader_epoch:
            raise Violation(f"{name} has another leader in the same epoch: {old} became {new}")
        is_elected = new.leader_epoch != old.leader_epoch and new.leader not in (NO_LEADER,)
        eligible = {*old.isr, *old.elr, *old.last_known_elr}
        if is_elected and new.leader not in eligible:
            raise Violation(f"{name} got a leader that may not be elected: {old} became {new}")
        if new.leader != old.leader:
            self._check_elector(name, old, new, session)
        if not set(new.isr) <= set(new.replicas):
            raise Violation(f"{name} has in-sync replicas that are none: {new}")
        if set(new.isr) != set(old.isr):
            self._check_right(name, old, new, session)

    def _check_elector(
        self, name: str, old: PartitionState, new: PartitionState, session: int
    ) -> None:
        """Leaders are elected by the controller; a leader may step down, and name its heir."""
        holder = self._world.ensemble.tree.nodes.get("/moldau/controller")
        if holder is not None and holder.owner == session:
            return
        broker = self._broker_of(session)
        if broker != old.leader:
            raise Violation(f"broker {broker}, not the controller, elected: {old} became {new}")

    def _check_right(
        self, name: str, old: PartitionState, new: PartitionState, session: int
    ) -> None:
        broker = self._broker_of(session)
        holder = self._world.ensemble.tree.nodes.get("/moldau/controller")
        is_controller = holder is not None and holder.owner == session
        is_leader = broker == old.leader
        about_itself = set(old.isr) ^ set(new.isr) == {broker} and broker not in new.isr
        added = set(new.isr) - set(old.isr)
        if added and not is_leader and new.leader_epoch == old.leader_epoch:
            raise Violation(
                f"broker {broker}, not the leader, added {added} to {name}: {old}, {new}"
            )
        if not (is_controller or is_leader or about_itself):
            raise Violation(f"broker {broker} may not change {name}: {old} became {new}")

    def _broker_of(self, session_id: int) -> int:
        machine = self._world.ensemble.owners[session_id]
        return next(node.id for node in self._world.nodes.values() if node.machine is machine)
