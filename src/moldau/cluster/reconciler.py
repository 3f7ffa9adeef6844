"""The reconciler: makes sure, unasked, that every partition is led, and by the right replica.

Nothing here reacts to an event by its content. An event only says that something may be out of
order; then the state is looked through and brought in order, wherever it stands. So no event can be
missed, and a new controller begins by looking through everything.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Protocol

from moldau.cluster.decisions.elections import Minimum, elect, eligible, no_minimum, to_preferred
from moldau.cluster.decisions.reassignment import finished, is_moving
from moldau.cluster.liveness import Liveness
from moldau.cluster.state.changes import (
    AnyChange,
    BrokerConfigured,
    BrokerJoined,
    BrokerLeft,
    ControllerElected,
    PartitionsAdded,
    PartitionsChanged,
    TopicConfigured,
    TopicCreated,
)
from moldau.cluster.state.topics import NO_LEADER, BrokerInfo, PartitionState, Topic
from moldau.cluster.store import Conflict, MetadataStore, NotController, StoreError
from moldau.peer.peers import Peers

# How many partitions are looked through before others get their turn on the loop.
PARTITIONS_AT_ONCE = 2_000
# How many leaders go back to where they should be in one commit.
PREFERRED_AT_ONCE = 1_000
PAUSE_AFTER_FAILURE_S = 0.5
PAUSE_AFTER_CONFLICT_S = 0.005

logger = logging.getLogger(__name__)


class ReconcilerSettings(Protocol):
    """Read anew each time, since some change while the broker runs."""

    @property
    def auto_leader_rebalance_enable(self) -> bool: ...

    @property
    def leader_imbalance_check_interval_seconds(self) -> int: ...


class Reconciler:
    """The controller's standing duties, done while this broker is the controller. Event loop only.

    - A partition whose leader is gone gets another, as `elections` has it.
    - A partition whose move has arrived is done with moving.
    - Leadership goes back to the preferred replicas from time to time.
    - Brokers that are dead are struck off, without waiting for their sessions. The others watch the
      controller in the same way.
    """

    def __init__(
        self,
        store: MetadataStore,
        broker: int,
        peers: Peers,
        settings: Callable[[], ReconcilerSettings],
        is_unclean: Callable[[Topic], bool],
        minimum: Minimum = no_minimum,
    ) -> None:
        self._store = store
        self._state = store.state
        self._broker = broker
        self._settings = settings
        self._is_unclean = is_unclean
        self._minimum = minimum
        self._liveness = Liveness(peers, self._report_dead)
        self._due: set[str] = set()
        self._all_due = False
        self._preferred_due = False
        self._wanted = asyncio.Event()
        self._worker: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None

    @property
    def is_held(self) -> bool:
        """Whether this broker is the controller, as far as it knows; a commit finds out."""
        return self._state.controller_id == self._broker

    def start(self) -> None:
        self._store.subscribe(self._notice)
        self._worker = asyncio.create_task(self._work(), name="controller")
        self._arm_timer()
        self._look_after_all()

    async def stop(self) -> None:
        worker, self._worker = self._worker, None
        if self._timer is not None:
            self._timer.cancel()
        await self._liveness.stop()
        if worker is not None:
            worker.cancel()
            await asyncio.gather(worker, return_exceptions=True)

    # -- noticing

    def _notice(self, changes: Sequence[AnyChange]) -> None:
        if self._worker is None:
            return
        for change in changes:
            match change:
                case ControllerElected() | BrokerJoined() | BrokerLeft():
                    self._look_after_all()
                case BrokerConfigured():
                    self._all_due = True
                case TopicConfigured(name):
                    self._due.add(name)
                case TopicCreated(topic):
                    self._look_after(topic.name, topic.partitions)
                case PartitionsAdded(name, _, partitions):
                    self._look_after(name, partitions)
                case PartitionsChanged(name, partitions):
                    self._look_after(name, partitions.values())
                case _:
                    pass
        if self._all_due or self._due:
            self._wanted.set()

    def _look_after_all(self) -> None:
        self._all_due = True
        self._wanted.set()
        brokers = self._state.brokers
        if self.is_held:
            self._liveness.watch(info for info in brokers.values() if info.id != self._broker)
        else:
            controller = brokers.get(self._state.controller_id)
            self._liveness.watch([] if controller is None else [controller])

    def _look_after(self, name: str, partitions: Iterable[PartitionState]) -> None:
        live = self._state.brokers
        for partition in partitions:
            if (
                partition.leader not in live
                or is_moving(partition)
                or not all(member in live for member in partition.isr)
            ):
                self._due.add(name)
                return

    async def _report_dead(self, broker: BrokerInfo) -> None:
        if broker.stopping:
            # It listens no more, but may still be answering; it says itself when it is gone.
            return
        if self.is_held:
            logger.warning(
                "broker %d at %s:%d is dead: nothing listens there any longer",
                broker.id, broker.host, broker.port,
            )  # fmt: skip
            await self._store.expel(broker)
        elif broker.id == self._state.controller_id:
            logger.warning("the controller, broker %d, is dead", broker.id)
            await self._store.depose()

    def _arm_timer(self) -> None:
        interval = self._settings().leader_imbalance_check_interval_seconds
        self._timer = asyncio.get_running_loop().call_later(interval, self._rebalance)

    def _rebalance(self) -> None:
        self._arm_timer()
        if self._settings().auto_leader_rebalance_enable and len(self._state.brokers) > 1:
            self._preferred_due = True
            self._wanted.set()

    # -- putting in order

    async def _work(self) -> None:
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            if not self.is_held:
                self._forget()
                continue
            try:
                await self._settle()
                if self._preferred_due:
                    await self._prefer()
            except NotController:
                logger.info("broker %d is no longer the controller", self._broker)
                self._forget()
            except StoreError as problem:
                logger.warning("the controller could not store its decisions: %s", problem)
                self._look_again()
                await asyncio.sleep(PAUSE_AFTER_FAILURE_S)
            except Exception:
                # Whatever it was, a cluster without elections would be worse.
                logger.exception("the controller failed; trying again")
                self._look_again()
                await asyncio.sleep(PAUSE_AFTER_FAILURE_S)

    def _forget(self) -> None:
        self._due.clear()
        self._all_due = self._preferred_due = False

    def _look_again(self) -> None:
        self._all_due = True
        self._wanted.set()

    async def _settle(self) -> None:
        names = list(self._state.topics) if self._all_due else sorted(self._due)
        self._due, self._all_due = set(), False
        conflict = False
        for some in self._slices(names):
            changes = [change for name in some if (change := self._settled(name)) is not None]
            if not changes:
                # Nothing is waited for, and there may be many more.
                await asyncio.sleep(0)
                continue
            before = {change.name: self._state.topics[change.name] for change in changes}
            try:
                await self._store.commit(changes)
            except Conflict:
                conflict = True
                self._due.update(before)
            else:
                _tell(changes, before)
        if conflict:
            self._wanted.set()
            await asyncio.sleep(PAUSE_AFTER_CONFLICT_S)

    def _slices(self, names: Iterable[str]) -> Iterator[list[str]]:
        some: list[str] = []
        count = 0
        for name in names:
            topic = self._state.topics.get(name)
            if topic is None:
                continue
            some.append(name)
            count += len(topic.partitions)
            if count >= PARTITIONS_AT_ONCE:
                yield some
                some, count = [], 0
        yield some

    def _settled(self, name: str) -> PartitionsChanged | None:
        topic = self._state.topics.get(name)
        if topic is None:
            return None
        live = self._state.brokers.keys()
        stopping = live - eligible(self._state)
        minimum = self._minimum(topic)
        changed = {}
        for index, partition in enumerate(topic.partitions):
            after = elect(partition, live, lambda: self._is_unclean(topic), stopping, minimum)
            after = after or partition
            if is_moving(after):
                after = finished(after, live) or after
            if after is not partition:
                changed[index] = after
        return PartitionsChanged(name, changed) if changed else None

    async def _prefer(self) -> None:
        self._preferred_due = False
        live = eligible(self._state)
        changes: list[AnyChange] = []
        count = 0
        for topic in self._state.topics.values():
            minimum = self._minimum(topic)
            changed = {
                index: after
                for index, partition in enumerate(topic.partitions)
                if (after := to_preferred(partition, live, minimum)) is not None
            }
            if changed:
                changes.append(PartitionsChanged(topic.name, changed))
                count += len(changed)
            if count >= PREFERRED_AT_ONCE:
                self._preferred_due = True
                self._wanted.set()
                break
        if changes:
            try:
                await self._store.commit(changes)
            except Conflict:
                # Whatever is still to be moved is found the next time.
                return
            logger.info("leadership of %d partitions returned to their preferred replicas", count)


def _tell(changes: Iterable[PartitionsChanged], before: dict[str, Topic]) -> None:
    led = offline = arrived = 0
    for change in changes:
        was = before[change.name].partitions
        for index, partition in change.partitions.items():
            if partition.leader != was[index].leader:
                led += partition.leader != NO_LEADER
                offline += partition.leader == NO_LEADER
            arrived += is_moving(was[index]) and not is_moving(partition)
    if led:
        logger.info("%d partitions have a new leader", led)
    if offline:
        logger.error(
            "%d partitions are offline: no living replica is certain to have all records. Start "
            "the brokers that hold them, or set unclean.leader.election.enable=true and lose "
            "records",
            offline,
        )
    if arrived:
        logger.info("%d partitions have moved to other brokers", arrived)
