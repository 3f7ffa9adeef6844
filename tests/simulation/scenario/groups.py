"""Groups of a run, those of KIP-848 and share groups: their members, and how they must end."""

from __future__ import annotations

from collections.abc import Callable

from moldau.cluster.zookeeper.store import ZooKeeperStore
from tests.simulation.checks.deliveries import Deliveries, Regime
from tests.simulation.checks.history import History
from tests.simulation.checks.metadata import Metadata
from tests.simulation.checks.ownership import Ownership
from tests.simulation.core.world import World
from tests.simulation.load.share_auditor import DeadLetterReader, ShareAuditor
from tests.simulation.load.share_member import GROUP, ShareMember
from tests.simulation.load.subscriber import Subscriber
from tests.simulation.scenario.scenario import DELIVERIES, SHARED, SUBSCRIBED, Load

# What is waited for, and how it is named if it never comes.
Wait = Callable[[Callable[[], bool], str], None]
HasAll = Callable[[DeadLetterReader], bool]

SUBSCRIBED_PARTITIONS = 4
SHARED_PARTITIONS = 2
DEAD_LETTERS = "dlq.letters"
# The settings of the share group.
SHARING = {
    "share.auto.offset.reset": "earliest",
    "errors.deadletterqueue.topic.name": DEAD_LETTERS,
}


class Groups:
    """The members of both kinds, and what is known of them."""

    def __init__(self, world: World, history: History, metadata: Metadata) -> None:
        self._world = world
        self._history = history
        self._metadata = metadata
        self._ownership = Ownership(lambda: world.loop.now_s, SUBSCRIBED_PARTITIONS)
        self._deliveries = Deliveries(lambda: world.loop.now_s, DELIVERIES)
        self._subscribers: list[Subscriber] = []
        self._sharers: list[ShareMember] = []

    def begin(self, load: Load) -> None:
        if load.kind == "subscriber":
            subscriber = self.new_subscriber(load.name, load.every_s)
            subscriber.start(subscriber.run())
            self._subscribers.append(subscriber)
        else:
            sharer = self.new_sharer(load.name, load.every_s)
            sharer.start(sharer.run())
            self._sharers.append(sharer)

    def new_subscriber(self, name: str, every_s: float) -> Subscriber:
        return Subscriber(self._world, self._history, self._ownership, name, SUBSCRIBED, every_s)

    def new_sharer(self, name: str, every_s: float) -> ShareMember:
        return ShareMember(
            self._world, self._history, self._deliveries, name, SHARED, every_s, self._regime
        )

    def set_back(self, partition: int, start: int) -> None:
        """Records from there on are shared anew, as if nobody had been given them."""
        self._deliveries.set_back(partition, start)

    def _regime(self, partition: int) -> Regime | None:
        """Who leads a shared partition, by what the cluster has agreed on and the leader knows:
        until it does, one that leads in two epochs on end gives out records in the first."""
        state = self._metadata.topics[SHARED].partitions[partition]
        node = self._world.nodes.get(state.leader)
        broker = None if node is None else node.broker
        if node is None or broker is None or not isinstance(broker.store, ZooKeeperStore):
            return None
        own = broker.partitions.get((SHARED, partition))
        if own is None or own.leader_epoch != state.leader_epoch:
            return None
        return Regime(node.id, node.lives, state.leader_epoch, broker.store._lapses)

    def end(self, wait: Wait, has_all: HasAll, ends: Callable[[], dict[int, int]]) -> None:
        """Everything is assigned, and everything that was shared is finished. `ends` are those of
        the logs of the shared partitions."""
        if self._subscribers:
            for subscriber in self._subscribers:
                subscriber.is_calm = True
            wait(self._ownership.is_complete, "each partition is some subscriber's")
            for subscriber in self._subscribers:
                subscriber.is_stopping = True
        if self._sharers:
            self._end_sharing(wait, has_all, ends)

    def _end_sharing(self, wait: Wait, has_all: HasAll, ends: Callable[[], dict[int, int]]) -> None:
        for sharer in self._sharers:
            sharer.is_finishing = True
        auditor = ShareAuditor(self._world, "auditor", SHARED, SHARED_PARTITIONS)
        auditor.start(auditor.run())
        wait(lambda: auditor.starts == ends(), f"everything is finished by {GROUP}")
        for each in (*self._sharers, auditor):
            each.is_stopping = True
        reader = DeadLetterReader(
            self._world, self._history, "reader of dead letters", DEAD_LETTERS
        )
        reader.start(reader.run())
        wait(lambda: has_all(reader), "the dead letters can be read")
        reader.is_stopping = True
        self._deliveries.check_end(ends(), reader.letters)
